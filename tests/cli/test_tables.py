"""Tables on terminals of any width, and in pipes."""

from __future__ import annotations

import pytest
from foldlog.adapters.cli.output.tables import Branch, Column, Exact, Id, laid_out, piped, wrapped
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

ROOT = "00-06h0aocoesr7ntb686fq0opetg"
CHILD = "00-06h0aocoesr7ntb686fq0_7154c669de916f267d071c65"
TIME = "2026-11-22 22:30:18"
WHY = "context_overflow: the request is longer than the model takes, by 1,234 tokens, after two tries"
COLUMNS = (
    Column("run"),
    Column("agent", cut=True),
    Column("status"),
    Column("executor", leaves=1),
    Column("submitted"),
    Column("tokens", leaves=2),
    Column("empty"),
    Column("reason", below=True),
)
ROWS = [
    (
        Id(ROOT, "opetg"),
        "a-rather-long-name-of-an-agent",
        ("error", "red"),
        "durable",
        TIME,
        "1,234",
        "",
        WHY,
    ),
    (
        Id(CHILD, "071c65", below=True),
        Branch("a/triage", 1, "triage"),
        "paused",
        "child",
        TIME,
        "7",
        "",
        "approval",
    ),
]


def lines_at(width: int) -> list[str]:
    return [line.plain for line in laid_out(COLUMNS, ROWS, width)]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_what_names_a_run_and_says_how_it_stands_is_whole_at_every_width(width: int) -> None:
    head, *lines = lines_at(width)
    assert all(cell_len(line) <= width for line in (head, *lines))
    text = "\n".join(lines)
    for whole in ("opetg", "…071c65", "└ triage", "error", "paused", TIME, "approval"):
        assert whole in text
    assert WHY in " ".join(text.split())
    assert "empty" not in head
    assert CHILD not in text


def test_columns_give_way_in_their_order_before_ids_do() -> None:
    heads = {width: lines_at(width)[0].split() for width in (160, 120, 104, 80)}
    everything = ["run", "agent", "status", "executor", "submitted", "tokens"]
    assert heads[160][:6] == everything
    assert heads[120][:6] == everything
    assert heads[104][:5] == ["run", "agent", "status", "submitted", "tokens"]
    assert heads[80][:4] == ["run", "agent", "status", "submitted"]
    for width in heads:
        assert ROOT in "".join(lines_at(width))
        assert "a-rather" in "".join(lines_at(width))
    assert ROOT not in "".join(lines_at(60))
    assert "…opetg" in "".join(lines_at(60))


def test_what_fits_in_no_way_goes_below_its_row_with_its_name() -> None:
    columns = Column("name"), Column("owner"), Column("at"), Column("why", below=True)
    rows = [("n" * 30, "o" * 30, TIME, "because"), ("short", "", TIME, "")]
    lines = [line.plain for line in laid_out(columns, rows, 64)]
    assert lines[0].split() == ["name", "owner"]
    assert lines[1] == f"{'n' * 30}  {'o' * 30}"
    assert lines[2:4] == [f"    at {TIME}", "    because"]
    assert lines[4].startswith("short")
    assert TIME in "".join(lines[4:])
    assert all(len(line) <= 64 for line in lines)


def test_details_are_on_the_line_of_their_row_if_they_fit_else_below_it() -> None:
    wide = list(laid_out((Column("a"), Column("detail", below=True)), [("x", "short"), ("y", "z " * 60)], 40))
    lines = [line.plain for line in wide]
    assert lines[:2] == ["a  detail", "x  short"]
    assert lines[2] == "y"
    assert all(line.startswith("    z") for line in lines[3:])
    assert "".join(lines[3:]).count("z") == 60


def test_what_people_decide_about_is_whole_below_its_row_and_prose_without_end_is_not() -> None:
    columns = (Column("a"), Column("detail", below=True))
    script = "\n".join(f"line {number}" for number in range(100))
    told = [line.plain for line in laid_out(columns, [("x", Exact({"script": script}, "approve"))], 40)]
    assert told[1:5] == ["x", "    approve", "    script:", "      │ line 0"]
    assert told[-1] == "      │ line 99"
    told = [line.plain for line in laid_out(columns, [("x", "word " * 1_000)], 40)]
    assert len(told) < 20
    assert told[-1].endswith(" more characters")


def test_a_pipe_gets_every_cell_whole_and_nothing_padded() -> None:
    head, first, second = piped(COLUMNS, [*ROWS])
    assert head.split("\t") == [column.name for column in COLUMNS]
    assert first.split("\t") == [ROOT, ROWS[0][1], "error", "durable", TIME, "1,234", "", WHY]
    assert second.split("\t")[:2] == [CHILD, "a/triage"]
    (_, row) = piped((Column("a"), Column("b")), [("x\ty\n", Exact({"t": "a\nb"}, "with"))])
    assert row == 'x\\ty\\n\twith {"t":"a\\nb"}'


@given(st.text(alphabet="ab 日\u0301", max_size=200), st.integers(8, 60))
def test_prose_is_wrapped_to_the_width_and_keeps_its_words(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
