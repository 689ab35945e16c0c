"""Every history that a release wrote is read, judged, replayed and folded for ever as it was then."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog.commits import Chain, decode
from foldlog.eventlog.errors import KeyMissing
from foldlog.eventlog.events import ENGINE, OBSERVABLE, Text
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.sealing import HeldKeys, SealedLog
from foldlog.eventlog.sealing.keyring import imported
from foldlog.projections.fold import fold_commit
from foldlog.projections.run_state import RunState
from foldlog.projections.snapshot import decode_state, encode_state
from foldlog.replay import (
    Archive,
    Watch,
    check_trace,
    export,
    import_archive,
    load_trace,
    read_archive,
    replay,
)
from foldlog.replay.canonical.observed import expectation
from foldlog.runtime.journal.journal import restored

from tests.histories import registers
from tests.histories.make import SEAL_KEY, SEALED
from tests.replay.scenarios import SCENARIOS

V1 = Path(__file__).parent / "v1"
NAMES = sorted(path.stem for path in V1.glob("*.jsonl"))
# What no history holds yet.
NOT_YET = {
    "budget",
    "child_ready",
    "memoized",
    "token_issued",
    "token_revoked",
    "tools_refresh_failed",
    "tools_refresh_requested",
}
REGISTERS = sorted(path.stem for path in V1.glob("*.registers"))
# Of other subjects than runs, schedules and hooks.
ELSEWHERE = {
    "access_granted",
    "access_withdrawn",
    "agent_removed",
    "agent_saved",
    "answer_kept",
    "breaker_updated",
    "budget_updated",
    "key_recorded",
    "lane_updated",
    "once_updated",
    "plan_updated",
    "policy_updated",
    "slots_updated",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def archive(name: str) -> Archive:
    return read_archive((V1 / f"{name}.jsonl").read_bytes())


def expected(name: str) -> Any:
    return json.loads((V1 / f"{name}.expected.json").read_text())


def told_of_registers(name: str) -> Any:
    return json.loads((V1 / f"{name}.registers.json").read_text())


def holds(found: Any, wanted: Any) -> bool:
    """Return whether everything expected is there; a later release may have more."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(k in found and holds(found[k], v) for k, v in wanted.items())
    return bool(found == wanted)


def test_there_is_a_history_of_every_scenario() -> None:
    assert set(SCENARIOS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_read_as_it_was_when_it_was_written(name: str) -> None:
    found = json.loads(json.dumps(expectation(archive(name))))
    assert {run: each["state_digest"] for run, each in found["runs"].items()} == {
        run: each["state_digest"] for run, each in expected(name)["runs"].items()
    }
    assert holds(found, expected(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_code_still_decides_what_a_history_holds(name: str) -> None:
    for trace in archive(name).traces.values():
        found = replay(trace)
        assert found.divergence is None
        assert found.turns


@pytest.mark.parametrize("name", NAMES)
def test_a_history_breaks_no_rule(name: str) -> None:
    for trace in archive(name).traces.values():
        assert check_trace(trace, ended=False) == []
    watch = Watch()
    assert [violation for stored in archive(name).stored for violation in watch.feed(stored)] == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_history_is_folded_on_from_a_snapshot_at_every_revision(name: str) -> None:
    log, chain, buried = MemoryLog(), Chain(), archive(name).buried
    await import_archive(archive(name), log)
    whole: dict[str, RunState] = {}
    cached: dict[str, RunState] = {}
    for stored in archive(name).stored:
        if stored.subject.root in buried:
            continue
        recorded = await restored(chain.verify(stored), log)
        state = whole.setdefault(stored.subject.id, RunState())
        fold_commit(state, recorded)
        fold_commit(cached.setdefault(stored.subject.id, RunState()), recorded)
        again = decode_state(encode_state(cached[stored.subject.id]), stored.subject)
        assert again == state
        cached[stored.subject.id] = again


@pytest.mark.parametrize("name", NAMES)
async def test_a_history_goes_through_a_log_byte_for_byte(name: str) -> None:
    log = MemoryLog()
    await import_archive(archive(name), log)
    lines = [json.loads(line) async for line in export(log, artifacts=True)]
    told = [json.loads(line) for line in (V1 / f"{name}.jsonl").read_text().splitlines()]
    assert [line.get("data", line.get("artifact")) for line in lines] == [
        line.get("data", line.get("artifact")) for line in told
    ]


@pytest.mark.parametrize("name", REGISTERS)
def test_schedules_and_hooks_are_read_and_judged_as_they_were_when_they_were_written(name: str) -> None:
    found, told = registers.expectation((V1 / f"{name}.registers").read_bytes()), told_of_registers(name)
    assert len(found) == len(told) > 1
    assert all(each["chained"] for each in found)
    assert [None if holds(f, t) else f for f, t in zip(found, told, strict=True)] == [None] * len(told)


def test_the_histories_hold_every_event_that_there_is() -> None:
    seen = {
        event.type
        for name in NAMES
        for stored in archive(name).stored
        for event in decode(stored.data).events
    }
    seen |= {each["event"]["type"] for name in REGISTERS for each in told_of_registers(name)}
    kinds = {str(cls.__struct_config__.tag) for cls in (*OBSERVABLE, *ENGINE)}
    assert kinds - NOT_YET - ELSEWHERE <= seen


def test_no_history_was_edited() -> None:
    """The sums of all files: a line is added with a file, and none is changed."""
    lines = (V1 / "SHA256SUMS").read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines)
    files = sorted(path for path in V1.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    assert {path.relative_to(V1).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files} == sums


async def test_a_sealed_history_is_read_and_replayed_with_its_keys_and_by_nobody_else() -> None:
    history, log = read_archive(SEALED.read_bytes()), MemoryLog()
    await import_archive(history, log)
    there = SealedLog(log, HeldKeys((SEAL_KEY,), "the histories"))
    (root,) = {stored.subject.root for stored in history.stored}
    with pytest.raises(KeyMissing):
        await load_trace(there, root)
    await there.ring.add(imported(SEALED.with_suffix(".keys.jsonl").read_bytes()))
    trace = await load_trace(there, root)
    assert check_trace(trace, ended=True) == []
    assert replay(trace).divergence is None
    assert [event.text for event in trace.events if isinstance(event, Text)] == [
        "Let me see.",
        "Final answer",
    ]
    again = read_archive(b"".join([line async for line in export(there, artifacts=True)]))
    assert [stored.data for stored in again.stored] == [stored.data for stored in history.stored]
