"""Agents and the registry: what has a name is found by it, and what has none is refused with the nearest one."""

import sys
import types
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from foldlog.eventlog.errors import AgentConfigError, ConfigError, FoldlogError, NotRegistered
from foldlog.runtime.agents import registry as registry_module
from foldlog.runtime.agents.agent import Agent
from foldlog.runtime.agents.config import BudgetsConfig, config_digest
from foldlog.runtime.agents.registry import Registry
from foldlog.runtime.ports.models import Delta, ModelRequest
from foldlog.runtime.tools.decorator import tool
from foldlog.runtime.tools.run_context import RunContext, RunFacts


@tool(effect="pure")
def lookup(city: str) -> str:
    """Look a city up."""
    return city


def plain(number: int) -> int:
    """A function and no tool yet."""
    return number


class Weather(pydantic.BaseModel):
    city: str
    degrees: float = 0.0


class Provider:
    """A provider that only knows whether it was closed."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.closed = 0

    def check(self, model: str) -> None: ...

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        raise AssertionError(request)
        yield

    async def aclose(self) -> None:
        self.closed += 1


CONFIGURED = Provider()


class Sources:
    """A tool source that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def configured() -> dict[str, Provider]:
    return {"house": CONFIGURED}


def broken() -> None:
    raise RuntimeError("no key in the drawer")


