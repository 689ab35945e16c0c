"""A fork can leave a run behind any revision of any recorded history, and what it shares is whole and legal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from foldlog.eventlog import ConfigError
from foldlog.eventlog.events import (
    Event,
    ForkTools,
    LateOutcome,
    LeftToOthers,
    ModelFailed,
    Prepared,
    Step,
    TokenUsage,
    ToolResult,
    Unknown,
    Usage,
    is_by_provider,
)
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.names import run_subject
from foldlog.projections.fold import apply
from foldlog.projections.run_state import RunState
from foldlog.replay import (
    Archive,
    Trace,
    check_trace,
    find_run,
    import_archive,
    load_trace,
    read_archive,
    replay,
)
from foldlog.runtime.core.commands import Claim, ToolsResolved
from foldlog.runtime.core.decide import advance, take
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.forks.family import Ancestor, Ancestors, Opening
from foldlog.runtime.forks.fork import ForkOptions, Origin, opening, read_origin, submission
from foldlog.runtime.forks.plan import plan_of
from foldlog.runtime.forks.storage import store
from foldlog.runtime.journal.journal import Journal

HISTORIES = Path(__file__).parents[1] / "histories" / "v1"
POLICIES: tuple[ForkTools, ...] = ("replay", "ask", "run")


@cache
def archive(name: str) -> Archive:
    return read_archive((HISTORIES / f"{name}.jsonl").read_bytes())


@cache
def traces(name: str) -> tuple[Trace, ...]:
    return tuple(archive(name).traces.values())


def runs_of(name: str) -> Iterator[tuple[Trace, str]]:
    for trace in traces(name):
        for run in dict.fromkeys(commit.commit.run for commit in trace.commits):
            yield trace, run


def origin_of(trace: Trace, run: str, at: int) -> Origin:
    """As `read_origin` reads it, without a log."""
    ancestors = Ancestors(run)
    for recorded in trace.commits:
        if ancestors.has(recorded):
            ancestors.add(recorded, recorded.commit.events)
    return Origin(ancestors.family, at)


def revisions(trace: Trace, run: str) -> range:
    return range(1, sum(len(r.commit.events) for r in trace.commits if r.commit.run == run) + 1)


def forked(origin: Origin, wish: ForkOptions, run: str = "fork") -> Opening:
    return opening(origin, wish, submission(origin, wish), run, 1e9)


def state_of(opening: Opening) -> RunState:
    """The state that the root of a fork opens with."""
    return next(iter(opening.values())).turn.state


def state_at(origin: Origin) -> RunState:
    state = RunState()
    for event in origin.run.history[: origin.at]:
        apply(state, event, 0.0)
    return state


ALL = sorted(path.stem for path in HISTORIES.glob("*.jsonl"))
NEWER = "from_a_newer_writer"
FORKABLE = [name for name in ALL if name != NEWER]


@pytest.mark.parametrize("name", FORKABLE)
@pytest.mark.parametrize(
    "every", [pytest.param(False, id="in-turn"), pytest.param(True, id="all", marks=pytest.mark.nightly)]
)
async def test_a_fork_at_every_revision_is_legal_and_decided_again_as_it_is_stored(
    name: str, *, every: bool
) -> None:
    """By day each revision has one of the policies, in turn; by night all."""
    log = MemoryLog()
    await import_archive(archive(name), log)
    number = 0
    for trace, run in runs_of(name):
        for at in revisions(trace, run):
            for tools in POLICIES if every else (POLICIES[at % len(POLICIES)],):
                number += 1
                origin = await read_origin(log, await find_run(log, run), at)
                told_more = number % 4 == 0 and (origin.submitted.kind == "agent" or at < 5)
                wish = ForkOptions(tools=tools, input="and now?" if told_more else None)
                subject = run_subject(0, f"fork-{number}", f"fork-{number}")
                turn = forked(origin, wish, subject.id)
                assert await store(log, subject, turn, lease_s=5.0)
                await _claim(log, subject.id, origin)
                told = f"{run} at {at} with {tools}"
                fork = await load_trace(log, subject.id)
                assert check_trace(fork, ended=False) == [], told
                assert replay(fork).divergence is None, told


async def _claim(log: MemoryLog, run: str, origin: Origin) -> None:
    """Return the first decisions of the executor that claims the fork."""
    journal = Journal(log, run_subject(0, run, run))
    state = await journal.load()
    turn = Turn(state, journal.rules, log.clock.now())
    take(turn, Claim("worker", 5.0))
    prepared = next((event for event in origin.run.history if isinstance(event, Prepared)), None)
    if not state.prepared and prepared is not None:
        take(turn, ToolsResolved(tools=tuple(prepared.tools), model=prepared.model))
    advance(turn)
    assert not any(call.orphaned for call in turn.state.calls.values())
    assert turn.state.error is None or turn.state.error.error_type in {
        "loop_detected",
        "max_steps",
        "content_filter",
        "output_invalid",
        "output_truncated",
    }
    assert await journal.store(turn.events, epoch=1)


@pytest.mark.parametrize("name", [name for name in ALL if name != NEWER])
def test_what_was_finished_at_the_revision_is_shared_and_what_was_open_is_not(name: str) -> None:
    for trace, run in runs_of(name):
        for at in revisions(trace, run):
            origin = origin_of(trace, run, at)
            fork = next(iter(forked(origin, ForkOptions(tools="run")).values())).turn
            before, after = state_at(origin), fork.state
            ended = before.steps_completed - after.steps_completed  # a final answer, which the fork ends with
            assert ended in {0, 1}
            assert after.step == before.step
            left = _left(origin, fork.events)
            assert before.usage == sum((event.usage or TokenUsage() for event in left), after.usage)
            assert _cut(origin) or not any(isinstance(event, Usage) for event in left)
            if not ended:
                assert after.messages == before.messages[: len(after.messages)]
                known = [*before.messages, *before.queue]
                assert {m.content for m in after.queue} <= {m.content for m in known}
            assert results_in(after) == results_in(before)
            assert after.owner is None
            assert after.epoch == 0
            assert after.parked is None
            assert not after.over
            assert all(
                call.started == 0 and call.failures == 0
                for call in after.calls.values()
                if call.result is None
            )
            assert all(
                not a.pending or a.request.approval_id not in before.approvals
                for a in after.approvals.values()
            )


def results_in(state: RunState) -> dict[str, ToolResult]:
    """The results of the current step, without what a fork says of where it had them from."""
    found = {}
    for call in state.calls.values():
        if call.result is not None:
            told = {"recorded_from", "deduplicated"}
            metadata = {k: v for k, v in call.result.metadata.items() if k not in told}
            found[call.id] = msgspec.structs.replace(call.result, metadata=metadata)
    return found


def _left(origin: Origin, shared: list[Event]) -> list[Usage | ModelFailed | LateOutcome]:
    """Return the usage that stays with the parent: late outcomes, and answers of the open step."""
    left = [
        event
        for event in origin.run.history[: origin.at]
        if isinstance(event, (Usage, ModelFailed, LateOutcome)) and event not in shared
    ]
    closed = {event.step for event in shared if isinstance(event, Step) and event.status == "completed"}
    assert all(isinstance(event, LateOutcome) or event.step not in closed for event in left)
    return left


def _cut(origin: Origin) -> bool:
    """Return whether the revision is within a model's reply, after its usage."""
    behind = origin.run.history[origin.at : origin.at + 1]
    return bool(behind) and (behind[0].type == "tool_call" or is_by_provider(behind[0]))


