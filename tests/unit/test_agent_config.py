"""One configuration: every form of it is the same, and every mistake in it is named."""

import json
import math
import subprocess
import sys
import tomllib
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from foldlog.eventlog.commits import decode
from foldlog.eventlog.errors import AgentConfigError
from foldlog.eventlog.events import Submitted
from foldlog.runtime.agents.agent import Agent
from foldlog.runtime.agents.config import (
    AgentConfig,
    BudgetsConfig,
    RetryConfig,
    SettingsConfig,
    capabilities_needed,
    config_digest,
    config_schema,
)
from foldlog.runtime.core.rules import rules_of
from foldlog.runtime.ports.settings import ModelSettings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.traces import Family

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
MODELS = st.builds("{}:{}".format, NAMES, st.from_regex(r"[!-~]{1,30}", fullmatch=True))
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
WORDS = st.from_regex(r"[!-#%-~]{1,20}", fullmatch=True)
INJECTED = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", fullmatch=True)
SECONDS = st.floats(0.001, 1e6)
ACTIONS = st.sampled_from(["deny", "require_approval", "allow"])
COUNTS = st.integers(1, 10**9)
SCALARS = (
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=8
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            TEXT, st.sampled_from([{"type": "string"}, {"$ref": "#/$defs/it"}, {}])
        ),
        "default": VALUES,
        "description": TEXT,
    },
).map(lambda schema: {**schema, "$defs": {"it": {"enum": [1, "$ref"]}}})
CEILINGS = {
    "max_tokens": st.integers(0, 10**9),
    "max_cost_usd": st.decimals(0, 1000, places=4),
    "max_seconds": SECONDS,
}

SERVERS = st.fixed_dictionaries(
    {"command": WORDS},
    optional={
        "type": st.just("stdio"),
        "args": st.lists(WORDS, max_size=2),
        "env": st.dictionaries(WORDS, WORDS, max_size=2),
        "cwd": WORDS,
        "effects": st.dictionaries(WORDS, st.sampled_from(["pure", "idempotent", "unsafe"]), max_size=2),
    },
) | st.fixed_dictionaries(
    {"url": WORDS},
    optional={
        "transport": st.sampled_from(["http", "streamable-http"]),
        "headers": st.dictionaries(WORDS, WORDS, max_size=2),
        "tools": st.lists(WORDS, max_size=2),
        "trust_annotations": st.booleans(),
        "timeout_s": SECONDS,
    },
)
PUBLISHED = jsonschema.Draft202012Validator(config_schema())

# A busy machine draws slowly; that is not a finding.
generated = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "model": MODELS,
    "instructions": TEXT,
    "max_steps": COUNTS,
    "settings": st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2) | st.integers(0, 2),
            "max_tokens": COUNTS,
            "stop": st.lists(WORDS, max_size=2),
            "reasoning": st.sampled_from(["off", "high"]) | COUNTS,
            "headers": st.dictionaries(
                st.from_regex(r"[A-Za-z0-9-]{1,9}", fullmatch=True), WORDS, max_size=2
            ),
            "extra_body": st.dictionaries(TEXT, VALUES, max_size=2),
            "strict": st.booleans(),
        },
    ),
    "mcp_servers": st.dictionaries(NAMES, SERVERS, max_size=2),
    "output_schema": SCHEMAS,
    "planning_enabled": st.booleans(),
    "planning_model": MODELS,
    "planning_instructions": TEXT,
    "budget_awareness": st.just("per-message") | st.integers(0, 100).map("limit:{}".format),
    "emit_mcp_progress": st.booleans(),
    "injected_tool_args": st.dictionaries(INJECTED, TEXT, max_size=3),
    "allow_parallel_subagents": st.booleans(),
    "max_parallel_subagents": st.integers(1, 7),
    "allow_self_spawn": st.booleans(),
    "max_spawn_depth": COUNTS,
    "context": st.fixed_dictionaries(
        {},
        optional={
            "mode": st.sampled_from(["pilot", "copilot", "navigator"]),
            "overflow": st.sampled_from(["summarize", "truncate", "none"]),
            "window_tokens": COUNTS,
            "trigger_pct": st.integers(0, 100),
        },
    ),
    "memory": st.fixed_dictionaries({"scope": st.sampled_from(["user", "session", "task"])}),
    "budgets": st.fixed_dictionaries(
        {}, optional={**CEILINGS, "step": st.fixed_dictionaries({}, optional=CEILINGS)}
    ),
    "retry": st.fixed_dictionaries(
        {}, optional={"attempts": COUNTS, "base_s": SECONDS, "jitter": st.booleans()}
    ),
    "fallback_models": st.lists(MODELS, max_size=3, unique=True),
    "concurrency": st.fixed_dictionaries({}, optional={"runs_max": COUNTS}),
    "files": st.fixed_dictionaries({}, optional={"file_bytes_max": COUNTS, "request_bytes_max": COUNTS}),
    "policy": st.fixed_dictionaries(
        {},
        optional={
            "default": ACTIONS,
            "rules": st.lists(
                st.fixed_dictionaries(
                    {"action": ACTIONS},
                    optional={"tool": NAMES, "arguments": st.dictionaries(NAMES, NAMES, max_size=2)},
                ),
                max_size=3,
            ),
        },
    ),
    "loop_threshold": st.just(0) | st.integers(2, 100),
    "model_idle_timeout_s": SECONDS,
    "model_timeout_s": SECONDS,
}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    tools = draw(st.lists(NAMES, max_size=4, unique=True))
    hitl = {"hitl_tools": st.lists(st.sampled_from(tools), unique=True)} if tools else {}
    required = {"name": NAMES, "tools": st.just(tools), **hitl}
    return draw(st.fixed_dictionaries(required, optional=OPTIONAL))


