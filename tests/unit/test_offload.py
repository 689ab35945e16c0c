"""Large values leave their events for artifacts and come back unchanged."""

from typing import Any

import msgspec
import pytest
from foldlog.eventlog import (
    FIELD_BYTES_MAX,
    Custom,
    Event,
    LateOutcome,
    LogCorrupted,
    MemoryLog,
    Text,
    ToolResult,
    restore,
    spill,
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
        self.inner = MemoryLog().artifacts
        self.calls: list[str] = []

    async def put(self, data: bytes) -> str:
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
