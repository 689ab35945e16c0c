"""`foldlog agents check`: every mistake in a configuration is told, by file and key, before anything runs."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from foldlog.adapters.cli import app as root
from foldlog.eventlog import NotRegistered
from foldlog.runtime import Agent, Registry
from foldlog.runtime.agents.config import config_schema
from typer.testing import CliRunner, Result

ROOT = Path(__file__).parents[2]
SUPERVISOR = ROOT / "examples" / "ops_supervisor.toml"
MODULE = """
from foldlog.runtime import Agent, Registry, Swarm, tool

@tool
def deploy(reason: str) -> str:
    "Deploy."
    return reason

tools = Registry(tools=[deploy])
right = Agent("right", tools=[deploy])
pair = Swarm([Agent("told", instructions=lambda run: run["nothing"]), right], "told >> right")
wrong = Registry(agents=[Agent("a", tools=["deplay"]), Agent("b", model="nobody:x")], tools=[deploy])
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, in a directory with the files that are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "crew", raising=False)
    (tmp_path / "crew.py").write_text(MODULE)

    def run(*args: str, **files: str) -> Result:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return CliRunner().invoke(root.app, ["agents", "check", *args])

    return run


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a_toml": 'name = "a"\nmodle = "x:y"'}, "a.toml: unknown key 'modle'; did you mean 'model'?"),
        (
            {"a_toml": 'name = "a"\n[retry]\nattemps = 1'},
            "unknown key 'retry.attemps'; did you mean 'attempts'?",
        ),
        ({"a_json": '{"model": "x:y"}'}, "a.json: the key 'name' is required"),
        (
            {"a_json": '{"name": "a", "max_steps": 0}'},
            "max_steps: Input should be greater than or equal to 1",
        ),
        (
            {"a_toml": 'name = "a"\n[settings]\nqqq = 1'},
            "a.toml: unknown key 'settings.qqq'; known are 'temperature', 'top_p', 'max_tokens', 'stop', 'seed', ",
        ),
        (
            {"a_toml": 'name = "a"\n[settings]\ntool_choice = "deploy"'},
            "a.toml: settings.tool_choice: 'deploy' is not a tool of the agent; known are 'auto', 'none', 'required'",
        ),
        (
            {"a_toml": 'name = "a"\ntools = ["deploy"]\nhitl_tools = ["deplo"]'},
            "hitl_tools: 'deplo' is not a tool of the agent; did you mean 'deploy'?",
        ),
        (
            {"a_toml": 'name = "a"\n[mcp_servers.s]\ncomand = "x"\nurl = "http://x"'},
            "unknown key 'mcp_servers.s.comand'",
        ),
        (
            {"a_toml": 'name = "a"\n[mcp_servers.s]\nurl = "http://x"\neffects = {find = "safe"}'},
            "mcp_servers.s.effects.find: 'safe' is not an effect; known are pure, idempotent, unsafe",
        ),
        (
            {
                "a_toml": 'name = "a"\n[mcp_servers.s]\nurl = "http://x"\n'
                "[[mcp_servers.s.postconditions.pay.assertions]]\nhttp_statuss = {equals = 200}"
            },
            "s.postconditions.pay: tool 'pay', postcondition: there is no assertion 'http_statuss'; did you mean",
        ),
        (
            {"a_TOML": 'name = "a"\nhitl_tools = ["deploy"]'},
            "a.TOML: hitl_tools: 'deploy' is not a tool of the agent; list it in tools, too",
        ),
        ({"a_toml": "name = "}, "a.toml: it is not TOML: Invalid value (at end of document)"),
        ({"a_json": "[" * 100_000}, "a.json: it is nested too deeply"),
        ({"a_json": '\ufeff{"name": "ä"}'}, "a.json: name: 'ä' must be"),
        (
            {"a_json": '{"name": "a", "retry": {"attempts": 1, "attempts": 2}}'},
            "a.json: it is not JSON: duplicate key 'attempts'",
        ),
        ({"a_json": "[]"}, "a.json: expected a table with the agent's keys"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_its_key(check: Any, files: dict[str, str], told: str) -> None:
    (name,) = (name.replace("_", ".") for name in files)
    result = check(name, **files)
    assert result.exit_code == 1
    assert told in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_every_mistake_of_every_file_is_told_and_for_programs_too(check: Any) -> None:
    files = {
        "a_toml": 'name = "a"\nmodle = 1\nmax_step = 2',
        "b_json": '{"name": "b", "hitl_tools": ["c", "d"]}',
        "c_toml": 'name = "c"',
    }
    result = check("a.toml", "b.json", "c.toml", "d.toml", "--json", **files)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"]) == (1, False)
    found = {each["path"]: each for each in document["checked"]}
    assert {(p["key"], p["nearest"]) for p in found["a.toml"]["problems"]} == {
        ("modle", "model"),
        ("max_step", "max_steps"),
    }
    assert [problem["key"] for problem in found["b.json"]["problems"]] == ["hitl_tools", "hitl_tools"]
    assert found["c.toml"] == {
        "path": "c.toml",
        "kind": "agent",
        "agent": "c",
        "digest": Agent("c").digest,
        "problems": [],
    }
    assert "cannot be read" in found["d.toml"]["problems"][0]["message"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('tools = ["deplay"]', "tools: there is no tool 'deplay'; did you mean 'deploy'?"),
        ('model = "opnai:gpt-4o"', "model: the model 'opnai:gpt-4o': there is no provider 'opnai'"),
        ('fallback_models = ["nobody:x"]', "fallback_models: the model 'nobody:x'"),
        ('planning_model = "nobody:x"', "planning_model: the model 'nobody:x'"),
        (
            'tools = ["deploy"]\n[injected_tool_args]\nreason = "Why"',
            "injected_tool_args.reason: the tool 'deploy' has a parameter 'reason' of its own",
        ),
    ],
)
def test_with_a_registry_what_the_configuration_names_has_to_be_there(
    check: Any, text: str, told: str
) -> None:
    assert check("a.toml", a_toml=f'name = "a"\n{text}').exit_code == 0
    result = check("a.toml", "--registry", "crew:tools")
    assert result.exit_code == 1
    assert told in result.stdout


