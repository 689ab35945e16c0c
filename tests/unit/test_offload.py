"""Large values leave their events for artifacts and come back unchanged."""

from typing import Any

import msgspec
import pytest
from foldlog.eventlog import (
    FIELD_BYTES_MAX,
    ApprovalRequested,
    ChildReturned,
    Custom,
    Event,
    LateOutcome,
    LogCorrupted,
    MemoryLog,
    MessageInjected,
    MessageQueued,
    Offloaded,
    OutputMade,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    Reasoning,
    SummaryMade,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    restore,
    spill,
)
from foldlog.eventlog.events import ENGINE, OBSERVABLE
from foldlog.eventlog.offload import (
    LARGE_FIELDS,
    OUTLINES,
    has_references,
    outline_of,
    put_aside,
    references,
)
from hypothesis import given, settings
from hypothesis import strategies as st

SMALL_TEXT = "x" * 100
# Encoded as JSON, a string has two quotes.
LARGEST_TEXT = "x" * (FIELD_BYTES_MAX - 2)
TOO_LARGE_TEXT = LARGEST_TEXT + "x"


def carriers(value: Any) -> list[Event]:
    return [
        ToolResult(tool_name="t", success=True, result=value, error="e", metadata={"result": value}),
        Custom(name="c", data=value),
        LateOutcome(kind="tool", outcome="done", result=value),
    ]


def values_of(events: Any) -> list[Any]:
    return [event.data if isinstance(event, Custom) else event.result for event in events]


class CountingArtifacts:
    def __init__(self) -> None:
        self.inner = MemoryLog().artifacts.of("run-1")
        self.calls: list[str] = []

    async def put(self, data: bytes, digest: str = "") -> str:
        self.calls.append("put")
        return await self.inner.put(data)

    async def get(self, digest: str) -> bytes:
        self.calls.append("get")
        return await self.inner.get(digest)


@pytest.mark.parametrize(
    "value",
    [None, 0, 1.5, True, SMALL_TEXT, LARGEST_TEXT, [], {}, {"a": [SMALL_TEXT] * 10}, {"size_bytes": 1}],
)
async def test_what_is_small_stays_in_the_very_same_events_and_touches_no_artifacts(value: Any) -> None:
    artifacts, events = CountingArtifacts(), carriers(value)
    assert await spill(events, artifacts) is events
    assert await restore(events, artifacts) is events
    assert artifacts.calls == []