def refused() -> None:
    raise ConfigError("no key in the environment")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry points of this module, in place of those installed."""
    module = types.ModuleType("plugins_of_the_test")
    fresh = type("Provider", (Provider,), {"made": 0})
    module.__dict__.update({"Provider": fresh, "Sources": Sources, "configured": configured})
    module.__dict__.update({"broken": broken, "refused": refused})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    installed = [
        EntryPoint(name, f"plugins_of_the_test:{attribute}", group)
        for group, name, attribute in (
            ("foldlog.providers", "cloud", "Provider"),
            ("foldlog.providers", "broken", "broken"),
            ("foldlog.providers", "refused", "refused"),
            ("foldlog.providers", "missing", "Nothing"),
            ("foldlog.provider_configs", "house", "configured"),
            ("foldlog.toolsources", "mcp", "Sources"),
        )
    ]
    monkeypatch.setattr(
        registry_module,
        "installed",
        lambda group: {each.name: each for each in installed if each.group == group},
    )
    yield
    CONFIGURED.closed = 0


# --- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_takes_functions_tools_and_names() -> None:
    agent = Agent("a", tools=[lookup, plain, "later"])
    assert agent.config.tools == ("lookup", "plain", "later")
    assert agent.tools["lookup"] is lookup
    assert agent.tools["plain"].spec.effect == "unsafe"
    assert "later" not in agent.tools
    assert (agent.name, repr(agent)) == ("a", "<Agent a openai:gpt-4o>")


def test_an_agent_is_frozen_and_equal_only_to_itself() -> None:
    agent, twin = Agent("a"), Agent("a")
    assert agent == agent  # noqa: PLR0124 - the point
    assert agent != twin
    assert len({agent, twin}) == 2
    with pytest.raises(AttributeError, match="frozen"):
        agent.config = twin.config
    with pytest.raises(AttributeError, match="frozen"):
        del agent.config
    with pytest.raises(TypeError):
        agent.tools["x"] = lookup  # type: ignore[index]


def test_every_field_of_the_configuration_can_be_given_to_an_agent() -> None:
    agent = Agent(
        "a", model="x:y", instructions="Be brief.", max_steps=3, budgets=BudgetsConfig(max_tokens=5)
    )
    assert (agent.config.model, agent.config.instructions, agent.config.max_steps) == ("x:y", "Be brief.", 3)
    assert agent.to_config()["budgets"] == {"max_tokens": 5}
    assert agent.digest == config_digest(agent.to_config())


def test_a_misspelt_argument_is_named_with_the_nearest_field() -> None:
    with pytest.raises(AgentConfigError, match="unknown key 'max_stepz'; did you mean 'max_steps'"):
        Agent("a", max_stepz=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("tools", [[lookup, lookup], [lookup, "lookup"], ["x", "x"], [plain, tool(plain)]])
def test_two_tools_of_one_name_are_refused(tools: list[Any]) -> None:
    with pytest.raises(AgentConfigError, match=r"two tools are named '(lookup|plain|x)'"):
        Agent("a", tools=tools)


@pytest.mark.parametrize("tools", ["lookup", {"lookup": lookup}, [3]])
def test_what_is_not_a_list_of_tools_is_refused(tools: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a list|is not a tool"):
        Agent("a", tools=tools)


def test_tools_given_as_a_set_are_put_in_order() -> None:
    names = {f"tool_{number}" for number in range(20)}
    assert Agent("a", tools=names).config.tools == tuple(sorted(names))


def test_a_tool_that_needs_approval_must_be_a_tool_of_the_agent() -> None:
    assert Agent("a", tools=[lookup], hitl_tools=["lookup"]).config.hitl_tools == ("lookup",)
    assert Agent("a", mcp_servers={"s": {"command": "x"}}, hitl_tools=["mcp__s__x"]).config.hitl_tools == (
        "mcp__s__x",
    )
    with pytest.raises(
        AgentConfigError, match="hitl_tools: 'lockup' is not a tool of the agent; did you mean 'lookup'"
    ):
        Agent("a", tools=[lookup], hitl_tools=["lockup"])


def test_a_configuration_without_tools_has_those_of_its_hitl_tools_that_are_registered() -> None:
    config = {"name": "a", "hitl_tools": ["lookup", "spawn_self"], "allow_self_spawn": True}
    registry = Registry(tools=[lookup])
    agent = Agent.from_config(config, registry)
    assert agent.config.tools == ("lookup",)
    assert Agent.from_config(agent.to_config(), registry).to_config() == agent.to_config()
    for told, given in (
        ("'lookup' is not a tool of the agent", config | {"tools": []}),
        ("'other' is not a tool of the agent", config | {"hitl_tools": ["lookup", "other"]}),
        ("hitl_tools: must be a list", config | {"hitl_tools": 3}),
    ):
        with pytest.raises(AgentConfigError, match=told):
            Agent.from_config(given, registry)
    for without in (None, Registry()):
        with pytest.raises(AgentConfigError, match="'lookup' is not a tool of the agent"):
            Agent.from_config(config, without)


def test_an_injected_argument_that_a_tool_has_is_refused_by_both_names() -> None:
    with pytest.raises(AgentConfigError, match=r"agent 'a': injected_tool_args.city: the tool 'lookup'"):
        Agent("a", tools=[lookup], injected_tool_args={"city": "x"})


def test_an_output_type_fills_the_schema_and_parses_the_output() -> None:
    agent = Agent("a", output_type=Weather)
    assert agent.config.output_schema == pydantic.TypeAdapter(Weather).json_schema()
    assert agent.parse_output({"city": "Bonn"}) == Weather(city="Bonn")
    assert agent.output_type is Weather
    with pytest.raises(ValueError, match="city"):
        agent.parse_output({})


def test_any_type_that_pydantic_knows_is_an_output_type() -> None:
    positive: Any = Annotated[list[int], pydantic.Field(min_length=1)]
    assert Agent("a", output_type=positive).config.output_schema == {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 1,
    }


def test_str_as_the_output_type_is_plain_text() -> None:
    agent = Agent("a", output_type=str)
    assert agent.config.output_schema is None
    assert agent.parse_output("as it is") == "as it is"


def test_a_wrong_output_type_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="output_schema and output_type cannot both be given"):
        Agent("a", output_type=Weather, output_schema={})
    with pytest.raises(AgentConfigError, match="has no JSON Schema"):
        Agent("a", output_type=type(lookup))


def test_instructions_that_are_a_function_are_a_name_in_the_configuration() -> None:
    def instructions(run: RunContext) -> str:
        return f"Answer {run.user}."

    agent = Agent("a", instructions=instructions)
    assert agent.config.instructions == ""
    assert agent.to_config()["instructions_function"].endswith("<locals>.instructions")
    again = Agent.from_config(agent.to_config())
    assert again.digest == agent.digest
    with pytest.raises(
        NotRegistered, match=r"'a': its instructions come from .*instructions, which is not in"
    ):
        Registry().check(again)
    assert Registry().resolve(agent) == {}


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda run: str(run.nothing), "failed: AttributeError"),
        (lambda _: 3, "returned int, not text"),
        (lambda _: "\ud800", "returned text that is not valid Unicode"),
    ],
    ids=["fails", "a number", "not unicode"],
)
async def test_instructions_that_fail_are_an_error_of_the_configuration(function: Any, problem: str) -> None:
    run = RunContext(RunFacts(run_id="r", agent_path="a", input="x"), None)
    with pytest.raises(AgentConfigError, match=f"'a': instructions: .*<lambda> {problem}"):
        await Agent("a", instructions=function).instructions_for(run)


def test_an_agent_of_a_stored_configuration_finds_its_tools_in_the_registry() -> None:
    stored = Agent("a", tools=[lookup, "plain"], hitl_tools=["plain"]).to_config()
    registry = Registry(tools=[lookup, plain])
    agent = Agent.from_config(stored, registry)
    assert agent.to_config() == stored
    assert list(registry.resolve(agent)) == ["lookup", "plain"]
    with pytest.raises(NotRegistered, match="agent 'a': there is no tool 'lookup'"):
        Agent.from_config(stored, Registry(tools=[plain]))


# --- the registry -----------------------------------------------------------------------------------------------------


def test_agents_and_tools_are_found_by_name() -> None:
    agent = Agent("helper")
    registry = Registry(agents=[agent], tools=[lookup, plain])
    assert registry.agent("helper") is agent
    assert registry.tool("lookup") is lookup
    assert (list(registry.agents), list(registry.tools)) == (["helper"], ["lookup", "plain"])
    assert registry.serves("helper")
    assert not registry.serves("other")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    registry = Registry(agents=[Agent("helper")], tools=[lookup])
    with pytest.raises(
        NotRegistered, match=r"there is no agent 'helpr'; did you mean 'helper'. known: helper"
    ):
        registry.agent("helpr")
    with pytest.raises(NotRegistered, match=r"there is no tool 'look'; did you mean 'lookup'. known: lookup"):
        registry.tool("look")
    with pytest.raises(NotRegistered, match="there is no agent 'x'; known: none"):
        Registry().agent("x")


def test_two_of_one_name_are_refused_and_both_are_named() -> None:
    with pytest.raises(
        ConfigError, match="two agents are named 'a': <Agent a openai:gpt-4o> and <Agent a x:y>"
    ):
        Registry(agents=[Agent("a"), Agent("a", model="x:y")])
    with pytest.raises(ConfigError, match=r"two tools are named 'lookup': lookup in .* and plain in .*"):
        Registry(tools=[lookup, tool(name="lookup")(plain)])


def test_what_is_neither_agent_nor_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not an agent"):
        Registry(agents=[lookup])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="is not a tool"):
        Registry(tools=[3])  # type: ignore[list-item]


def test_the_agents_own_tools_go_before_those_of_the_registry() -> None:
    mine = tool(name="lookup")(plain)
    agent = Agent("a", tools=[mine, "plain"])
    assert Registry(tools=[lookup, plain]).resolve(agent)["lookup"] is mine


def test_a_stored_agent_uses_the_tools_of_its_registered_namesake() -> None:
    registered = Agent("a", tools=[lookup])
    stored = Agent.from_config(registered.to_config())
    assert Registry(agents=[registered]).resolve(stored) == {"lookup": lookup}


def test_a_tool_that_nobody_registered_is_refused_by_name() -> None:
    agent = Agent("a", tools=[lookup, "plan"])
    with pytest.raises(NotRegistered, match="agent 'a': there is no tool 'plan'; did you mean 'plain'"):
        Registry(tools=[plain]).check(agent)


def test_a_clash_with_an_injected_argument_is_found_when_the_name_is_resolved() -> None:
    agent = Agent("a", tools=["lookup"], injected_tool_args={"city": "x"})
    with pytest.raises(AgentConfigError, match=r"injected_tool_args.city: the tool 'lookup'"):
        Registry(tools=[lookup]).check(agent)


# --- providers and tool sources ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plugins")
def test_a_provider_is_made_once_at_its_first_use() -> None:
    registry = Registry()
    provider, model = registry.provider("cloud:large:v2")
    assert model == "large:v2"
    assert registry.provider("cloud:small")[0] is provider
    assert type(provider).made == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("plugins")
def test_given_providers_go_before_installed_ones_and_those_before_configured_ones() -> None:
    mine = Provider()
    registry = Registry(providers={"cloud": mine})
    assert registry.provider("cloud:x") == (mine, "x")
    assert registry.provider("house:x") == (CONFIGURED, "x")


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "cluod:x",
            "there is no provider 'cluod'; did you mean 'cloud'. known: broken, cloud, house, missing, refused",
        ),
        ("gpt-4o", "must be written provider:model"),
        (":x", "must be written provider:model"),
        ("cloud:", "must be written provider:model"),
        ("broken:x", "the plugin 'broken' .* cannot be used: RuntimeError: no key in the drawer"),
        ("missing:x", "the plugin 'missing' .* cannot be used: AttributeError"),
        ("refused:x", "^no key in the environment$"),
    ],
)
def test_a_model_that_cannot_be_reached_is_refused(model: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Registry().provider(model)


@pytest.mark.usefixtures("plugins")
async def test_closing_closes_what_was_made_and_leaves_what_was_given() -> None:
    mine = Provider()
    registry = Registry(providers={"mine": mine})
    registry.provider("mine:x")
    registry.provider("house:x")
    made, _ = registry.provider("cloud:x")
    sources: Any = registry.tool_sources()
    await registry.aclose()
    await registry.aclose()
    assert (mine.closed, made.closed, CONFIGURED.closed, sources.closed) == (0, 1, 1, 1)  # type: ignore[attr-defined]
    assert registry.provider("cloud:x")[0] is not made


def test_without_an_installed_tool_source_agents_have_no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "installed", lambda _group: {})
    with pytest.raises(ConfigError, match="cannot use mcp_servers"):
        Registry().tool_sources()


def test_the_shipped_providers_and_sources_are_installed() -> None:
    registry = Registry()
    assert registry.tool_sources() is registry.tool_sources()
    with pytest.raises(ConfigError, match=r"known: .*openai.*scripted"):
        registry.provider("nobody:x")


# --- loading ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory whose module is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("app_of_the_test", None)


APP = """
from foldlog.runtime.agents.agent import Agent
from foldlog.runtime.agents.registry import Registry

