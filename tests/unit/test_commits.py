"""Commits read back as written, and whatever was altered on the way is noticed, never skipped."""

import json
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from foldlog.eventlog import (
    ORIGIN,
    Chain,
    Claimed,
    Commit,
    Custom,
    Head,
    LogCorrupted,
    Recorded,
    Status,
    Step,
    Stored,
    Subject,
    Text,
    TokenUsage,
    ToolResult,
    Unknown,
    as_read,
    as_stored,
    cursor_of,
    decode,
    digest_of_bytes,
    encode,
    head_of,
    parse_cursor,
    run_subject,
    verify,
)
from foldlog.eventlog.commits import verified
from hypothesis import given
from hypothesis import strategies as st

RUN = run_subject(0, "root-1", "run-1")
EVENTS = (
    (Status(status="starting"),),
    (Claimed(worker="w", epoch=1, lease_s=30.0), Step(step=1, status="started", started_at=1.25)),
    (Text(step=1, text='Grüße ✓ "quoted" \\ \n'), Custom(name="c", data={"b": [1, None, {"z": 0, "a": 1}]})),
    (
        ToolResult(
            step=1, tool_call_id="t", tool_name="n", success=True, result=[1.5], metadata={"attempt": 1}
        ),
        Step(step=1, status="completed", usage=TokenUsage(input_tokens=1, output_tokens=2, total_tokens=3)),
        Status(status="completed"),
    ),
)


def history(subject: Subject = RUN) -> list[Stored]:
    """The commits of a run, at positions 10, 20, ..."""
    head, stored = ORIGIN, []
    for number, events in enumerate(EVENTS, start=1):
        commit = Commit(
            run=subject.id,
            root=subject.root,
            rev=head.rev + 1,
            append=f"append-{number}",
            prev=head.digest,
            epoch=1,
            at=1000.5 + number,
            path="boss/searcher",
            events=events,
        )
        data = encode(commit)
        stored.append(Stored(subject, 10 * number, data))
        head = Head(10 * number, head.rev + len(events), digest_of_bytes(data))
    return stored


HISTORY = history()
FIRST_REVISIONS = (1, 2, 4, 6)


def read(commits: Sequence[Stored]) -> list[Recorded]:
    chain = Chain()
    return [chain.verify(stored) for stored in commits]


def altered(number: int, data: bytes) -> list[Stored]:
    return [*HISTORY[:number], msgspec.structs.replace(HISTORY[number], data=data), *HISTORY[number + 1 :]]


def test_a_commit_reads_back_as_it_was_written() -> None:
    for stored, events in zip(HISTORY, EVENTS, strict=True):
        commit = decode(stored.data)
        assert commit.events == events
        assert encode(commit) == stored.data


def test_a_commit_is_one_json_object_with_its_fields_in_order_and_its_sum_last() -> None:
    document = json.loads(HISTORY[1].data)
    fields = set(Commit.__struct_fields__) - {"sum"}
    assert list(document) == [*sorted(fields), "sum"]
    assert document["prev"] == digest_of_bytes(HISTORY[0].data)
    body = HISTORY[1].data.partition(b',"sum":')[0] + b"}"
    assert document["sum"] == digest_of_bytes(body)[:16]


def test_equal_commits_have_equal_bytes_whatever_the_order_of_their_keys() -> None:
    one, two = ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    commit = decode(HISTORY[0].data)
    assert (
        len({encode(msgspec.structs.replace(commit, events=(Custom(name="c", data=d),))) for d in (one, two)})
        == 1
    )


def test_a_chain_verifies_every_commit_of_a_run_and_stands_at_its_head() -> None:
    chain = Chain()
    recorded = [chain.verify(stored) for stored in HISTORY]
    assert [r.commit.rev for r in recorded] == list(FIRST_REVISIONS)
    assert [r.last_rev for r in recorded] == [1, 3, 5, 8]
    assert chain.head(RUN) == head_of(recorded[-1]) == Head(40, 8, digest_of_bytes(HISTORY[-1].data))
    assert chain.head(run_subject(0, "other", "other")) == ORIGIN


def test_a_chain_goes_on_from_a_known_head() -> None:
    known = head_of(read(HISTORY[:2])[-1])
    chain = Chain({RUN: known})
    assert [chain.verify(stored).last_rev for stored in HISTORY[2:]] == [5, 8]


def test_chains_of_several_runs_do_not_mix() -> None:
    other = run_subject(0, "root-1", "other")
    twin = history(other)
    chain = Chain()
    revisions = [chain.verify(s).last_rev for pair in zip(HISTORY, twin, strict=True) for s in pair]
    assert revisions == [1, 1, 3, 3, 5, 5, 8, 8]