@pytest.mark.parametrize(
    "value",
    [TOO_LARGE_TEXT, "ü" * (FIELD_BYTES_MAX // 2), "\0" * (FIELD_BYTES_MAX // 6 + 1), [SMALL_TEXT] * 400],
)
async def test_what_is_large_is_replaced_by_a_reference_and_comes_back(value: Any) -> None:
    artifacts, events = CountingArtifacts(), carriers(value)
    stored = await spill(events, artifacts)
    data = msgspec.json.encode(value)
    for reference in values_of(stored):
        assert reference == {"$artifact": await artifacts.put(data), "size_bytes": len(data)}
        assert await artifacts.get(reference["$artifact"]) == data
    assert await restore(stored, artifacts) == events


async def test_all_other_events_and_fields_are_left_as_they_are() -> None:
    artifacts = CountingArtifacts()
    text = Text(text=TOO_LARGE_TEXT)
    stored = await spill([text, *carriers(TOO_LARGE_TEXT), text], artifacts)
    assert stored[0] is text
    assert stored[-1] is text
    result = stored[1]
    assert isinstance(result, ToolResult)
    assert result.metadata == {"result": TOO_LARGE_TEXT}
    assert (result.tool_name, result.success, result.error) == ("t", True, "e")


@pytest.mark.parametrize(
    "value",
    [
        {"$artifact": "0" * 64, "size_bytes": 3},
        {"$artifact": None},
        {"$artifact": TOO_LARGE_TEXT},
        {"$value": 1},
        {"$value": {"$artifact": "x", "size_bytes": 1}},
        {"$value": 1, "$artifact": 2},
    ],
)
async def test_a_value_that_looks_like_a_reference_comes_back_as_it_was(value: Any) -> None:
    artifacts, events = CountingArtifacts(), carriers(value)
    stored = await spill(events, artifacts)
    assert values_of(stored) != [value] * 3
    assert await restore(stored, artifacts) == events


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$artifact", "$value", "size_bytes", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(JSON, st.sampled_from([0, FIELD_BYTES_MAX]))
async def test_whatever_is_spilled_is_restored(value: Any, padding: int) -> None:
    artifacts = CountingArtifacts()
    events = carriers([value, "x" * padding] if padding else value)
    assert await restore(await spill(events, artifacts), artifacts) == events


@pytest.mark.parametrize("damage", ["missing", "unreadable"])
async def test_a_lost_artifact_is_corruption_of_its_run_at_its_revision(damage: str) -> None:
    artifacts = CountingArtifacts()
    digest = "0" * 64 if damage == "missing" else await artifacts.put(b'"half')
    damaged = Custom(name="c", data={"$artifact": digest, "size_bytes": 5})
    with pytest.raises(LogCorrupted, match=f"{digest}.* is {damage}") as error:
        await restore([Text(text="t"), damaged], artifacts, run="r-1", rev=7)
    assert (error.value.run, error.value.revision) == ("r-1", 8)


def said(size: int) -> list[Event]:
    return [
        Reasoning(step=1, text="r" * size),
        Text(step=1, text="t" * size),
        Usage(step=1, usage=TokenUsage(), model="m"),
        ToolCall(
            step=1, tool_call_id="c", tool_name="f", arguments={"a": "x" * size}, injected_args={"why": "y"}
        ),
        ApprovalRequested(
            step=1, tool_call_id="c", approval_id="p", kind="tool", tool_name="f", arguments={"a": "x" * size}
        ),
        PlannerReplied(round=1, text="p" * size, calls=[], usage=TokenUsage(input_tokens=3), model="m"),
        PlanMade(plan="p" * size),
        SummaryMade(text="s" * size, usage=TokenUsage(), model="m"),
        ChildReturned(child_run="r", output="o" * size),
        OutputMade(output="o" * size),
        MessageInjected(content="i" * size),
        Prepared(tools=[ToolSpec(name="t", description="d" * size, parameters={})], model="m"),
        Text(step=1, text="t" * size, agent="inner", agent_path="outer/inner"),
    ]


@pytest.mark.parametrize("size", [10, 10_000])
async def test_as_many_events_as_must_go_are_put_aside_and_come_back_where_they_were(size: int) -> None:
    events, artifacts = said(size), MemoryLog().artifacts.of("run-1")
    kept = await put_aside(events, 20_000, artifacts)
    assert sum(len(msgspec.json.encode(event)) for event in kept) <= 20_000
    assert [isinstance(event, Offloaded) for event in kept].count(True) == (0 if size == 10 else 11)
    assert has_references(kept) == (size == 10_000)
    assert list(await restore(kept, artifacts)) == events
    outlines = [outline_of(event) for event in kept]
    assert [(e.type, e.step, e.tool_call_id, e.agent_path) for e in outlines] == [
        (e.type, e.step, e.tool_call_id, e.agent_path) for e in events
    ]
    assert outlines[5].usage.input_tokens == 3
    assert set(references(kept)) == {event.artifact for event in kept if isinstance(event, Offloaded)}


async def test_values_that_are_too_large_together_are_put_aside_one_by_one() -> None:
    artifacts = MemoryLog().artifacts.of("run-1")
    values: list[Any] = ["r" * 3000, {"$artifact": "f" * 3000, "size_bytes": 1}, ["l" * 3000], "small"]
    results = [ToolResult(tool_name="t", success=True, result=value) for value in values]
    late = [LateOutcome(kind="tool", outcome="success", result="o" * 3000)]
    planned = [PlannerToolReturned(tool_name="t", success=True, result="p" * 3000)]
    events: list[Any] = [*results, *late, *planned]
    spilled = await spill(events, artifacts)
    kept = await put_aside(spilled, 2000, artifacts)
    assert sum(len(msgspec.json.encode(event)) for event in kept) <= 2000
    assert [type(event) for event in kept] == [type(event) for event in events]
    assert kept[3] == events[3]
    assert list(await restore(kept, artifacts)) == events


async def test_what_was_read_of_an_event_that_lies_beside_the_log_is_where_it_stands() -> None:
    artifacts = MemoryLog().artifacts.of("run-1")
    (kept,) = await put_aside([Text(step=2, text="t" * 5000)], 100, artifacts)
    place = {
        "run_id": "r",
        "root_id": "r",
        "agent": "a",
        "agent_path": "a",
        "revision": 7,
        "cursor": "9:7",
        "at": 1.5,
    }
    (read,) = await restore([msgspec.structs.replace(kept, **place)], artifacts)
    assert read == Text(step=2, text="t" * 5000, **place)


async def test_what_has_to_stay_stays_however_large_it_is() -> None:
    artifacts = MemoryLog().artifacts.of("run-1")
    queued = [MessageQueued(content="q" * 5000)]
    assert list(await put_aside(queued, 100, artifacts)) == queued


async def test_an_event_beside_the_log_that_is_missing_or_damaged_names_its_place() -> None:
    artifacts = MemoryLog().artifacts.of("run-1")
    gone = Offloaded(outline={"type": "plan_made"}, artifact="0" * 64, size_bytes=1)
    damaged = Offloaded(outline={"type": "plan_made"}, artifact=await artifacts.put(b"[]"), size_bytes=2)
    for event, told in ((gone, "is missing"), (damaged, "is unreadable")):
        with pytest.raises(LogCorrupted, match=told) as failure:
            await restore([event], artifacts, run="r", rev=4)
        assert failure.value.revision == 4


# --- which events may be large ----------------------------------------------------------------------------------------

STAY_WHOLE = {
    "bounded": "status step usage file context budget error child_started child_finished claimed released "
    "restored left_to_others tools_refresh_failed tools_removed model_requested model_failed cut_begun tool_started "
    "tool_attempt_failed parked child_ready timer_fired pause_requested cancel_requested approval_revoked "
    "token_issued token_revoked access_granted access_withdrawn agent_saved agent_removed "
    "offloaded ralph_stop wait_started signal_dropped operation_skipped chosen marked diverged",
    "refused with an error to the sender": "submitted message_queued approval_resolved tools_refresh_requested "
    "mcp_progress evaluated ralph_iteration output_rejected key_recorded buried",
    "cut by its writer": "lane_updated breaker_updated budget_updated slots_updated policy_updated once_updated "
    "schedule_updated hook_advanced answer_kept plan_updated",
}
"""Events that are never stored elsewhere, by the reason."""


def test_of_every_event_it_is_declared_what_becomes_of_a_large_one() -> None:
    stored = sorted(kind.__name__ for kind in (*OBSERVABLE, *ENGINE))
    whole = {tag for tags in STAY_WHOLE.values() for tag in tags.split()}
    declared = [
        *LARGE_FIELDS,
        *OUTLINES,
        *(k for k in (*OBSERVABLE, *ENGINE) if k.__struct_config__.tag in whole),
    ]
    assert sorted(kind.__name__ for kind in declared) == stored


@pytest.mark.parametrize("kind", LARGE_FIELDS, ids=lambda kind: str(kind.__name__))
async def test_each_field_that_is_declared_leaves_its_event_and_comes_back(kind: type[Any]) -> None:
    artifacts = CountingArtifacts()
    required = {field.name: "x" for field in msgspec.structs.fields(kind) if field.required}
    event = kind(**{**required, LARGE_FIELDS[kind]: [SMALL_TEXT] * 400})
    (stored,) = await spill([event], artifacts)
    assert list(references([stored]))
    assert await restore([stored], artifacts) == [event]


@pytest.mark.parametrize("kind", OUTLINES, ids=lambda kind: str(kind.__name__))
def test_each_outline_leaves_out_fields_that_its_event_has(kind: type[Any]) -> None:
    assert OUTLINES[kind].keys() <= set(kind.__struct_fields__)
