"""The canonical form forgets the order of independent events, and nothing that the contract compares (R12, R23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.commits import digest_of_bytes, encode
from foldlog.eventlog.errors import ConfigError, LogCorrupted, RunNotFound
from foldlog.eventlog.events import (
    OBSERVABLE,
    ApprovalRequested,
    ApprovalResolved,
    ChildFinished,
    ChildStarted,
    Custom,
    Event,
    McpProgress,
    ModelRequested,
    Status,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
)
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import At, CommitWrite, Stored
from foldlog.replay import (
    Trace,
    canonical,
    check_trace,
    compare,
    differing_fields,
    from_jsonl,
    is_prefix,
    load_trace,
    to_jsonl,
    trace_of,
)
from hypothesis import given, reject
from hypothesis import strategies as st

from .traces import (
    LEGAL,
    Family,
    asked,
    cancel,
    cancelled_trace,
    canonical_trace,
    child_trace,
    final_step,
    find,
    parallel_trace,
    progress,
    recovery_trace,
    renumbered,
    step_completed,
    step_started,
    tool_call,
    tool_result,
    usage,
)

# --- generated traces: a plan, and its linearisations -----------------------------------------------------------------


class PlannedCall(msgspec.Struct, frozen=True):
    """A call: how many progress notes, whether it is approved first, and the run that it starts, if any."""

    notes: int
    approved: bool
    child: PlannedRun | None


class PlannedRun(msgspec.Struct, frozen=True):
    """A run: for each step its calls, and last a step without one."""

    steps: tuple[tuple[PlannedCall, ...], ...]


def planned_calls(runs: st.SearchStrategy[PlannedRun] | None) -> st.SearchStrategy[PlannedCall]:
    children = st.none() if runs is None else st.none() | runs
    return st.builds(PlannedCall, st.integers(0, 2), st.booleans(), children)


def planned_runs(depth: int) -> st.SearchStrategy[PlannedRun]:
    calls = planned_calls(planned_runs(depth - 1) if depth else None)
    steps = st.lists(st.lists(calls, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple)
    return st.builds(PlannedRun, steps)


plans = planned_runs(depth=1)
randoms = st.randoms(use_true_random=False)

Emitted = tuple[str, str, Event]
"""Run, path, event."""


def merged(chains: list[list[Emitted]], random: Random) -> Iterator[Emitted]:
    """One interleaving of chains."""
    chains = [chain for chain in chains if chain]
    while chains:
        chain = random.choice(chains)
        yield chain.pop(0)
        chains = [chain for chain in chains if chain]


class Linearisation:
    """Writes a plan down in one of the orders that it allows; ids carry the salt."""

    def __init__(self, salt: str, random: Random) -> None:
        self.salt, self.random = salt, random

    def run(self, plan: PlannedRun, run: str, path: str) -> list[Emitted]:
        out: list[Emitted] = [(run, path, Status(status="starting"))]
        for number, calls in enumerate(plan.steps, 1):
            out += self.step(number, calls, run, path)
        last = len(plan.steps) + 1
        return out + [(run, path, event) for event in (*step_started(last), *final_step(last))]

    def step(self, number: int, calls: tuple[PlannedCall, ...], run: str, path: str) -> list[Emitted]:
        ids = [f"{run}-{number}-{index}" for index in range(len(calls))]
        events: list[Event] = [*step_started(number), Text(step=number, text=f"step {number}"), usage(number)]
        events += [tool_call(number, call, n=index) for index, call in enumerate(ids)]
        chains = [self.call(number, call, plan, run, path) for call, plan in zip(ids, calls, strict=True)]
        return [
            *((run, path, event) for event in events),
            *merged(chains, self.random),
            (run, path, step_completed(number)),
        ]

    def call(self, number: int, call: str, plan: PlannedCall, run: str, path: str) -> list[Emitted]:
        events: list[Event] = []
        if plan.approved:
            approval = f"ap-{call}"
            events += [asked(number, call, approval)]
            events += [
                ApprovalResolved(step=number, tool_call_id=call, approval_id=approval, decision="approved")
            ]
        events += [progress(number, call, note) for note in range(plan.notes)]
        out = [(run, path, event) for event in events]
        if plan.child is not None:
            child, refs = (
                f"child-{call}",
                {"step": number, "tool_call_id": call, "child_run": f"child-{call}"},
            )
            out.append((run, path, ChildStarted(name="helper", kind="agent", **refs)))
            out += self.run(plan.child, child, f"{path}/helper")
            out.append((run, path, ChildFinished(status="completed", **refs)))
        out.append((run, path, tool_result(number, call, self.random.random())))
        return out


def linearised(plan: PlannedRun, random: Random, salt: str = "a") -> list[Event]:
    root = f"root-{salt}"
    emitted = Linearisation(salt, random).run(plan, root, "agent")
    return renumbered(
        msgspec.structs.replace(event, run_id=run, root_id=root, agent_path=path)
        for run, path, event in emitted
    )


# --- the relation, as contract.md words it ----------------------------------------------------------------------------

CALL_FAMILIES = (
    ApprovalRequested,
    ApprovalResolved,
    McpProgress,
    Custom,
    ToolResult,
    ChildStarted,
    ChildFinished,
)


def dependent(a: Event, b: Event) -> bool:
    if a.run_id != b.run_id:
        return any(
            isinstance(x, ChildStarted | ChildFinished) and x.child_run == y.run_id
            for x, y in ((a, b), (b, a))
        )
    both_of_calls = isinstance(a, CALL_FAMILIES) and isinstance(b, CALL_FAMILIES)
    return not (both_of_calls and a.step == b.step and a.tool_call_id != b.tool_call_id)


def levels_by_definition(events: list[Event]) -> list[int]:
    """The length of the longest chain of dependent events before each; quadratic."""
    levels: list[int] = []
    for index, event in enumerate(events):
        before = [levels[i] for i in range(index) if dependent(events[i], event)]
        levels.append(1 + max(before, default=-1))
    return levels


def observable(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, OBSERVABLE)]


@given(plans, randoms, randoms)
def test_two_linearisations_of_one_partial_order_have_equal_forms(
    plan: PlannedRun, one: Random, other: Random
):
    left, right = canonical(linearised(plan, one, "a")), canonical(linearised(plan, other, "b"))
    assert [[b.key for b in level] for level in left.levels] == [
        [b.key for b in level] for level in right.levels
    ]
    assert (left.level_digests, left.digest) == (right.level_digests, right.digest)


@given(plans, randoms)
def test_each_event_stands_on_the_level_of_its_longest_chain(plan: PlannedRun, random: Random):
    events = observable(linearised(plan, random))
    expected = sorted(
        zip(levels_by_definition(events), ((e.run_id, e.revision) for e in events), strict=True)
    )
    form = canonical(events)
    found = [(n, (b.run_id, b.revisions[0])) for n, level in enumerate(form.levels) for b in level]
    assert sorted(found) == expected


def swapped(events: list[Event], index: int) -> list[Event]:
    return renumbered([*events[:index], events[index + 1], events[index], *events[index + 2 :]])


def bare(event: Event) -> Event:
    return msgspec.structs.replace(event, revision=0, at=0.0, cursor=None)


@given(plans, randoms, st.integers(0))
def test_exchanging_neighbours_changes_the_form_exactly_if_they_are_dependent(
    plan: PlannedRun, random: Random, where: int
):
    events = observable(linearised(plan, random))
    index = where % (len(events) - 1)
    a, b = events[index], events[index + 1]
    same = canonical(swapped(events, index)).digest == canonical(events).digest
    assert same == (not dependent(a, b) or bare(a) == bare(b))


@given(plans, randoms, randoms, st.integers(1))
def test_a_trace_cut_anywhere_and_cancelled_is_a_prefix_of_every_linearisation(
    plan: PlannedRun, one: Random, other: Random, where: int
):
    events = linearised(plan, one, "a")
    cut = events[: 1 + where % len(events)]
    ended = {e.run_id for e in cut if isinstance(e, Status) and e.status == "completed"}
    last = {event.run_id: event for event in cut if event.run_id not in ended}
    cancels = [
        msgspec.structs.replace(e, step=None, tool_call_id=None) for e in map(cancel_of, last.values())
    ]
    comparison = is_prefix(canonical([*cut, *cancels]), canonical(linearised(plan, other, "b")))
    assert comparison.first_difference is None
    assert comparison.boundaries[0] == comparison.boundaries[1] == len(observable(cut)) + len(last)


def cancel_of(event: Event) -> Event:
    place = {name: getattr(event, name) for name in ("run_id", "root_id", "agent_path")}
    return Status(status="cancelled", revision=(event.revision or 0) + 1, **place)


@given(plans, randoms, st.integers(0))
def test_a_trace_that_lacks_what_a_later_event_needs_is_not_a_prefix(
    plan: PlannedRun, random: Random, where: int
):
    events = observable(linearised(plan, random))
    index = where % (len(events) - 1)
    if isinstance(events[index], ChildStarted | ToolCall | ApprovalRequested):
        reject()  # their absence renames what follows
    holed = renumbered(events[:index] + events[index + 1 :])
    assert not is_prefix(canonical(holed), canonical(events)).equal


# --- traces by hand ---------------------------------------------------------------------------------------------------


def trace(family: Family) -> Trace:
    return trace_of(family.stored)


def test_the_canonical_trace_has_the_boundaries_of_the_contract():
    assert [boundary.label for boundary in canonical(trace(canonical_trace())).boundaries] == [
        "status(starting)",
        "step(1, started)",
        "usage(1)",
        "tool_call(mcp__srv__search)",
        "mcp_progress(1/2)",
        "mcp_progress(2/2)",
        "tool_result(success)",
        "step(1, completed)",
        "step(2, started)",
        'text("Final answer")',
        "usage(2)",
        "step(2, completed)",
        "status(completed)",
    ]


EQUAL: list[tuple[Callable[[], Family], Callable[[], Family]]] = [
    (canonical_trace, lambda: canonical_trace("b", takeover=True)),
    (parallel_trace, lambda: parallel_trace("b", slow_first=True)),
    (child_trace, lambda: child_trace("b", swapped=True)),
    (lambda: recovery_trace(crash=False), lambda: recovery_trace("b")),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=["takeover", "parallel", "children", "recovery"])
def test_traces_of_equal_runs_are_equal(left: Callable[[], Family], right: Callable[[], Family]):
    a, b = trace(left()), trace(right())
    comparison = compare(a, b)
    assert comparison.equal
    assert comparison.first_difference is None
    assert comparison.boundaries == (canonical(a).size, canonical(b).size)


def test_pauses_for_approvals_and_recovery_are_left_out_and_other_pauses_are_not():
    labels = {
        b.label
        for family in (recovery_trace(), parallel_trace())
        for b in canonical(trace(family)).boundaries
    }
    assert not {
        label for label in labels if "paused" in label or "resumed" in label or "unverifiable" in label
    }
    kept = [b.label for b in canonical(trace(LEGAL["message and pause"]())).boundaries]
    assert kept.count("status(paused, manual)") == kept.count("status(resumed, manual)") == 1


def test_pieces_of_a_text_count_as_one_text():
    whole, pieces = canonical_trace().events, canonical_trace("b").events
    at = find(pieces, Text)
    halves = [msgspec.structs.replace(pieces[at], text=text) for text in ("Final ", "answer")]
    joined = canonical(renumbered([*pieces[:at], *halves, *pieces[at + 1 :]]))
    assert joined.digest == canonical(whole).digest
    text = next(b for b in joined.boundaries if b.type == "text")
    assert len(text.revisions) == 2


def first_difference(left: list[Event], right: list[Event]) -> Any:
    comparison = compare(canonical(left), canonical(right))
    assert not comparison.equal
    assert comparison.boundaries[0] < comparison.boundaries[1]
    return comparison.first_difference


def changed(cls: type[Event], number: int = 0, **fields: Any) -> list[Event]:
    events = canonical_trace("b").events
    index = find(events, cls, number)
    return [msgspec.structs.replace(e, **fields) if i == index else e for i, e in enumerate(events)]


def test_another_payload_is_found_with_its_fields_and_both_revisions():
    left, right = canonical_trace().events, changed(ToolResult, result="nothing")
    difference = first_difference(left, right)
    assert (difference.level, difference.rule) == (6, "R4")
    assert "differs in result" in difference.why
    assert differing_fields(difference.left[0], difference.right[0]) == ("result",)
    revision = left[find(left, ToolResult)].revision
    assert difference.revisions == ((("root-a", revision),), (("root-b", revision),))


def test_another_request_to_the_model_is_found_by_its_digest():
    difference = first_difference(canonical_trace().events, changed(ModelRequested, 1, digest="other"))
    assert (difference.level, difference.rule) == (8, "R12")
    assert "step 2" in difference.why


def test_only_the_request_whose_reply_was_stored_counts():
    events = canonical_trace("b").events
    at = find(events, ModelRequested)
    abandoned = msgspec.structs.replace(events[at], digest="abandoned")
    assert compare(
        canonical(canonical_trace().events), canonical([*events[:at], abandoned, *events[at:]])
    ).equal


def test_a_missing_event_is_found_on_the_level_where_it_is_missed():
    events = canonical_trace("b").events
    at = find(events, McpProgress, 1)
    difference = first_difference(canonical_trace().events, renumbered(events[:at] + events[at + 1 :]))
    assert (difference.level, difference.left[0].label) == (5, "mcp_progress(2/2)")


def test_a_trace_that_goes_on_longer_differs_where_the_other_ends():
    events = canonical_trace("b").events
    difference = first_difference(canonical_trace().events, events[:-1])
    assert (difference.level, difference.right) == (12, ())
    assert "only in the left trace" in difference.why


def test_events_in_another_order_are_found_with_the_rule_that_orders_them():
    events = canonical_trace("b").events
    at = find(events, Text)
    difference = first_difference(canonical_trace().events, swapped(events, at))
    assert (difference.level, difference.rule) == (9, "R3")


def test_results_of_calls_that_are_exchanged_are_found():
    events = parallel_trace("b").events
    b, c = find(events, ToolResult, result="b"), find(events, ToolResult, result="c")
    exchanged = [
        msgspec.structs.replace(e, result={b: "c", c: "b"}[i]) if i in {b, c} else e
        for i, e in enumerate(events)
    ]
    difference = first_difference(parallel_trace().events, exchanged)
    assert difference.left[0].call in {"1.1", "1.2"}


def test_shapes_are_equal_where_only_the_content_differs():
    left, right = canonical(canonical_trace().events), canonical(changed(ToolResult, result="nothing"))
    assert not compare(left, right).equal
    assert compare(left, right, by="shape").equal


def counted(cached: int, output: int, cost: str) -> list[Event]:
    events = canonical_trace().events
    tokens = TokenUsage(
        input_tokens=9,
        output_tokens=output,
        total_tokens=9 + output,
        cached_input_tokens=cached,
        cache_writes=9 - cached,
        cache_writes_1h=9 - cached,
    )
    return [
        msgspec.structs.replace(e, usage=tokens, cost_usd=cost) if isinstance(e, Usage) else e for e in events
    ]


@pytest.mark.parametrize(
    ("other", "ignore", "equal"),
    [
        (counted(5, 2, "0.1"), (), False),
        (counted(5, 2, "0.1"), ("cached-tokens",), True),
        (counted(5, 3, "0.1"), ("cached-tokens",), False),
        (counted(5, 3, "0.1"), ("usage",), True),
    ],
)
def test_what_a_provider_counts_can_be_ignored(
    other: list[Event], ignore: tuple[Any, ...], equal: bool
) -> None:
    left, right = canonical(counted(0, 2, "0.2"), ignore=ignore), canonical(other, ignore=ignore)
    assert compare(left, right).equal == equal
    assert left.size == canonical(other).size


def test_what_cannot_be_ignored_is_refused_with_what_can() -> None:
    with pytest.raises(ConfigError, match="'time' cannot be ignored; choose from cached-tokens, usage"):
        canonical([], ignore=["time"])  # type: ignore[list-item] # not one of them


def test_a_forwarded_event_belongs_to_its_call_and_is_told_by_its_own_path():
    def with_inner(text: str) -> list[Event]:
        events = canonical_trace().events
        at = find(events, McpProgress)
        call = events[at].tool_call_id
        inner = Text(text=text, step=1, agent_path="agent/inner", run_id=events[at].run_id, tool_call_id=call)
        return renumbered([*events[:at], inner, *events[at:]])

    form = canonical(with_inner("inner"))
    boundary = next(b for b in form.boundaries if b.agent_path == "agent/inner")
    assert (boundary.run, boundary.call, boundary.step) == ("agent", "1.0", 1)
    difference = first_difference(with_inner("inner"), with_inner("other"))
    assert difference.rule == "R7"


def test_the_same_child_of_two_calls_is_told_by_its_call():
    runs = {b.run for b in canonical(trace(child_trace())).boundaries}
    assert runs == {"agent", "agent/helper@1.0#0", "agent/helper@1.1#0"}


@pytest.mark.parametrize("commits", [1, 2, 3, 4, 5])
def test_a_cancelled_trace_is_a_prefix(commits: int):
    cancelled, whole = trace(cancelled_trace("b", commits=commits)), trace(parallel_trace())
    assert is_prefix(cancelled, whole).equal
    assert not compare(cancelled, whole).equal


def test_a_cancelled_family_is_a_prefix():
    family = child_trace("b")
    del family.stored[7:]
    cancelled = trace(cancel(family))
    assert check_trace(cancelled) == []
    assert is_prefix(cancelled, trace(child_trace())).equal


def test_a_cancelled_trace_with_another_event_is_not_a_prefix():
    events = cancelled_trace("b").events
    index = find(events, McpProgress)
    other = [msgspec.structs.replace(e, progress=7) if i == index else e for i, e in enumerate(events)]
    comparison = is_prefix(canonical(other), canonical(parallel_trace().events))
    assert comparison.first_difference is not None
    assert comparison.first_difference.left[0].label == "mcp_progress(7/2)"


def test_a_cancelled_trace_with_another_request_is_not_a_prefix():
    events = cancelled_trace("b").events
    index = find(events, ModelRequested)
    other = [msgspec.structs.replace(e, digest="x") if i == index else e for i, e in enumerate(events)]
    comparison = is_prefix(canonical(other), canonical(parallel_trace().events))
    assert comparison.first_difference is not None
    assert comparison.first_difference.rule == "R12"


def test_a_missing_or_doubled_cancel_is_not_a_prefix():
    events, whole = cancelled_trace("b").events, canonical(parallel_trace().events)
    for other in (events[:-1], [*events, msgspec.structs.replace(events[-1], revision=99)]):
        comparison = is_prefix(canonical(other), whole)
        assert comparison.first_difference is not None
        assert comparison.first_difference.rule == "R6"


def test_a_long_trace_is_handled():
    """Fifty thousand events in one form: quadratic code would take longer than the time-out of a test."""
    family, call = Family(), "call"
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), tool_call(1, call), epoch=1)
    for start in range(0, 50_000, 1000):
        family.commit(*[progress(1, call, note) for note in range(start, start + 1000)], epoch=1)
    family.commit(tool_result(1, call), step_completed(1), *step_started(2), epoch=1)
    family.commit(*final_step(2), epoch=1)
    form = canonical(trace(family))
    assert compare(form, form).boundaries == (50_011, 50_011)


# --- traces as values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_a_trace_survives_export_and_import_byte_for_byte(build: Callable[[], Family]):
    original = trace(build())
    assert from_jsonl(to_jsonl(original)) == original


def test_an_event_of_a_newer_writer_survives_and_is_not_compared():
    family = canonical_trace()
    newer = Unknown(original_type="telepathy", data={"type": "telepathy", "thought": "é\n"})
    family.commit(newer)  # type: ignore[arg-type]
    loaded = trace(family)
    again = from_jsonl(to_jsonl(loaded))
    assert again.stored == loaded.stored
    assert b"telepathy" in again.stored[-1].data
    assert isinstance(again.events[-1], Unknown)
    assert canonical(again).size == 13


def test_an_altered_export_is_found_at_its_revision():
    data = to_jsonl(trace(canonical_trace()))
    with pytest.raises(LogCorrupted) as raised:
        from_jsonl(data.replace(b"Final answer", b"Final ansver"))
    assert (raised.value.run, raised.value.revision) == ("root-a", 14)


def test_an_export_without_a_commit_is_found():
    lines = to_jsonl(trace(canonical_trace())).splitlines(keepends=True)
    with pytest.raises(LogCorrupted, match="commits are missing"):
        from_jsonl(b"".join(lines[:2] + lines[3:]))


def test_text_that_is_not_a_trace_is_refused_with_its_line():
    with pytest.raises(ConfigError, match="line 2"):
        from_jsonl(to_jsonl(trace(canonical_trace())).splitlines(keepends=True)[0] + b'{"hello": 1}\n')


async def stored_in(log: MemoryLog, commits: list[Stored]) -> None:
    heads: dict[object, int] = {}
    for stored in commits:
        subject = msgspec.structs.replace(stored.subject, shard=log.events.shards - 1)
        (heads[subject],) = await log.events.append(
            CommitWrite(subject, At(heads.get(subject, 0)), stored.data)
        )


async def test_a_family_is_loaded_by_the_id_of_any_of_its_runs():
    log, family = MemoryLog(shards=4), child_trace()
    await stored_in(
        log, [Stored(msgspec.structs.replace(s.subject, shard=3), 0, s.data) for s in family.stored]
    )
    await stored_in(
        log,
        [Stored(msgspec.structs.replace(s.subject, shard=3), 0, s.data) for s in canonical_trace("b").stored],
    )
    loaded = await load_trace(log, "child-a-1")
    assert loaded.root == "root-a"
    assert [stored.data for stored in loaded.stored] == [stored.data for stored in family.stored]
    assert (await load_trace(log, loaded.stored[0].subject)) == loaded
    assert len(loaded.observable) < len(loaded.events)


async def test_a_run_that_no_shard_has_is_not_found():
    with pytest.raises(RunNotFound, match="nobody"):
        await load_trace(MemoryLog(shards=2), "nobody")


def test_the_digest_of_a_commit_is_that_of_its_bytes():
    loaded = trace(canonical_trace())
    for stored, recorded in zip(loaded.stored, loaded.commits, strict=True):
        assert recorded.digest == digest_of_bytes(stored.data)
        assert encode(recorded.commit) == stored.data


def test_each_step_has_the_digest_of_its_request():
    assert canonical(trace(canonical_trace())).requests == {
        ("agent", 1): "digest-1",
        ("agent", 2): "digest-2",
    }
