"""An executor that another package brings, found by its entry point as it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foldlog.eventlog import ConfigError
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Agent, Registry, Runtime
from foldlog.runtime.ports.plugins import installed as plugins

from .conftest import says

pytestmark = pytest.mark.anyio

MODULE = """
from foldlog.runtime import CAPABILITIES, LocalExecutor

class Own(LocalExecutor):
    name = "own"
    capabilities = CAPABILITIES
    closed = 0

    async def aclose(self):
        Own.closed += 1
        await super().aclose()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two entry points of a distribution on the path; what the second one names cannot be imported."""
    (tmp_path / "own_executor.py").write_text(MODULE)
    info = tmp_path / "own_executor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-executor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[foldlog.executors]\nown = own_executor:Own\nbroken = own_executor:Missing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins.cache_clear()
    yield
    plugins.cache_clear()


@pytest.mark.usefixtures("installed")
async def test_an_installed_executor_drives_runs_and_is_closed_with_the_runtime(
    script: Callable[..., str],
) -> None:
    agent = Agent("helper", model=script(says("done")))
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question", executor="own")
        assert (await run.result()).output == "done"
        submitted = (await run.state()).submitted
        assert submitted is not None
        assert submitted.executor == "own"
        executor = runtime.executor("own")
    assert type(executor).closed == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "there is no executor 'nope'; known: broken, durable, local, own"),
        ("broken", "the plugin 'broken' .* cannot be used: AttributeError"),
    ],
)
async def test_an_executor_that_cannot_be_had_is_named(
    script: Callable[..., str], name: str, message: str
) -> None:
    agent = Agent("helper", model=script(says("done")))
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(ConfigError, match=message):
            await runtime.start(agent, "question", executor=name)
