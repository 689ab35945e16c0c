"""A table that is written as TOML is read back as it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from foldlog.adapters.configuration.toml_text import to_toml
from foldlog.eventlog import ConfigError
from foldlog.runtime import Agent
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN = (
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_what_is_written_is_read_back(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_an_agent_is_read_back_with_its_text_in_lines() -> None:
    text = 'Say "hello".\n\nThen \\ wait:\r\n"""\ttabs\x7f é 😀 """\n'
    agent = Agent(
        "clerk",
        instructions=text,
        retry={"attempts": 3},
        mcp_servers={"d": {"command": "x", "env": {"A b": "1"}}},
    )
    written = to_toml(agent.to_config())
    assert Agent.from_config(tomllib.loads(written)).digest == agent.digest
    assert '\nSay \\"hello\\".\n' in written


def test_a_null_which_toml_lacks_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"output_schema\.default has a null"):
        to_toml({"output_schema": {"default": None}})
