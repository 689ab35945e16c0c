"""What a model wrote is JSON of a bounded depth, or it is told that it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from foldlog.runtime.arguments import NESTING_MAX, is_deeper, parse_arguments, schema_problem, value_problem
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.text(max_size=5) | st.text(alphabet='{}[]"\\\\', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='{["', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES, st.integers(0, 6))
def test_depth_is_that_of_objects_and_lists_and_not_of_brackets_in_texts(value: Any, most: int) -> None:
    assert is_deeper(json.dumps(value), most) == (depth(value) > most)


@pytest.mark.parametrize("levels", [NESTING_MAX, NESTING_MAX + 1, 5_000, 1_000_000])
def test_arguments_that_are_nested_too_deeply_are_none(levels: int) -> None:
    text = '{"a":' * levels + "1" + "}" * levels
    arguments, raw = parse_arguments(text)
    assert (bool(arguments), raw) == ((True, None) if levels <= NESTING_MAX else (False, text))


def test_arguments_of_earlier_rules_that_nobody_can_read_are_none_either() -> None:
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    assert parse_arguments(text, None) == ({}, text)


@pytest.mark.parametrize(
    ("output", "schema", "told"),
    [
        ("[" * 5_000 + "]" * 5_000, {"type": "array"}, "it is nested more than 100 levels deep"),
        (
            "1",
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
            "its schema leads back to itself",
        ),
    ],
)
def test_an_output_that_cannot_be_checked_is_not_met(output: str, schema: dict[str, Any], told: str) -> None:
    assert told in (schema_problem(output, schema) or "")


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("email", "ada@example.com", "ada"),
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-02-28T12:00:00+01:00", "2026-02-30T12:00:00Z"),
        ("uri", "https://example.com/ä?x=1", "example"),
    ],
)
def test_what_is_given_for_a_format_has_it(kind: str, right: str, wrong: str) -> None:
    schema = {"type": ["string", "null"], "format": kind}
    assert value_problem(right, schema, formats=True) is None
    assert value_problem(None, schema, formats=True) is None
    assert value_problem(wrong, schema, formats=True) == f"{wrong!r} is not a {kind!r} (at $)"
    assert value_problem(wrong, schema) is None