@pytest.mark.parametrize("tools", POLICIES)
def test_a_fork_that_is_forked_at_its_own_end_shares_the_same_once_more(tools: ForkTools) -> None:
    for trace, run in runs_of("tools_and_progress"):
        for at in revisions(trace, run):
            opened = forked(origin_of(trace, run, at), ForkOptions(tools="run"))
            first, events = state_of(opened), list(opened["fork"].turn.events)
            none = [0.0] * len(events)
            stored = Ancestor(
                run_subject(0, "fork", "fork"), "agent", events, [1] * len(events), [""] * len(events), none
            )
            second = state_of(
                forked(Origin({"fork": stored}, len(events)), ForkOptions(tools=tools), "second")
            )
            assert second.messages == first.messages
            assert [c.result for c in second.calls.values()] == [c.result for c in first.calls.values()]
            assert second.submitted is not None
            assert second.submitted.fork is not None
            assert second.submitted.fork.run == "fork"


def test_a_plan_says_of_every_call_what_becomes_of_it() -> None:
    fates = set[tuple[str, str]]()
    for name in ALL:
        if name == NEWER:
            continue
        for trace, run in runs_of(name):
            for at in revisions(trace, run):
                origin = origin_of(trace, run, at)
                for tools in POLICIES:
                    wish = ForkOptions(tools=tools)
                    plan = plan_of(origin, wish, forked(origin, wish))
                    fates |= {(tools, call.becomes) for call in (*plan.open, *plan.behind)}
                    made = {
                        e.tool_call_id
                        for each in origin.family.values()
                        for e in each.history
                        if e.type == "tool_call" and not e.agent_path
                    }
                    assert {call.tool_call_id for call in (*plan.open, *plan.behind)} <= made
    everywhere = {(tools, fate) for tools in POLICIES for fate in ("kept", "asked", "run", "answered")}
    assert fates == everywhere | {("replay", "recorded")}


def test_a_run_with_events_of_a_newer_writer_is_forked_before_them_only() -> None:
    for trace, run in runs_of(NEWER):
        events: list[Event] = [e for r in trace.commits if r.commit.run == run for e in r.commit.events]
        first = next(number for number, event in enumerate(events, 1) if isinstance(event, Unknown))
        forked(origin_of(trace, run, first - 1), ForkOptions())
        with pytest.raises(ConfigError, match="newer version"):
            forked(origin_of(trace, run, first), ForkOptions())


async def test_a_revision_that_the_run_does_not_have_is_refused_with_those_it_has() -> None:
    log = MemoryLog()
    await import_archive(archive("tools_and_progress"), log)
    trace, run = next(runs_of("tools_and_progress"))
    subject = trace.commits[0].subject
    for at in (0, -1, len(revisions(trace, run)) + 1):
        with pytest.raises(ConfigError, match=f"revisions 1 to {len(revisions(trace, run))}, not {at}"):
            await read_origin(log, subject, at)


def test_why_workers_left_a_run_to_others_is_not_shared() -> None:
    trace, run = next(runs_of("left"))
    origin = origin_of(trace, run, len(revisions(trace, run)))
    assert any(isinstance(event, LeftToOthers) for event in origin.run.history)
    for shared in forked(origin, ForkOptions()).values():
        assert not any(isinstance(event, LeftToOthers) for event in shared.turn.events)