def test_a_commit_of_another_run_is_corruption() -> None:
    stolen = msgspec.structs.replace(HISTORY[0], subject=run_subject(0, "root-1", "other"))
    with pytest.raises(LogCorrupted, match="belongs to run run-1") as error:
        read([stolen])
    assert (error.value.run, error.value.revision) == ("other", 1)


@pytest.mark.parametrize("lost", range(len(HISTORY) - 1))
def test_a_lost_commit_is_corruption_at_the_first_revision_that_is_missing(lost: int) -> None:
    with pytest.raises(LogCorrupted, match="commits are missing") as error:
        read(HISTORY[:lost] + HISTORY[lost + 1 :])
    assert (error.value.run, error.value.revision) == (RUN.id, FIRST_REVISIONS[lost])


def test_commits_in_the_wrong_order_are_corruption() -> None:
    with pytest.raises(LogCorrupted) as error:
        read([HISTORY[0], HISTORY[2], HISTORY[1]])
    assert error.value.revision == 2


def test_a_commit_that_was_rewritten_with_a_valid_sum_is_noticed_by_the_next() -> None:
    commit = decode(HISTORY[1].data)
    forged = encode(msgspec.structs.replace(commit, at=commit.at + 1))
    with pytest.raises(LogCorrupted, match="hash of the previous commit") as error:
        read(altered(1, forged))
    assert (error.value.run, error.value.revision) == (RUN.id, FIRST_REVISIONS[2])


@given(st.data())
def test_one_flipped_bit_anywhere_is_corruption_of_the_run_at_the_revision_of_its_commit(
    data: st.DataObject,
) -> None:
    number = data.draw(st.integers(0, len(HISTORY) - 1))
    original = HISTORY[number].data
    place = data.draw(st.integers(0, len(original) - 1))
    flipped = bytearray(original)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    chain = Chain()
    commits = altered(number, bytes(flipped))
    assert [chain.verify(stored).position for stored in commits[:number]] == [10, 20, 30, 40][:number]
    with pytest.raises(LogCorrupted, match=f"position {HISTORY[number].position} is unreadable") as error:
        chain.verify(commits[number])
    assert (error.value.run, error.value.revision) == (RUN.id, FIRST_REVISIONS[number])


@pytest.mark.parametrize("number", range(len(HISTORY)))
def test_every_single_byte_of_a_commit_is_covered(number: int) -> None:
    original = HISTORY[number].data
    head = head_of(read(HISTORY[:number])[-1]) if number else ORIGIN
    for place in range(len(original)):
        flipped = original[:place] + bytes([original[place] ^ 0xFF]) + original[place + 1 :]
        with pytest.raises(LogCorrupted):
            verify(Stored(RUN, 10 * (number + 1), flipped), head)


async def found(commits: Sequence[Stored]) -> tuple[list[Recorded], str | None]:
    """Return the commits that `verified` yields, and the error that it raises in the end."""

    async def stored() -> AsyncIterator[Stored]:
        for each in commits:
            yield each

    recorded: list[Recorded] = []
    try:
        async for each in verified(stored(), ORIGIN):
            recorded.append(each)  # noqa: PERF401  # what came before the error counts
    except LogCorrupted as error:
        return recorded, str(error)
    return recorded, None


def found_one_by_one(commits: Sequence[Stored]) -> tuple[list[Recorded], str | None]:
    """The same of `Chain`, which takes no commit whose own sum it did not check."""
    chain, recorded = Chain(), list[Recorded]()
    try:
        for each in commits:
            recorded.append(chain.verify(each))
    except LogCorrupted as error:
        return recorded, str(error)
    return recorded, None


@pytest.mark.parametrize("bits", [0x01, 0xFF])
@pytest.mark.parametrize("number", range(len(HISTORY)))
async def test_a_bulk_read_reports_each_changed_byte_like_reading_one_by_one(number: int, bits: int) -> None:
    original = HISTORY[number].data
    for place in range(len(original)):
        flipped = original[:place] + bytes([original[place] ^ bits]) + original[place + 1 :]
        commits = altered(number, flipped)
        recorded, error = await found(commits)
        assert (recorded, error) == found_one_by_one(commits)
        assert error is not None
        assert len(recorded) == number


FORGED = encode(msgspec.structs.replace(decode(HISTORY[1].data), at=7.0))


