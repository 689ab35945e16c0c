"""Flows, tables, hooks and schedules write a path alike and find the same value."""

from typing import Any

import pytest
from foldlog.eventlog.errors import ConfigError, FlowError
from foldlog.runtime.core.paths import Nowhere, format_path, parse_path, value_at
from foldlog.runtime.core.swarm.flow_parser import parse_flow
from foldlog.runtime.core.templates import Missing, Template
from hypothesis import given
from hypothesis import strategies as st

VALUE = {"a": {"b": [{"odd key": 1}, None]}, "größe": 3}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ('.a.b[0]["odd key"]', 1),
        (".a.b[1]", None),
        ('["größe"]', 3),
        ('.a["b"][0]', {"odd key": 1}),
        (r'["gr\u00f6\u00dfe"]', 3),
        ("", VALUE),
    ],
)
def test_a_template_and_a_plain_path_find_the_same_value(path: str, value: Any) -> None:
    assert value_at(VALUE, parse_path(path)) == value
    assert Template(f"${{body{path}}}", "hook", "body").value(VALUE) == value


@pytest.mark.parametrize("path", [".a.c", ".a[0]", ".a.b[2]", ".a.b.odd", ".a.b[0].x.y"])
def test_a_path_that_leads_nowhere_is_named(path: str) -> None:
    with pytest.raises(Nowhere):
        value_at(VALUE, parse_path(path))
    with pytest.raises(Missing, match="the body has no"):
        Template(f"${{body{path}}}", "hook", "body").value(VALUE)


@given(st.lists(st.text() | st.integers(0, 999_999_999), max_size=4))
def test_a_path_is_read_as_it_is_written(path: list[str | int]) -> None:
    assert parse_path(format_path(tuple(path))) == tuple(path)


def test_a_key_that_is_not_a_json_string_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'"\\q" is not a JSON string'):
        Template(r'${body["\q"]}', "hook", "body")
    with pytest.raises(FlowError, match="is not a JSON string"):
        parse_flow(r'a >> {.["\q"]: b, else: c}', ["a", "b", "c"])
