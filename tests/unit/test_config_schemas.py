"""The published schemas of what can stand in a file accept what is accepted, and nothing with another key."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from foldlog.adapters.cli.agent_files import check_path
from foldlog.eventlog.errors import AgentConfigError
from foldlog.runtime import Agent, RalphLoop, Registry, Swarm, Workflow
from foldlog.runtime.agents.config import AgentConfig, ContextConfig, PolicyConfig, PolicyRuleConfig
from foldlog.runtime.agents.kinds import KINDS, runnable_of_table
from foldlog.runtime.agents.loop_config import RalphConfig, Stop
from foldlog.runtime.agents.schemas import schema_of
from foldlog.runtime.agents.swarm_config import SwarmConfig
from foldlog.runtime.ports.runnable import all_members
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_agent_config import configurations, generated

ROOT = Path(__file__).parents[2]
PUBLISHED = {kind: jsonschema.Draft202012Validator(schema_of(kind)) for kind in KINDS}
MODULES = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - {"ops_supervisor"})


@st.composite
def families(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """A table of any kind, with others in it."""
    kind = draw(st.sampled_from(["agent", "ralph", "swarm"])) if depth else "agent"
    if kind == "agent":
        return {**draw(configurations()), "name": "agent"}
    if kind == "swarm":
        tables = draw(st.lists(families(depth=depth - 1), min_size=1, max_size=2))
        agents = [{**table, "name": f"n{number}"} for number, table in enumerate(tables)]
        return {"kind": kind, "agents": agents, "flow": " >> ".join(table["name"] for table in agents)}
    inner = draw(families(depth=depth - 1))
    runnable = {"kind": inner.pop("kind", "agent"), "config": inner}
    stop = {"max_iterations": draw(st.integers(1, 9)), "timeout_s": draw(st.floats(0, 10))}
    return {"kind": kind, "name": "loop", "runnable": runnable, "stop": stop}


@generated
@given(families())
def test_whatever_is_accepted_meets_the_schema_of_its_kind_as_it_was_given_and_as_it_is_stored(
    table: dict[str, Any],
) -> None:
    runnable = runnable_of_table(json.loads(json.dumps(table, default=str)))
    stored = runnable.to_config()
    PUBLISHED[runnable.kind].validate(json.loads(json.dumps(stored)))
    again = KINDS[runnable.kind](json.loads(json.dumps(stored)))
    assert again.to_config() == stored


def test_a_table_that_says_it_is_of_an_agent_is_one_everywhere_and_of_another_kind_nowhere(
    tmp_path: Path,
) -> None:
    table = {"kind": "agent", "name": "a"}
    assert Agent.from_config(table).to_config() == runnable_of_table({"name": "a"}).to_config()
    PUBLISHED["agent"].validate(table)
    file = tmp_path / "a.json"
    file.write_text(json.dumps(table))
    assert [each.problems for each in check_path(str(file), None)] == [()]
    other = {"kind": "swarm", "name": "a"}
    with pytest.raises(AgentConfigError, match=r"^kind is 'swarm', but this is read as an agent$"):
        Agent.from_config(other)
    assert not PUBLISHED["agent"].is_valid(other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_and_closed(kind: str) -> None:
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    tables = [each for each in schema["$defs"].values() if each.get("type") == "object"]
    assert all(each["additionalProperties"] is False for each in tables)


@pytest.mark.parametrize("module", MODULES)
def test_every_example_meets_the_schema_of_its_kind(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    for runnable in Registry.load(f"examples.{module}:registry").agents.values():
        for each in all_members(runnable):
            PUBLISHED[each.kind].validate(each.to_config())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: str(path.name))
def test_every_example_file_meets_the_schema_of_its_kind(path: Path) -> None:
    table = tomllib.loads(path.read_text())
    PUBLISHED[table.get("kind", "agent")].validate(table)


KEYS = sorted(
    {
        *AgentConfig.model_fields,
        *SwarmConfig.model_fields,
        *RalphConfig.model_fields,
        *Stop.model_fields,
        *ContextConfig.model_fields,
        *PolicyConfig.model_fields,
        *PolicyRuleConfig.model_fields,
        "agents",
        "config",
    }
)
AGENT = {"kind": "agent", "config": {"name": "a"}}


@pytest.mark.parametrize(
    ("table", "key", "told"),
    [
        (
            {"kind": "ralph", "name": "l", "runnable": AGENT, "stop": {"max_iteration": 3}},
            "stop.max_iteration",
            "",
        ),
        ({"kind": "ralph", "name": "l", "runnable": AGENT, "reflects": "yes"}, "reflects", ""),
        (
            {"kind": "ralph", "name": "l", "runnable": {"kind": "agnt", "config": {"name": "a"}}},
            "runnable.kind",
            "loop 'l': runnable: kind is 'agnt'; known are 'agent', 'ralph', 'swarm', 'workflow'",
        ),
        (
            {
                "kind": "ralph",
                "name": "l",
                "runnable": {"kind": "agent", "config": {"name": "a", "toolz": []}},
            },
            "runnable.config.toolz",
            "loop 'l': runnable.config: agent 'a': unknown key 'toolz'; did you mean 'tools'?",
        ),
        (
            {"kind": "swarm", "flow": "a", "agents": [{"name": "a", "policy": {"rules": [{"tol": "x"}]}}]},
            "agents.0.policy.rules.0.tol",
            "",
        ),
        ({"kind": "swarm", "flow": "a", "agents": [{"kind": "swarm", "name": "a"}]}, "agents.0.agents", ""),
    ],
)
def test_what_is_wrong_within_is_named_by_its_whole_key_and_meets_no_schema(
    table: dict[str, Any], key: str, told: str
) -> None:
    with pytest.raises(AgentConfigError) as failed:
        runnable_of_table(table)
    assert key in [problem.key for problem in failed.value.problems]
    assert told in str(failed.value)
    assert not PUBLISHED[str(table["kind"])].is_valid(table)


def test_the_forms_in_python_and_in_a_file_are_the_same() -> None:
    text = (ROOT / "examples" / "newsroom.toml").read_text()
    swarm = Swarm.from_config(tomllib.loads(text))
    members = list(swarm.agents.values())
    assert isinstance(members[1], RalphLoop)
    assert Swarm(members, "reporter >> desk", name="newsroom").digest == swarm.digest


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["agent", "swarm", "ralph", "a >> b", "scripted:x", "session"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), ANYTHING, max_size=6),
    st.sampled_from(list(KINDS)),
)
def test_whatever_is_given_is_a_configuration_or_an_error_that_says_what_is_wrong(
    table: dict[str, Any], kind: str
) -> None:
    given_ = {"name": "a", **table}
    try:
        runnable = KINDS[kind](given_)
    except AgentConfigError as error:
        problems = error.problems
    else:
        problems = ()
        if not isinstance(runnable, Workflow):  # of a function: no file has it
            PUBLISHED[kind].validate(json.loads(json.dumps(runnable.to_config())))
    assert all(problem.message for problem in problems)
