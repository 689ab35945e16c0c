"""Events of an older vocabulary are read as the newest one (R17)."""

import msgspec
import pytest
from foldlog.eventlog import UPCASTERS, VERSION, Commit, Custom, Text, Unknown, Upcasters, decode, encode

OLDEST = VERSION - 2
JsonObject = dict[str, object]


def renamed(old: str, new: str):
    return lambda event: {(new if name == old else name): value for name, value in event.items()}


@pytest.fixture
def upcasters() -> Upcasters:
    """`text` was written with `body` two versions ago, and with `content` in the last one."""
    registry = Upcasters()
    registry.register("text", OLDEST, renamed("body", "content"))
    registry.register("text", VERSION - 1, renamed("content", "text"))
    return registry


def stored_in(version: int, *events: JsonObject) -> bytes:
    return encode(
        Commit(
            v=version,
            run="r",
            root="r",
            rev=1,
            append="a",
            prev="",
            epoch=0,
            at=1.0,
            path="p",
            events=tuple(Unknown(original_type=str(event["type"]), data=event) for event in events),
        )
    )


@pytest.mark.parametrize(
    ("version", "field"), [(OLDEST, "body"), (VERSION - 1, "content"), (VERSION, "text")]
)
def test_an_event_of_any_version_reads_as_the_newest(upcasters: Upcasters, version: int, field: str) -> None:
    commit = decode(stored_in(version, {"type": "text", field: "hello"}), upcasters)
    assert commit.events == (Text(text="hello"),)
    assert commit.v == version


def test_events_without_upcaster_are_left_as_they_are(upcasters: Upcasters) -> None:
    event = {"type": "custom", "name": "body", "data": {"body": 1}}
    assert decode(stored_in(OLDEST, event), upcasters).events == (Custom(name="body", data={"body": 1}),)


def test_an_event_of_a_newer_version_is_not_touched(upcasters: Upcasters) -> None:
    commit = decode(stored_in(VERSION + 1, {"type": "text", "text": "new"}, {"type": "newer"}), upcasters)
    assert commit.events == (Text(text="new"), Unknown(original_type="newer", data={"type": "newer"}))


def test_the_bytes_that_were_stored_do_not_change(upcasters: Upcasters) -> None:
    data = stored_in(OLDEST, {"type": "text", "body": "hello"})
    before = bytes(data)
    decode(data, upcasters)
    assert data == before


def test_an_old_event_that_lacks_its_upcaster_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError, match="not a commit"):
        decode(stored_in(OLDEST, {"type": "text", "body": "hello"}), Upcasters())


def test_each_step_of_an_event_has_one_upcaster(upcasters: Upcasters) -> None:
    with pytest.raises(ValueError, match=f"'text' already has an upcaster from version {OLDEST}"):
        upcasters.register("text", OLDEST, renamed("a", "b"))


def test_an_upcaster_may_turn_an_event_into_another_kind() -> None:
    registry = Upcasters()
    registry.register("said", VERSION - 1, lambda event: {"type": "text", "text": event["words"]})
    assert decode(stored_in(VERSION - 1, {"type": "said", "words": "hi"}), registry).events == (
        Text(text="hi"),
    )


def test_upcasting_to_a_version_stops_there(upcasters: Upcasters) -> None:
    event = {"type": "text", "body": "hello"}
    assert upcasters.upcast(event, OLDEST, OLDEST) == event
    assert upcasters.upcast(event, OLDEST, VERSION - 1) == {"type": "text", "content": "hello"}


def test_the_current_version_needs_no_upcaster() -> None:
    commit = decode(stored_in(VERSION, {"type": "text", "text": "now"}), UPCASTERS)
    assert commit == msgspec.structs.replace(commit, v=VERSION, events=(Text(text="now"),))