def toml(value: Any) -> str:
    """A value in TOML, tables inline."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())}}}"
        case _:
            raise AssertionError(f"TOML has no {value!r}")


@generated
@given(configurations())
def test_a_configuration_comes_back_equal_from_dict_json_and_toml(data: dict[str, Any]) -> None:
    config = AgentConfig.from_config(data)
    stored = config.to_config()
    as_toml = "\n".join(f"{key} = {toml(value)}" for key, value in stored.items())
    for read in (stored, json.loads(json.dumps(stored)), tomllib.loads(as_toml)):
        again = AgentConfig.from_config(read)
        assert again == config
        assert again.to_config() == stored
        assert config_digest(again.to_config()) == config_digest(stored)


ELSEWHERE = """
import json, sys
from foldlog.runtime import Agent
for line in sys.stdin:
    agent = Agent.from_config(json.loads(line))
    print(json.dumps([agent.to_config(), agent.digest]))
"""


@settings(max_examples=3)
@given(st.lists(configurations(), min_size=12, max_size=16))
def test_a_configuration_comes_back_equal_from_the_log_and_from_another_process(
    generated: list[dict[str, Any]],
) -> None:
    agents, stored = [Agent.from_config(data) for data in generated], []
    for agent in agents:
        family = Family()
        family.commit(
            Submitted(
                kind="agent",
                config=agent.to_config(),
                config_digest=agent.digest,
                input="question",
                input_digest="i",
            )
        )
        (submitted,) = decode(family.stored[0].data).events
        assert isinstance(submitted, Submitted)
        again = Agent.from_config(submitted.config)
        assert (again.config, again.digest) == (agent.config, submitted.config_digest)
        stored.append(json.dumps(submitted.config))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input="\n".join(stored), capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [agent.to_config(), agent.digest] for agent in agents
    ]


@generated
@given(configurations())
def test_whatever_is_accepted_meets_the_published_schema(data: dict[str, Any]) -> None:
    stored = AgentConfig.from_config(data).to_config()
    PUBLISHED.validate(stored)


@generated
@given(configurations())
def test_an_agent_comes_back_from_its_configuration(data: dict[str, Any]) -> None:
    agent = Agent.from_config(data)
    assert Agent.from_config(agent.to_config()).digest == agent.digest == config_digest(agent.to_config())


def test_the_published_schema_is_a_valid_closed_schema() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {*AgentConfig.model_fields, "kind"}


def test_defaults_are_those_of_the_contract() -> None:
    config = AgentConfig(name="a")
    assert (config.model, config.instructions, config.max_steps) == ("openai:gpt-4o", "", 10)
    assert config.settings is config.output_schema is config.budget_awareness is None
    assert (config.max_parallel_subagents, config.max_spawn_depth, config.loop_threshold) == (3, 3, 3)
    assert config.emit_mcp_progress
    assert config.retry == RetryConfig(attempts=5, base_s=0.2, max_s=20.0, jitter=True)
    assert (config.model_idle_timeout_s, config.model_timeout_s) == (120.0, 600.0)


def test_settings_are_a_struct_for_users_and_a_table_in_files_with_the_same_keys() -> None:
    assert list(SettingsConfig.model_fields) == list(ModelSettings.__struct_fields__)
    given = ModelSettings(temperature=0.5, stop=("END",), extra_body={"a": None}, reasoning=2000)
    config = AgentConfig(name="a", settings=given)
    table = {"temperature": 0.5, "stop": ["END"], "extra_body": {"a": None}, "reasoning": 2000}
    assert config.to_config()["settings"] == table
    assert rules_of(config.to_config()).settings == given
    assert "settings" not in AgentConfig(name="a", settings=ModelSettings()).to_config()


@pytest.mark.parametrize("wrong", ["xhigh", 0, -1, 1.5, True, [], {}])
def test_an_amount_of_reasoning_that_is_none_is_one_problem(wrong: object) -> None:
    with pytest.raises(AgentConfigError) as caught:
        AgentConfig.from_config({"name": "a", "settings": {"reasoning": wrong}})
    (problem,) = caught.value.problems
    assert problem.key == "settings.reasoning"
    assert "must be one of off, minimal, low, medium, high, or a number of tokens" in problem.message


def test_what_is_stored_writes_out_the_defaults_and_no_null() -> None:
    stored = AgentConfig(name="a").to_config()
    assert stored["max_steps"] == 10
    assert None not in stored.values()
    assert set(stored["retry"]) == {"attempts", "base_s", "max_s", "jitter", "exhausted", "quota"}


def test_nulls_within_a_schema_and_a_server_entry_are_kept() -> None:
    data = {
        "name": "a",
        "output_schema": {"enum": [None, 1]},
        "mcp_servers": {"s": {"command": "x", "cwd": None}},
    }
    stored = AgentConfig.from_config(data).to_config()
    assert stored["output_schema"] == data["output_schema"]
    assert stored["mcp_servers"] == data["mcp_servers"]


def test_a_stored_configuration_shares_nothing_with_the_object() -> None:
    config = AgentConfig.from_config(
        {"name": "a", "mcp_servers": {"s": {"command": "c", "args": ["x"]}}, "output_schema": {"enum": [1]}}
    )
    before = config_digest(config.to_config())
    stored = config.to_config()
    stored["mcp_servers"]["s"]["args"].append("y")
    stored["output_schema"]["enum"].append(2)
    assert config_digest(config.to_config()) == before != config_digest(stored)


def test_money_is_kept_to_the_digit() -> None:
    config = AgentConfig.from_config(
        {"name": "a", "budgets": {"max_cost_usd": 0.1, "step": {"max_cost_usd": "0.10"}}}
    )
    assert config.budgets == BudgetsConfig.model_validate(
        {"max_cost_usd": Decimal("0.1"), "step": {"max_cost_usd": "0.1"}}
    )
    assert config.to_config()["budgets"] == {"max_cost_usd": "0.1", "step": {"max_cost_usd": "0.10"}}


def test_names_given_as_a_set_are_put_in_order() -> None:
    names = {f"tool_{number}" for number in range(20)}
    assert AgentConfig.from_config({"name": "a", "tools": names}).tools == tuple(sorted(names))


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        AgentConfig(name="a").max_steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", "a b", "name: 'a b' must be 1 to 64 letters"),
        ("name", "", "name: '' must be 1 to 64 letters"),
        ("model", "gpt-4o", "model: 'gpt-4o' must be written provider:model"),
        ("model", "openai:", "model: 'openai:' must be written provider:model"),
        ("planning_model", "x", "planning_model: 'x' must be written provider:model"),
        ("fallback_models", ["a:b", "c"], "fallback_models.1: 'c' must be written provider:model"),
        ("instructions", 3, "instructions: Input should be a valid string, not 3"),
        ("max_steps", 0, "max_steps: Input should be greater than or equal to 1, not 0"),
        ("max_steps", "10", "max_steps: Input should be a valid integer, not '10'"),
        ("max_steps", True, "max_steps: Input should be a valid integer, not True"),
        ("max_steps", 2**53, "max_steps: Input should be less than or equal to 9007199254740991"),
        ("instructions", "\ud800", "instructions: it cannot be stored as JSON: text that is not valid"),
        ("settings", {"temperature": 2.1}, "settings.temperature: Input should be less than or equal to 2"),
        ("settings", {"top_p": math.nan}, "settings.top_p: Input should be a finite number, not nan"),
        ("settings", {"headers": {"X": "a\r\nb"}}, "settings.headers.X: "),
        (
            "settings",
            {"tool_choice": "deploi"},
            "settings.tool_choice: 'deploi' is not a tool of the agent; did you mean 'deploy'?",
        ),
        ("settings", {"tool_choice": "requird"}, "did you mean 'required'?"),
        (
            "settings",
            {"tool_choice": "mcp__other__x"},
            "is not a tool of the agent; known are 'deploy', 'auto', 'none', 'required'",
        ),
        ("settings", {"headers": {"X y": "a"}}, "settings.headers.X y: "),
        ("settings", {"headers": {"X": "ä"}}, "settings.headers.X: "),
        ("settings", {"tempratur": 1}, "unknown key 'settings.tempratur'; did you mean 'temperature'?"),
        ("temperature", 0.5, "unknown key 'temperature'; did you mean 'settings.temperature'?"),
        ("tools", "lookup", "tools: must be a list, not 'lookup'"),
        ("tools", ["a", "a"], "tools: 'a' occurs twice"),
        ("tools", ["a.b"], "tools.0: 'a.b' must be 1 to 64 letters"),
        (
            "budget_awareness",
            "limit:101",
            "budget_awareness: 'limit:101' must be 'per-message' or 'limit:<0-100>'",
        ),
        ("hitl_tools", ["deploi"], "hitl_tools: 'deploi' is not a tool of the agent; did you mean 'deploy'?"),
        ("hitl_tools", ["mcp__other__x"], "hitl_tools: 'mcp__other__x' is not a tool of the agent"),
        ("injected_tool_args", {"1st": "x"}, "injected_tool_args.1st: '1st' must be a letter or '_'"),
        (
            "max_parallel_subagents",
            8,
            "max_parallel_subagents: Input should be less than or equal to 7, not 8",
        ),
        ("loop_threshold", 1, "loop_threshold: must be 0 (off) or at least 2"),
        ("retry", {"attempts": 0}, "retry.attempts: Input should be greater than or equal to 1, not 0"),
        ("retry", 5, "retry: must be a table, not 5"),
        ("memory", {}, "the key 'memory.scope' is required"),
        (
            "budgets",
            {"step": {"max_cost_usd": -1}},
            "budgets.step.max_cost_usd: Input should be greater than or equal",
        ),
        ("mcp_servers", {"s": {"x": math.inf}}, "mcp_servers.s"),
        ("mcp_servers", {"s": {"env": {"A": b"x"}}}, "mcp_servers.s.env.A: must be a value of JSON"),
        ("output_schema", {"a": {"b": [1, {2}]}}, "output_schema.a.b.1: must be a value of JSON, not {2}"),
        (
            "mcp_servers",
            {"s": {"comand": "x"}},
            "unknown key 'mcp_servers.s.comand'; did you mean 'command'?",
        ),
        ("mcp_servers", {"s": {"comand": "x"}}, "mcp_servers.s: give either `command`"),
        (
            "mcp_servers",
            {"s": {"url": "x", "timeout": 1}},
            "unknown key 'mcp_servers.s.timeout'; did you mean 'timeout_s'?",
        ),
        ("mcp_servers", {"s": {"url": "x", "timeout_s": 0}}, "mcp_servers.s.timeout_s: Expected `float` > 0"),
        (
            "mcp_servers",
            {"s": {"url": "x", "headers": {"A": 1}}},
            "mcp_servers.s.headers[...]: Expected `str`",
        ),
        ("mcp_servers", {"a b": {}}, "mcp_servers.a b: 'a b' must be 1 to 64 letters"),
        ("output_schema", {"type": "objekt"}, "output_schema: not a valid JSON Schema at $.type"),
        ("output_schema", {"$schema": "http://json-schema.org/draft-07/schema#"}, "only draft 2020-12"),
        ("output_schema", {"$schema": []}, "only draft 2020-12"),
        ("output_schema", {"type": "string", "pattern": "("}, "not a valid JSON Schema at $.pattern"),
        ("output_schema", {"allOf": [{"$ref": "#/allOf/x"}]}, "'#/allOf/x' leads nowhere"),
        ("output_schema", {"$ref": "https://example.com/it"}, "'https://example.com/it' leaves the schema"),
        ("output_schema", {"items": [{"$dynamicRef": "other"}]}, "not a valid JSON Schema at $.items"),
        ("output_schema", {"allOf": [{"$dynamicRef": "other"}]}, "'other' leaves the schema"),
        ("output_schema", {"properties": {"$ref": {"$ref": "#/$defs/it"}}}, "'#/$defs/it' leads nowhere"),
        ("max_step", 3, "unknown key 'max_step'; did you mean 'max_steps'?"),
        ("[key]", None, "unknown key '[key]'"),
        ("retry", {"atempts": 3}, "unknown key 'retry.atempts'; did you mean 'attempts'?"),
        (
            "budgets",
            {"step": {"max_token": 3}},
            "unknown key 'budgets.step.max_token'; did you mean 'max_tokens'?",
        ),
        ("MAX_STEPS", 3, "unknown key 'MAX_STEPS'; did you mean 'max_steps'?"),
        ("mcpServers", {}, "unknown key 'mcpServers'; did you mean 'mcp_servers'?"),
        (
            "policy",
            {"rules": [{"action": "deny"}, {"action": "deny", "argument": {}}]},
            "unknown key 'policy.rules.1.argument'; did you mean 'arguments'?",
        ),
        ("policy", {"rules": {}}, "policy.rules: must be a list, not {}"),
        ("hitl_tools", ["retrieve_artifact"], "hitl_tools: 'retrieve_artifact' is not a tool of the agent"),
        ("name", "ä", "name: 'ä' must be 1 to 64 letters"),
        ("name", "a" * 65, "must be 1 to 64 letters"),
        ("name", "a\n", "name: 'a\\n' must be 1 to 64 letters"),
        ("budget_awareness", "limit:70 ", "budget_awareness: 'limit:70 ' must be 'per-message' or"),
        ("budget_awareness", "limit:", "budget_awareness: 'limit:' must be 'per-message' or"),
        ("max_parallel_subagents", 0, "max_parallel_subagents: Input should be greater than or equal to 1"),
        ("injected_tool_args", {"a" * 65: "x"}, "must be a letter or '_', then at most 63"),
        ("injected_tool_args", {"ä": "x"}, "injected_tool_args.ä: 'ä' must be a letter or '_'"),
        ("memory", "session", "memory: must be a table, not 'session'"),
        ("memory", {"scope": "sesion"}, "memory.scope: Input should be 'user', 'session', 'task' or 'none'"),
        (
            "context",
            {"window_tokens": 0},
            "context.window_tokens: Input should be greater than or equal to 1",
        ),
        ("budgets", {"max_cost_usd": "NaN"}, "budgets.max_cost_usd: Input should be a finite number"),
        ("concurrency", {"zzz": 3}, "unknown key 'concurrency.zzz'; known are 'runs_max'"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_key(key: str, value: Any, message: str) -> None:
    with pytest.raises(AgentConfigError) as caught:
        AgentConfig.from_config(
            {"name": "a", "tools": ["deploy"], "mcp_servers": {"srv": {"command": "true"}}, key: value}
        )
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("budget_awareness", "name"),
    [("limit:0", "_"), ("limit:100", "a" * 64), ("limit:07", "-9"), ("per-message", "A_b-9")],
)
def test_what_is_just_right_is_accepted(budget_awareness: str, name: str) -> None:
    data = {
        "name": name,
        "budget_awareness": budget_awareness,
        "max_parallel_subagents": 7,
        "settings": {"temperature": 2, "top_p": 1, "seed": -1},
        "injected_tool_args": {"_" + "a" * 63: ""},
        "context": {},
        "hitl_tools": ["retrieve_artifact"],
        "budgets": {"max_tokens": 0, "max_cost_usd": 0, "max_seconds": 0},
    }
    config = AgentConfig.from_config(data)
    assert AgentConfig.from_config(config.to_config()) == config


def test_the_fields_of_a_feature_that_is_off_are_checked_kept_and_ignored() -> None:
    off = {"planning_model": "nobody:x", "planning_instructions": "Plan.", "max_parallel_subagents": 5}
    config = AgentConfig.from_config({"name": "a", **off})
    assert {key: config.to_config()[key] for key in off} == off
    assert rules_of(config.to_config()).models == ("openai:gpt-4o",)
    with pytest.raises(AgentConfigError, match="planning_model"):
        AgentConfig.from_config({"name": "a", "planning_model": "nobody"})


def test_all_mistakes_are_named_at_once_and_so_is_the_agent() -> None:
    with pytest.raises(AgentConfigError) as caught:
        AgentConfig.from_config({"name": "ops", "max_steps": 0, "modell": "x:y"})
    assert "agent 'ops'" in str(caught.value)
    assert "max_steps" in str(caught.value)
    assert "did you mean 'model'?" in str(caught.value)


def test_a_missing_name_is_named() -> None:
    with pytest.raises(AgentConfigError, match="the key 'name' is required"):
        AgentConfig.from_config({})


def test_no_error_of_pydantic_comes_out_of_the_constructor_either() -> None:
    with pytest.raises(AgentConfigError, match="max_steps"):
        AgentConfig(name="a", max_steps=0)


def test_the_entry_of_a_server_is_not_repeated_in_an_error() -> None:
    with pytest.raises(AgentConfigError) as caught:
        AgentConfig.from_config({"name": "a", "mcp_servers": ["token-4711"]})
    assert "mcp_servers: must be a table" in str(caught.value)
    assert "token-4711" not in str(caught.value)
    headers = {"Authorization": ["token-4711"], "X-${a-b}": "token-4711"}
    for wrong in ({"headers": headers}, {"headers": {"X": "token-4711 ${a-b}"}}, {"header": "token-4711"}):
        with pytest.raises(AgentConfigError, match=r"mcp_servers\.srv") as caught:
            Agent("a", mcp_servers={"srv": {"url": "http://x", **wrong}})
        assert "token-4711" not in str(caught.value)


def test_all_that_is_wrong_with_servers_is_told_when_an_agent_is_made_in_python() -> None:
    servers = {
        "one": {"command": "x", "arg": [], "enviroment": {}},
        "two": {"url": ""},
        "three": {"url": "http://x"},
    }
    with pytest.raises(AgentConfigError) as caught:
        Agent("a", mcp_servers=servers, hitl_tools=["nothing"])
    told = {problem.key: problem.nearest for problem in caught.value.problems}
    assert told == {
        "mcp_servers.one.arg": "args",
        "mcp_servers.one.enviroment": None,
        "mcp_servers.two.url": None,
        "hitl_tools": None,
    }


def test_references_in_data_and_names_are_not_references() -> None:
    schema = {"properties": {"$ref": {"const": {"$ref": "http://x"}}}, "default": {"$ref": "http://x"}}
    assert AgentConfig.from_config({"name": "a", "output_schema": schema}).output_schema == schema


def test_tools_of_a_configured_server_and_sub_agent_tools_may_need_approval() -> None:
    config = {
        "name": "a",
        "mcp_servers": {"srv": {"command": "true"}},
        "hitl_tools": ["mcp__srv__x", "spawn_self"],
    }
    assert AgentConfig.from_config({**config, "allow_self_spawn": True}).hitl_tools == (
        "mcp__srv__x",
        "spawn_self",
    )
    with pytest.raises(AgentConfigError, match="spawn_self"):
        AgentConfig.from_config(config)


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    stored = AgentConfig(name="a").to_config()
    assert config_digest(dict(reversed(stored.items()))) == config_digest(stored)


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, set()),
        ({"planning_model": "a:b", "planning_instructions": "x"}, set()),
        ({"planning_enabled": True}, {"planning"}),
        ({"memory": {"scope": "user"}}, {"memory"}),
        ({"context": {}}, {"context"}),
        ({"budget_awareness": "per-message"}, {"context"}),
        ({"budgets": {}}, {"approvals"}),
        ({"tools": ["x"], "hitl_tools": ["x"]}, {"approvals"}),
        ({"policy": {"rules": [{"action": "deny"}]}}, set()),
        ({"policy": {"rules": [{"action": "require_approval"}]}}, {"approvals"}),
        ({"policy": {"default": "require_approval"}}, {"approvals"}),
        ({"allow_self_spawn": True}, {"children"}),
        ({"allow_parallel_subagents": True}, {"children"}),
        ({"mcp_servers": {"s": {"url": "http://x"}}}, {"progress"}),
        ({"mcp_servers": {"s": {"url": "http://x"}}, "emit_mcp_progress": False}, set()),
        ({"fallback_models": ["a:b"]}, {"fallback"}),
        ({"concurrency": {"runs_max": 1}}, {"concurrency"}),
    ],
)
def test_an_agent_needs_what_its_switched_on_features_need(fields: dict[str, Any], needed: set[str]) -> None:
    assert capabilities_needed(AgentConfig.from_config({"name": "a", **fields})) == needed


def test_a_configuration_that_says_nothing_is_decided_by_its_own_defaults() -> None:
    """The default of a key is the same for a stored run without it and for the shown configuration."""
    whole = AgentConfig.from_config({"name": "a", "retry": {}, "context": {}, "breaker": {}}).to_config()
    assert rules_of(whole) == rules_of({"model": whole["model"], "retry": {}, "context": {}, "breaker": {}})
