"""Alignment shows each boundary once, in order, beside the one it stands for, also where one trace has more."""

from __future__ import annotations

import functools

import pytest
from foldlog.replay import Canonical, Row, align, canonical, diff
from foldlog.replay.ordering.diff_page import page, text
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.conftest import played
from tests.replay.scenarios import SCENARIOS
from tests.unit.traces import Family


@functools.cache
def forms(name: str) -> list[Canonical]:
    return [canonical(trace) for trace in played(name)[1].traces.values()]


FORMS = st.sampled_from(list(SCENARIOS)).flatmap(lambda name: st.sampled_from(forms(name)))


def sides(rows: list[Row]) -> tuple[list[str], list[str]]:
    return [r.left.cause for r in rows if r.left is not None], [
        r.right.cause for r in rows if r.right is not None
    ]


@given(FORMS, FORMS)
def test_each_boundary_stands_once_and_each_side_in_its_order(left: Canonical, right: Canonical) -> None:
    rows = align(left, right)
    assert sides(rows) == ([b.cause for b in left.boundaries], [b.cause for b in right.boundaries])
    for row in rows:
        assert (row.kind == "left") == (row.right is None)
        assert (row.kind == "right") == (row.left is None)
        if row.left is not None and row.right is not None:
            assert (row.kind == "same") == (row.left.key == row.right.key) == (not row.fields)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_trace_is_aligned_with_itself_without_a_difference(name: str) -> None:
    for form in forms(name):
        found = diff(form, form)
        assert found.equal
        assert {row.kind for row in found.rows} == {"same"}
        assert found.boundaries == (form.size, form.size)


def steps(numbers: list[int]) -> Canonical:
    family = Family()
    family.begin()
    for step, number in enumerate(numbers, 1):
        from foldlog.eventlog.events import Step, Text, TokenUsage, Usage

        family.commit(
            Step(step=step, status="started"),
            Text(step=step, text=f"text {number}"),
            Usage(step=step, usage=TokenUsage(input_tokens=number), model="m"),
            Step(step=step, status="completed"),
        )
    return canonical(family.events)


def test_an_inserted_step_does_not_make_all_later_ones_differ() -> None:
    rows = align(steps([1, 2, 3, 4]), steps([1, 2, 9, 3, 4]))
    texts = [
        (r.kind, r.left.label if r.left else "", r.right.label if r.right else "", r.fields) for r in rows
    ]
    told = [row for row in texts if "text" in row[1] + row[2]]
    assert told == [
        ("same", 'text("text 1")', 'text("text 1")', ()),
        ("same", 'text("text 2")', 'text("text 2")', ()),
        ("right", "", 'text("text 9")', ()),
        ("changed", 'text("text 3")', 'text("text 3")', ("step",)),
        ("changed", 'text("text 4")', 'text("text 4")', ("step",)),
    ]


def test_a_field_that_differs_is_shown_with_both_values() -> None:
    (row,) = [row for row in align(steps([1]), steps([2])) if row.kind != "same" and "text" in row.fields]
    assert row.values == {"text": ("text 1", "text 2")}


# --- the page ---------------------------------------------------------------------------------------------------------

OURS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "span",
    "div",
    "strong",
    "br",
    "dl",
    "dt",
    "dd",
}
OURS |= {"table", "colgroup", "col", "thead", "tbody", "tr", "th", "td", "code", "pre", "details", "summary"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "&lt;b&gt; ]]> <!-- -->",
    "\u202eesrever \u2066hidden\u2069 \x1b[31m \x00 \u2028",
    "\ud800",
]


def hostile() -> Canonical:
    from foldlog.eventlog.events import Custom, Step, Text, ToolCall

    family = Family()
    family.begin()
    family.commit(
        Step(step=1, status="started"),
        Text(step=1, text=" ".join(HOSTILE[:-1])),
        *[
            ToolCall(step=1, tool_call_id=f"c{n}", tool_name=each, arguments={each: each})
            for n, each in enumerate(HOSTILE[:-1])
        ],
        *[Custom(name=each, data=[each]) for each in HOSTILE[:-1]],
    )
    return canonical(family.events)


def test_no_string_of_a_run_becomes_part_of_the_page() -> None:
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__(convert_charrefs=True)
            self.tags: set[str] = set()
            self.attributes: set[str] = set()
            self.open: list[str] = []
            self.said = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.add(tag)
            self.attributes |= {name for name, _ in attrs}
            if tag not in {"meta", "br", "col"}:
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_data(self, data: str) -> None:
            self.said += data

    for left, right in ((hostile(), steps([1])), (steps([1]), hostile())):
        document = page(diff(left, right), (HOSTILE[0], HOSTILE[1]), (HOSTILE[2], HOSTILE[3]))
        reader = Reader()
        reader.feed(document)
        assert not reader.open
        assert reader.tags <= OURS
        assert reader.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "colspan"}
        assert HOSTILE[0] in reader.said
        assert not set(document) & set("\x00\x1b\u202e\u2066\u2069\u2028")
        assert "default-src 'none'" in document


@pytest.mark.parametrize("string", HOSTILE)
def test_escaped_text_holds_nothing_that_a_browser_would_obey(string: str) -> None:
    escaped = text(string)
    assert not set(escaped) & set("<>\"'\x00\x1b\u202e\u2066\u2028\ud800")
    assert escaped.encode()


def test_a_page_of_very_long_runs_says_what_it_leaves_out() -> None:
    found = diff(steps(list(range(2000))), steps(list(range(5000, 7000))))
    document = page(found, ("a", "b"), ("a", "b"))
    assert f"{len(found.rows) - 3000} more lines" in document
    assert document.count("<tr") < 3010
