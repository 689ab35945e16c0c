"""A question's form as people read it, and the answer that they fill in, which fits it where nothing is left open."""

import json
from typing import Any

import pytest
from foldlog.adapters.cli.output.forms import answer_template, form_lines
from foldlog.runtime.ports.schema_problems import value_problem

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "title": "Guests", "description": "how many come"},
        "room": {"enum": ["red", "blue"]},
        "menu": {"oneOf": [{"const": "a", "title": "Fish"}, {"const": "b", "title": "Meat"}]},
        "outside": {"type": "boolean", "default": False},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["guests", "room", "menu", "outside"],
}


def test_each_thing_that_is_asked_has_a_line() -> None:
    assert list(form_lines(FORM)) == [
        "guests: integer, required (Guests - how many come)",
        'room: one of "red", "blue", required',
        'menu: one of "a" (Fish), "b" (Meat), required',
        "outside: boolean, required, default false",
        "mail: string (email), optional",
    ]


def test_all_that_a_server_may_ask_for_is_told_with_its_bounds_and_its_titles() -> None:
    titled = {"anyOf": [{"const": "a", "title": "Fish"}, {"const": "b"}]}
    fields: dict[str, Any] = {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "code": {"type": "string", "pattern": "^[A-Z]+$"},
        "dishes": {"type": "array", "items": titled, "minItems": 1, "maxItems": 2},
        "days": {"type": "array", "items": {"enum": ["sat", "sun"]}},
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["small", "large"]},
    }
    form = {"type": "object", "properties": fields, "required": ["dishes", "size"]}
    assert list(form_lines(form)) == [
        "name: string, at least 2 characters, at most 5 characters, optional",
        'code: string, matching "^[A-Z]+$", optional',
        'dishes: a list of "a" (Fish), "b", at least 1 of them, at most 2 of them, required',
        'days: a list of "sat", "sun", optional',
        'size: one of "s" (small), "l" (large), required',
    ]
    assert json.loads(answer_template(form)) == {"dishes": ["a"], "size": "s"}
    assert value_problem(json.loads(answer_template(form)), form) is None


def test_what_is_to_be_filled_in_has_all_that_is_required_and_fits_the_form() -> None:
    template = answer_template(FORM)
    assert json.loads(template) == {"guests": 0, "room": "red", "menu": "a", "outside": False}
    assert value_problem(json.loads(template), FORM) is None


def test_an_answer_to_fill_in_is_within_the_bounds_that_are_told() -> None:
    fields = {
        "guests": {"type": "integer", "minimum": 1, "maximum": 8},
        "depth": {"type": "number", "exclusiveMaximum": 0, "maximum": -2.5},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "page": {"type": "string", "format": "uri"},
    }
    form = {"type": "object", "properties": fields, "required": list(fields)}
    assert list(form_lines(form))[:2] == [
        "guests: integer, at least 1, at most 8, required",
        "depth: number, at most -2.5, below 0, required",
    ]
    assert value_problem(json.loads(answer_template(form)), form, formats=True) is None


@pytest.mark.parametrize(
    "form", [{}, {"properties": None}, {"properties": {"x": True}}, {"properties": {"x": {"oneOf": [7]}}}]
)
def test_a_form_of_an_odd_shape_is_shown_all_the_same(form: dict[str, Any]) -> None:
    assert len(list(form_lines(form))) == len(form.get("properties") or ())
    assert isinstance(json.loads(answer_template(form)), dict)