agent = Agent("helper")
registry = Registry(agents=[agent])
number = 3

class holder:
    inner = registry
"""


@pytest.mark.parametrize("attribute", ["registry", "agent", "holder.inner"])
def test_a_registry_or_an_agent_is_loaded_from_the_working_directory(project: Path, attribute: str) -> None:
    (project / "app_of_the_test.py").write_text(APP)
    loaded = Registry.load(f"app_of_the_test:{attribute}")
    assert list(loaded.agents) == ["helper"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("app_of_the_test", "'app_of_the_test' must be written module:attribute"),
        ("app_of_the_test:", "must be written module:attribute"),
        (
            "./apps/app_of_the_test.py:agent",
            "must be written module:attribute; did you mean 'apps.app_of_the_test:agent'",
        ),
        (
            "apps/app_of_the_test.py",
            "must be written module:attribute; did you mean 'apps.app_of_the_test:registry'",
        ),
        ("agent.toml", "must be written module:attribute; a module loads the agent of such a file"),
        (".relative:registry", "must be written module:attribute"),
        ("a b:registry", "must be written module:attribute"),
        ("nowhere_at_all.x:registry", "there is no module 'nowhere_at_all'"),
        ("app_of_the_test.x:registry", "there is no module 'app_of_the_test.x'"),
        ("app_of_the_test:registri", "there is no attribute 'registri'; did you mean 'registry'"),
        ("app_of_the_test:registry.nothing", "there is no attribute 'nothing'"),
        (
            "app_of_the_test:number",
            "neither a Registry nor an agent, swarm, loop or workflow: its type is int",
        ),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(project: Path, path: str, message: str) -> None:
    (project / "app_of_the_test.py").write_text(APP)
    with pytest.raises(ConfigError, match=message):
        Registry.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nraise ValueError('no database')", r"app_of_the_test.py, line 2: ValueError: no database"),
        ("x = (", r"app_of_the_test.py, line 1: SyntaxError"),
        ("import sys\n\nsys.exit(3)", r"app_of_the_test.py, line 3: SystemExit: 3"),
        ("raise GeneratorExit('no')", r"app_of_the_test.py, line 1: GeneratorExit: no"),
        ("class Odd(BaseException): ...\nraise Odd", r"app_of_the_test.py, line 2: Odd: Odd"),
        ("\nimport nothing_like_it", r"app_of_the_test.py, line 2: ModuleNotFoundError: .*nothing_like_it"),
        (
            "from foldlog.runtime.agents.agent import Agent\nAgent('a b')",
            r"line 2: AgentConfigError: agent 'a b'",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_shown_with_its_line(
    project: Path, text: str, message: str
) -> None:
    (project / "app_of_the_test.py").write_text(text)
    with pytest.raises(FoldlogError, match=message):
        Registry.load("app_of_the_test:registry")
