"""Files that somebody made, with sums that are right: each is refused by line and field, or can be used."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.cli.traces import read_file
from foldlog.eventlog.errors import ArchiveCorrupted, ArchiveInvalid, FoldlogError
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import Archive, Watch, canonical, diff, import_archive, read_archive, replay
from foldlog.replay.canonical.observed import expectation
from foldlog.runtime.ports.schema_problems import value_problem
from hypothesis import given, reject
from hypothesis import strategies as st

V1 = Path(__file__).parents[1] / "histories" / "v1"
FILES = sorted(V1.glob("*.jsonl"))
DEEP: Any = "@deep@"
VALUES: list[Any] = [
    None,
    "x",
    "",
    -1,
    3,
    10**30,
    1.5,
    [],
    {},
    [1],
    ["a"],
    {"a": 1},
    True,
    "\0",
    "system",
    DEEP,
]

Lines = list[tuple[dict[str, Any], Any]]
"""Each line, and the commit in it (null for an artifact)."""


def lines_of(path: Path) -> Lines:
    parsed = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [(line, json.loads(line["data"]) if "data" in line else None) for line in parsed]


def sealed(lines: Lines) -> bytes:
    """The lines with sums and hashes as they have to be."""
    heads: dict[str, str] = {}
    written = []
    for given_line, commit in lines:
        line = dict(given_line)
        if isinstance(commit, dict):
            subject = str(line.get("subject"))
            body = {key: value for key, value in commit.items() if key != "sum"} | {
                "prev": heads.get(subject, "")
            }
            text = json.dumps(body, separators=(",", ":")).replace('"@deep@"', "[" * 3000 + "]" * 3000)
            data = f'{text[:-1]},"sum":"{sha256(text.encode()).hexdigest()[:16]}"}}'
            heads[subject] = sha256(data.encode()).hexdigest()
            line["data"] = data
        written.append(json.dumps(line).replace('"@deep@"', "[" * 3000 + "]" * 3000))
    return "\n".join(written).encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in items for place in ((*path, key), *places(each, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


async def use(data: bytes) -> None:
    """All that the commands do with a file."""
    archive = read_archive(data)
    await import_archive(archive, MemoryLog())
    watch = Watch()
    for stored in archive.stored:
        watch.feed(stored)
    expectation(archive)
    for trace in archive.traces.values():
        replay(trace)
        form = canonical(trace)
        assert diff(form, form).equal


@given(st.data())
async def test_whatever_stands_in_a_file_is_refused_with_its_line_or_can_be_used(data: st.DataObject) -> None:
    lines = copy.deepcopy(lines_of(data.draw(st.sampled_from(FILES))))
    numbers = [number for number, (_, commit) in enumerate(lines) if commit is not None]
    first = min(numbers)
    line, commit = lines[data.draw(st.sampled_from(numbers) | st.just(first))]
    where = line if data.draw(st.integers(0, 9)) == 0 else commit
    chosen = places(where)
    if not chosen:
        reject()
    put(where, data.draw(st.sampled_from(chosen)), data.draw(st.sampled_from(VALUES)))
    with contextlib.suppress(FoldlogError):  # anything else fails the test
        await use(sealed(lines))


def event(lines: Lines, kind: str) -> dict[str, Any]:
    return next(e for _, commit in lines if commit for e in commit["events"] if e["type"] == kind)


def edited(change: Callable[[Lines], object], name: str = "bad_calls") -> bytes:
    lines = lines_of(V1 / f"{name}.jsonl")
    change(lines)
    return sealed(lines)


REFUSED: list[tuple[str, Callable[[Lines], object], str, str]] = [
    ("a negative shard", lambda lines: lines[0][0].update(shard=-1), "shard", "-1 is not in 0 to 255"),
    (
        "no position",
        lambda lines: lines[0][0].update(position=-7),
        "position",
        "-7 is not a position in a log",
    ),
    ("a deep line", lambda lines: lines[0][0].update(more=DEEP), "", "nested too deeply"),
    ("a deep input", lambda lines: event(lines, "submitted").update(metadata={"a": DEEP}), "", "deep"),
    (
        "an unknown kind",
        lambda lines: event(lines, "submitted").update(kind="robot"),
        "kind",
        "'robot' is not one of",
    ),
    (
        "a wrong type in a configuration",
        lambda lines: event(lines, "submitted")["config"].update(max_steps="many"),
        "events[0] (submitted).config.max_steps",
        "max_steps",
    ),
    (
        "an odd role",
        lambda lines: event(lines, "submitted").update(messages=[{"role": "judge", "content": "x"}]),
        "events[0] (submitted).messages",
        "role",
    ),
    ("no type", lambda lines: lines[1][1]["events"][0].update(type={}), "data", "the type of an event"),
    (
        "metadata of a wrong type",
        lambda lines: event(lines, "tool_result")["metadata"].update(attempt={}),
        ".metadata",
        "$.attempt",
    ),
    ("no subject", lambda lines: lines[0][0].update(subject="x"), "subject", "not a subject of the log: 'x'"),
    (
        "a tool that the run names and was not prepared with",
        lambda lines: event(lines, "prepared").update(tools=[]),
        "(prepared).tools",
        "but the run names it",
    ),
]


@pytest.mark.parametrize(
    ("change", "field", "reason"), [each[1:] for each in REFUSED], ids=[e[0] for e in REFUSED]
)
def test_what_foldlog_cannot_have_written_is_refused_by_line_and_field(
    change: Callable[[Lines], object], field: str, reason: str
) -> None:
    with pytest.raises(ArchiveInvalid) as caught:
        read_archive(edited(change))
    assert caught.value.line > 0
    assert field in caught.value.field
    assert reason in caught.value.reason
    assert f"line {caught.value.line}" in str(caught.value)


DAMAGED: list[tuple[Callable[[bytes], bytes], int, str, str]] = [
    (lambda data: data.replace(b"max_steps", b"max_stops", 1), 1, "data", "do not match its checksum"),
    (lambda data: b"\n".join(data.split(b"\n")[1:]), 1, "data", "so commits are missing"),
    (
        lambda data: b'{"artifact":"' + b"0" * 64 + b'","base64":"AAAA"}\n' + data,
        1,
        "base64",
        "do not match its digest",
    ),
]


@pytest.mark.parametrize(("change", "line", "field", "reason"), DAMAGED)
def test_damage_is_told_by_line_and_field(
    change: Callable[[bytes], bytes], line: int, field: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(change((V1 / "child.jsonl").read_bytes()))
    with pytest.raises(ArchiveCorrupted, match=reason) as caught:
        read_file(str(file))
    assert (caught.value.line, caught.value.field) == (line, field)
    assert str(caught.value).startswith(f"{file}: line {line}, {field}: ")


def test_a_schema_that_is_none_refuses_nothing() -> None:
    for schema in ({"type": 3}, {"required": True}, {"properties": 1}, {"type": "robot"}, {"minimum": "x"}):
        assert value_problem({"a": 1}, schema) is None


def test_a_run_that_is_its_own_child_is_refused() -> None:
    def own_child(lines: Lines) -> None:
        started = next((c, e) for _, c in lines if c for e in c["events"] if e["type"] == "child_started")
        started[1]["child_run"] = started[0]["run"]

    with pytest.raises(ArchiveInvalid, match="is above the run itself"):
        read_archive(edited(own_child, "child"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_foldlog_wrote_is_vetted_without_a_word(path: Path) -> None:
    assert isinstance(read_archive(path.read_bytes()), Archive)
