"""Commands to many runs that end before their end: by a signal, or because the log is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator

import pytest
from foldlog.adapters.cli import bulk
from foldlog.adapters.cli.bulk import Bulk, Done, carry_out
from foldlog.adapters.cli.loops import Interruption
from foldlog.adapters.cli.output.terminal import Screen
from foldlog.adapters.cli.settings import Settings
from foldlog.eventlog import LogUnavailable

from tests.cli.commands import Project

ENDED_EARLY = (
    "ended early: 1 of 3 runs done, 1 broken off, 1 not begun; repeat the command, it does nothing twice\n"
)
LEFT = [
    {"run_id": "one", "found": "cancelled"},
    {"run_id": "two", "error": "broken off: it may have been done"},
    {"run_id": "three", "error": "not begun"},
]


class Told:
    """A signal that a test sends, as `interruption` reports it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interrupted = Interruption()
        monkeypatch.setattr(bulk, "interruption", self._interruption)
        monkeypatch.setattr(bulk, "AT_ONCE_MAX", 1)

    @contextlib.contextmanager
    def _interruption(self) -> Iterator[Interruption]:
        yield self.interrupted


def options(*, as_json: bool) -> tuple[Bulk, Screen]:
    return Bulk(json=as_json), Screen(Settings())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_command_tells_what_was_done_and_what_not(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(monkeypatch)

    async def cancelled(run: str) -> Done:
        if run == "two":
            told.interrupted.tell(number)
            await asyncio.Event().wait()
        return Done(run_id=run, words="cancelled", document={"found": "cancelled"})

    bulk_options, screen = options(as_json=True)
    found = await carry_out(["one", "two", "three"], cancelled, bulk_options, screen, single=False)
    said = capsys.readouterr()
    assert (found, json.loads(said.out), said.err) == (code, LEFT, ENDED_EARLY)


async def test_a_command_that_loses_the_log_tells_what_was_done_before_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Told(monkeypatch)

    async def cancelled(run: str) -> Done:
        if run == "two":
            raise LogUnavailable("the log is gone")
        return Done(run_id=run, words="cancelled", document={"found": "cancelled"})

    for as_json, out in ((True, LEFT), (False, "run one: cancelled\n")):
        bulk_options, screen = options(as_json=as_json)
        with pytest.raises(LogUnavailable, match="the log is gone"):
            await carry_out(["one", "two", "three"], cancelled, bulk_options, screen, single=False)
        said = capsys.readouterr()
        assert (json.loads(said.out) if as_json else said.out) == out
        assert said.err == ENDED_EARLY


async def test_a_command_that_was_done_when_the_signal_came_ends_as_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(monkeypatch)

    async def cancelled(run: str) -> Done:
        return Done(run_id=run, words="cancelled", document={"found": "cancelled"})

    bulk_options, screen = options(as_json=True)
    told.interrupted.tell(signal.SIGINT)
    done = asyncio.Event()
    monkeypatch.setattr(told.interrupted, "told", done)  # nobody hears it before all is done
    assert await carry_out(["one"], cancelled, bulk_options, screen, single=True) == 0
    assert json.loads(capsys.readouterr().out) == LEFT[0]


def test_signals_end_commands_that_wait_for_their_next_run(project: Project) -> None:
    for name in ("one", "two"):
        project.run("run", "project_agents:failing", "x", "--run-id", name, "--quiet")
    retrying = project.start("runs", "retry", "--status", "error", "--rate", "1/h")
    assert retrying.until("retried as run", of="out").startswith("run two: ")
    retrying.interrupt(signal.SIGTERM)
    done = retrying.end()
    assert (done.code, "ended early: 1 of 2 runs done, 0 broken off, 1 not begun" in done.err) == (143, True)
    deleting = project.start("runs", "delete", "one", "two", "--rate", "1/h", "--receipt", "interrupted.json")
    while "was deleted" not in project.run("runs", "show", "one").err:
        pass
    deleting.interrupt()
    done = deleting.end()
    receipt = json.loads((project.place / "interrupted.json").read_text())
    assert (done.code, [each["run_id"] for each in receipt["erased"]], receipt["not_begun"]) == (
        130,
        ["one"],
        ["two"],
    )
    again = project.run("runs", "delete", "one", "two", "--json").document
    assert [(each["run_id"], each["before"]) for each in again["erased"]] == [("one", True), ("two", False)]
