"""A model's arguments are JSON of a bounded depth, or the model is told that they are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from foldlog.runtime.core.arguments import (
    NESTING_MAX,
    is_deeper,
    parse_arguments,
    schema_problem,
)
from foldlog.runtime.ports.json_schema import unsearchable
from foldlog.runtime.ports.schema_problems import value_problem
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


# --- patterns ---------------------------------------------------------------------------------------------------------

EXPONENTIAL = "(a+)+$"
"""Python's engine doubles its time with every further `a` before something else."""
HARD = "a" * 60 + "!"


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"pattern": EXPONENTIAL}, HARD, f"{HARD!r} does not match '(a+)+$' (at $)"),
        ({"pattern": EXPONENTIAL}, "aaa", None),
        ({"pattern": EXPONENTIAL}, 7, None),
        ({"patternProperties": {EXPONENTIAL: {"type": "string"}}}, {HARD: 1}, None),
        (
            {"patternProperties": {EXPONENTIAL: {"type": "string"}}},
            {"aa": 1},
            "1 is not of type 'string' (at $.aa)",
        ),
        (
            {"patternProperties": {EXPONENTIAL: {}}, "additionalProperties": False},
            {HARD: 1},
            f"{HARD!r} does not match any of the regexes: '(a+)+$' (at $)",
        ),
        (
            {"patternProperties": {EXPONENTIAL: {}}, "additionalProperties": {"type": "string"}},
            {"aa": 1},
            None,
        ),
        (
            {"properties": {"b": {}}, "additionalProperties": False},
            {"b": 1, "c": 2},
            "Additional properties are not allowed ('c' was unexpected) (at $)",
        ),
        ({"patternProperties": {EXPONENTIAL: {}}, "unevaluatedProperties": False}, {HARD: 1}, None),
        (
            {"properties": {"b": {}}, "unevaluatedProperties": False},
            {"c": 2},
            "Unevaluated properties are not allowed ('c' was unexpected) (at $)",
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"pattern": EXPONENTIAL}}},
            "b",
            "'b' does not match '(a+)+$' (at $)",
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EXPONENTIAL}, "aa", None),
    ],
)
def test_patterns_of_a_schema_are_searched_for_in_linear_time(schema: Any, value: Any, problem: str | None):
    assert value_problem(value, schema) == problem


@pytest.mark.parametrize("pattern", [r"^(?=.*\d).{8,}$", r"(a)\1", "(", 3])
def test_a_pattern_of_a_foreign_schema_that_cannot_be_matched_finds_nothing_wrong(pattern: Any):
    assert value_problem("text", {"pattern": pattern}) is None
    assert value_problem({"text": 1}, {"patternProperties": {str(pattern): {"type": "string"}}}) is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"pattern": r"^(?=.*\d)x"}, r"the pattern '^(?=.*\\d)x' cannot be used: "),
        ({"properties": {"a": {"patternProperties": {"(?!b)": {}}}}}, "the pattern '(?!b)' cannot be used: "),
        (
            {"$defs": {"x": {"unevaluatedProperties": False}}, "patternProperties": {"a": {}}},
            "unevaluatedProperties cannot be used together with patternProperties",
        ),
        ({"pattern": EXPONENTIAL}, None),
        ({"enum": [{"pattern": "(?!b)"}], "properties": {"pattern": {"const": "(?!b)"}}}, None),
    ],
)
def test_a_schema_of_ours_is_refused_for_a_pattern_that_cannot_be_searched_for(
    schema: Any, problem: str | None
):
    found = unsearchable(schema)
    assert (found is None) == (problem is None)
    assert found is None or problem is None or found.startswith(problem)
