"""Runbooks, carried out: the fault happens, and the page's own commands must say what the page shows."""

import asyncio
import contextlib
import fnmatch
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, tool

from tests.cluster.nodes import ROOT, Cluster, foldlog, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
PAGES = ROOT / "docs" / "runbooks"


class Page:
    """The blocks of a runbook: commands of foldlog, each with the lines that it shows, `...` for any text."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        text = (PAGES / f"{name}.md").read_text()
        self._blocks = [
            block.splitlines() for block in re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        ]
        self._cluster, self._done = cluster, 0

    async def next(self) -> None:
        """Repeat the commands of the next block until they say what it shows."""
        await self._says(self._blocks[self._done])
        self._done += 1

    async def again(self) -> None:
        """Do the block before once more."""
        await self._says(self._blocks[self._done - 1])

    @property
    def is_done(self) -> bool:
        return self._done == len(self._blocks)

    async def _says(self, lines: list[str]) -> None:
        starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
        assert starts[:1] == [0]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):

            async def is_said(start: int = start, end: int = end) -> bool:
                return await self._run(lines[start].removeprefix("$ "), lines[start + 1 : end])

            await until(is_said)

    async def _run(self, command: str, shown: list[str]) -> bool:
        words = command.replace(
            "http://nats-1:8222", f"http://127.0.0.1:{self._cluster.nodes[0].monitor_port}"
        ).split()
        assert words[0] == "foldlog"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FOLDLOG_")}
        done = await asyncio.to_thread(
            subprocess.run,
            [foldlog(), *words[1:]],
            capture_output=True,
            text=True,
            env={**environment, "NATS_URL": self._cluster.url},
            check=False,
        )
        assert "Traceback" not in done.stderr
        said = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines()]
        wanted = [" ".join(line.split()).replace("[", "[[]").replace("...", "*") for line in shown]
        return all(fnmatch.filter(said, f"{line}*") for line in wanted) and (
            bool(shown) or done.returncode == 0
        )


class Held:
    """A tool that waits until it is let go, so that what happens meanwhile happens during a run."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> Any:
        @tool(effect="pure", timeout_s=None)
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.let_go.wait()
            return "waited"

        return wait


@contextlib.asynccontextmanager
async def helped(cluster: Cluster, held: Held) -> AsyncIterator[tuple[Runtime, Agent]]:
    """Open a runtime on all servers, with an agent that waits once."""
    script = cluster.nodes[1].directory / "script.json"
    script.write_text(
        '{"turns": [{"tool_calls": [{"id": "1", "name": "wait", "arguments": {}}]}, {"text": "done"}]}'
    )
    agent = Agent("helper", model=f"scripted:{script}", tools=[held.tool])
    async with (
        JetStreamLog.open(cluster.url, connect_timeout_s=60, request_timeout_s=30) as log,
        Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime,
    ):
        yield runtime, agent


@contextlib.asynccontextmanager
async def in_use(directory: Path) -> AsyncIterator[Cluster]:
    """Three servers with a run."""
    async with Cluster(directory) as cluster:
        held = Held()
        held.let_go.set()
        async with helped(cluster, held) as (runtime, agent):
            await runtime.run(agent, "hello")
        await cluster.settled()
        yield cluster


@pytest.fixture(scope="module")
async def cluster(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with in_use(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def test_a_lost_server_is_named_and_comes_back(cluster: Cluster) -> None:
    page, node = Page("lost-node", cluster), cluster.nodes[1]
    node.kill()
    await page.next()
    node.start()
    await cluster.settled()
    await page.next()
    assert page.is_done


async def test_a_run_waits_for_a_lost_quorum_and_goes_on_by_itself(cluster: Cluster) -> None:
    page, held = Page("lost-quorum", cluster), Held()
    async with helped(cluster, held) as (runtime, agent):
        running = asyncio.create_task(runtime.run(agent, "through a lost quorum"))
        await held.entered.wait()
        for node in cluster.nodes[1:]:
            node.kill()
        held.let_go.set()
        await page.next()
        assert not running.done()
        cluster.nodes[1].start()
        assert (await running).output == "done"
        cluster.nodes[2].start()
        await cluster.settled()
        await page.next()
    assert page.is_done


async def test_an_empty_server_with_the_old_name_gets_everything(cluster: Cluster) -> None:
    page, node = Page("replace-node", cluster), cluster.nodes[2]
    node.kill()
    shutil.rmtree(node.store)
    node.start()
    await cluster.settled()
    await page.next()
    await page.next()
    assert page.is_done


async def test_servers_are_restarted_one_after_the_other_under_a_run(cluster: Cluster) -> None:
    page, held = Page("upgrade", cluster), Held()
    await page.next()
    async with helped(cluster, held) as (runtime, agent):
        running = asyncio.create_task(runtime.run(agent, "through an upgrade"))
        await held.entered.wait()
        for number, node in enumerate(cluster.nodes):
            await node.terminate()
            node.start()
            await cluster.settled()
            await (page.again() if number else page.next())
        held.let_go.set()
        assert (await running).output == "done"
    assert page.is_done