@pytest.mark.parametrize(
    "commits",
    [
        HISTORY,
        HISTORY[:1],
        [],
        HISTORY[1:],
        [HISTORY[0], *HISTORY[2:]],
        [HISTORY[0], HISTORY[2], HISTORY[1]],
        [HISTORY[0], HISTORY[0]],
        altered(2, history(run_subject(0, "root-1", "other"))[2].data),
        altered(1, FORGED),
    ],
    ids=["whole", "one", "none", "no first", "no second", "out of order", "twice", "of another", "forged"],
)
async def test_a_bulk_read_gets_the_same_commits_and_error_as_reading_one_by_one(
    commits: list[Stored],
) -> None:
    assert await found(commits) == found_one_by_one(commits)


@given(st.integers(0, len(HISTORY) - 1), st.data())
def test_a_commit_that_was_cut_short_is_corruption(number: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(HISTORY[number].data) - 1))
    with pytest.raises(LogCorrupted):
        read(altered(number, HISTORY[number].data[:length]))


@pytest.mark.parametrize(
    "data", [b"", b"null", b"{}", b"[1]", b"\xff\xfe", b'{"v":1,"sum":"0123456789abcdef"}']
)
def test_what_is_not_a_commit_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="checksum"):
        decode(data)


@pytest.mark.parametrize("event", [{"type": "text"}, {"type": "status", "status": 1}, {"no": "type"}])
def test_a_commit_with_a_malformed_event_is_a_value_error(event: dict[str, object]) -> None:
    commit = decode(HISTORY[0].data)
    malformed = encode(msgspec.structs.replace(commit, events=(Unknown(original_type="?", data=event),)))
    with pytest.raises(ValueError, match="not a commit"):
        decode(malformed)


def test_an_event_of_a_newer_writer_is_kept_as_it_is_among_known_ones() -> None:
    newer = {"type": "teleported", "to": {"planet": "mars", "at": [1, 2]}, "step": 3}
    commit = msgspec.structs.replace(
        decode(HISTORY[1].data),
        v=99,
        events=(Text(text="a"), Unknown(original_type="teleported", data=newer), Text(text="b")),
    )
    stored = encode(commit)
    assert json.loads(stored)["events"][1] == newer
    again = decode(stored)
    assert again.v == 99
    assert again.events == commit.events
    assert encode(again) == stored


def test_unknown_fields_of_known_events_are_ignored() -> None:
    newer = Unknown(original_type="text", data={"type": "text", "text": "a", "tone": "kind"})
    commit = msgspec.structs.replace(decode(HISTORY[0].data), events=(newer,))
    assert decode(encode(commit)).events == (Text(text="a"),)


def test_an_event_as_read_says_where_it_stands() -> None:
    recorded = read(HISTORY)[2]
    first, second = as_read(recorded)
    assert isinstance(first, Text)
    assert (first.run_id, first.root_id, first.agent, first.agent_path) == (
        "run-1",
        "root-1",
        "searcher",
        "boss/searcher",
    )
    assert (first.revision, second.revision) == (4, 5)
    assert (first.cursor, second.cursor) == (cursor_of(30, 0), cursor_of(30, 1))
    assert first.at == second.at == 1003.5
    assert first.step == 1


def test_a_forwarded_event_keeps_its_own_agent() -> None:
    forwarded = Text(text="x", agent="inner", agent_path="boss/searcher/inner")
    commit = msgspec.structs.replace(decode(HISTORY[0].data), events=(forwarded,))
    (event,) = as_read(verify(Stored(RUN, 10, encode(commit)), ORIGIN))
    assert (event.agent, event.agent_path) == ("inner", "boss/searcher/inner")


def test_what_reading_adds_is_not_stored() -> None:
    for recorded in read(HISTORY):
        stored = as_stored(as_read(recorded))
        for event in stored:
            assert (event.run_id, event.root_id, event.revision, event.cursor, event.at) == (
                "",
                "",
                None,
                None,
                0.0,
            )


@given(st.integers(0, 10**13), st.integers(0, 10**4), st.integers(0, 10**13), st.integers(0, 10**4))
def test_cursors_sort_as_text_in_log_order_and_read_back(p: int, i: int, q: int, j: int) -> None:
    assert (cursor_of(p, i) < cursor_of(q, j)) == ((p, i) < (q, j))
    assert parse_cursor(cursor_of(p, i)) == (p, i)


def test_no_cursor_stands_before_everything() -> None:
    assert parse_cursor(None) == (0, 0)


@pytest.mark.parametrize("cursor", ["", "12", "a.b", "1.2.3"])
def test_what_is_not_a_cursor_is_a_value_error(cursor: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cursor(cursor)