def test_agents_of_a_module_are_held_to_their_own_registry(check: Any) -> None:
    assert check("crew:right").exit_code == 0
    assert check("crew:pair").stdout.splitlines() == [
        "✓ crew:pair: swarm swarm",
        "✓ crew:pair: agent told",
        "✓ crew:pair: agent right",
    ]
    result = check("crew:wrong", "crew:nothing")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    for line, told in zip(lines, ("no tool 'deplay'", "no provider 'nobody'", "no attribute"), strict=True):
        assert told in line


def test_a_registry_that_cannot_be_loaded_is_wrong_usage(check: Any) -> None:
    result = check("a.toml", "--registry", "crew:nobody", a_toml='name = "a"')
    assert result.exit_code == 2
    assert "there is no attribute 'nobody'" in result.stderr


def test_the_supervisor_loads_with_its_tools_and_comes_back_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    registry = Registry.load("examples.ops_supervisor:tools")
    data = tomllib.loads(SUPERVISOR.read_text())
    agent = Agent.from_config(data, registry)
    stored = agent.to_config()
    assert {key: stored[key] for key in data} == data
    jsonschema.validate(stored, config_schema(), cls=jsonschema.Draft202012Validator)
    again = Agent.from_config(json.loads(json.dumps(stored)), registry)
    assert (again.config, again.digest) == (agent.config, agent.digest)


def test_a_file_that_leaves_tools_out_is_checked_with_those_it_wants_approvals_for(check: Any) -> None:
    supervisor = 'name = "a"\nhitl_tools = ["deploy"]'
    assert check("a.toml", "--registry", "crew:tools", a_toml=supervisor).exit_code == 0
    result = check("a.toml", a_toml=supervisor)
    assert result.exit_code == 1
    assert "hitl_tools: 'deploy' is not a tool of the agent; list it in tools, too" in result.stdout


@pytest.mark.parametrize("missing", ["deploy_service", "rotate_credentials"])
def test_the_supervisor_without_a_tool_is_refused_by_its_name(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    known = Registry.load("examples.ops_supervisor:tools").tools
    registry = Registry(tools=[tool for name, tool in known.items() if name != missing])
    with pytest.raises(NotRegistered, match=missing):
        Agent.from_config(tomllib.loads(SUPERVISOR.read_text()), registry)


def test_a_swarm_in_a_file_is_checked_with_its_agents(check: Any) -> None:
    flow = 'kind = "swarm"\nname = "s"\nflow = "a >> %s"\n[[agents]]\nname = "a"\n[[agents]]\nname = "b"'
    result = check("a.toml", a_toml=flow % "b")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "✓ a.toml: swarm s",
        "✓ a.toml: agent a",
        "✓ a.toml: agent b",
    ]
    result = check("a.toml", a_toml=flow % "c")
    assert result.exit_code == 1
    assert "no agent is named 'c'" in result.stdout
    result = check("a.toml", a_toml='kind = "swam"\nname = "s"')
    assert "kind is 'swam'; known are 'agent', 'ralph', 'swarm'" in result.stdout
