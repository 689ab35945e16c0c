"""A swarm's configuration: it round-trips, and what is wrong is named by its key."""

import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog.errors import AgentConfigError, FlowError
from foldlog.replay.strategies.swarms import flows
from foldlog.runtime import Agent, tool
from foldlog.runtime.agents.kinds import runnable_of_table
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.swarm import Swarm
from foldlog.runtime.core.swarm import format_flow, names_in
from hypothesis import assume, given


def agent(name: str, **fields: Any) -> Agent:
    return Agent(name, model="scripted:x.json", **fields)


WRONG = "swarm 's':"
KINDS = "'agent', 'ralph', 'swarm', 'workflow'"
A, B, C = agent("a"), agent("b"), agent("c")


@tool(effect="pure")
def look(place: str) -> str:
    """Look."""
    return place


def test_a_swarm_round_trips_through_its_configuration_with_its_agents() -> None:
    inner = Swarm([B, C], "(b | c)", name="inner")
    swarm = Swarm([agent("a", tools=[look], max_steps=3), inner], flow="a >>  (inner)*2", name="outer")
    config = swarm.to_config()
    again = Swarm.from_config(config)
    assert again.to_config() == config
    assert again.digest == swarm.digest
    assert again.flow == swarm.flow
    assert config["flow"] == "a >>  (inner)*2"
    assert config["agents"][0] == {**swarm.agents["a"].to_config()}
    assert config["agents"][1] == inner.to_config()
    assert isinstance(again.agents["inner"], Swarm)


@given(flows())
def test_a_tree_as_the_flow_is_stored_as_text(flow: Any) -> None:
    assume(names_in(flow))
    agents = [agent(name) for name in names_in(flow)]
    swarm = Swarm(agents, flow, predicates={"p": bool, "q": bool})
    assert swarm.to_config()["flow"] == format_flow(flow)
    assert Swarm.from_config(swarm.to_config()).flow == swarm.flow == flow


def test_a_swarm_is_written_in_toml() -> None:
    text = """
        name = "support"
        flow = 'triage >> {"bug": fixer, else: human}'
        [[agents]]
        name = "triage"
        [[agents]]
        name = "fixer"
        [[agents]]
        kind = "swarm"
        name = "human"
        mode = "handoff"
        entry = "second"
        [[agents.agents]]
        name = "first"
        [[agents.agents]]
        kind = "agent"
        name = "second"
    """
    swarm = Swarm.from_config(tomllib.loads(text))
    assert repr(swarm) == '<Swarm support triage >> {"bug": fixer, else: human}>'
    assert repr(swarm.agents["human"]) == "<Swarm human handoff>"


def test_a_swarm_never_changes() -> None:
    swarm = Swarm([A], "a")
    with pytest.raises(AttributeError, match="frozen: name"):
        swarm.name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen: flow"):
        del swarm.flow
    with pytest.raises(TypeError):
        swarm.agents["b"] = B  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flwo": "a"}, "swarm 's': unknown key 'flwo'; did you mean 'flow'?"),
        ({"agents": []}, "swarm 's': agents: at least one is required"),
        ({"agents": "ab"}, "swarm 's': agents: must be a list of tables, not 'ab'"),
        ({"agents": [3]}, "swarm 's': agents.0: 3 must be a table"),
        (
            {"agents": [{"kind": "loop"}]},
            "swarm 's': agents.0: kind is 'loop'; known are 'agent', 'ralph', 'swarm', 'workflow'",
        ),
        (
            {"agents": [{"name": "a", "step": 1}]},
            "swarm 's': agents.0: agent 'a': unknown key 'step'; did you mean 'max_steps'?",
        ),
        ({"agents": [{"kind": ["swarm"]}]}, f"{WRONG} agents.0: kind is ['swarm']; known are {KINDS}"),
        (
            {"agents": [{"kind": "ralph", "name": "l", "runnable": {"kind": "agent", "config": {}}}]},
            f"{WRONG} agents.0: loop 'l': runnable.config: the key 'name' is required",
        ),
        ({"agents": [{"name": "a"}, {"name": "a"}]}, "swarm 's': agents: two are named 'a'; rename one"),
        (
            {"agents": [{"name": "a"}, {"name": "b"}]},
            f"{WRONG} agents: 'b' does not occur in the flow; add it there or remove it",
        ),
        (
            {"mode": "workflwo"},
            "swarm 's': mode: Input should be 'workflow', 'handoff' or 'team', not 'workflwo'",
        ),
        ({"mode": "team"}, "swarm 's': flow: belongs to mode 'workflow', and this is mode 'team'"),
        (
            {"entry": "a"},
            f"{WRONG} entry: belongs to the modes 'handoff' and 'team'; a workflow begins where its flow does",
        ),
        (
            {"mode": "team", "flow": "", "entry": "aa"},
            f"{WRONG} entry: 'aa' is not one of the agents; did you mean 'a'?",
        ),
        ({"max_handoffs": -1}, "swarm 's': max_handoffs: Input should be greater than or equal to 0, not -1"),
        ({"name": "s 1"}, "swarm 's 1': name: 's 1' must be 1 to 64 letters, digits, '_' or '-'"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentConfigError) as failed:
        Swarm.from_config({"name": "s", "agents": [{"name": "a"}], "flow": "a", **changes})
    assert str(failed.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Swarm([A], 3), "swarm 'swarm': flow: .*not 3"),  # type: ignore[arg-type] # what it is about
        (lambda: Swarm([A], "a", predicates={"urgent": 3}), "predicates.urgent: 3 is not a function"),  # type: ignore[dict-item]
        (lambda: Swarm([A], "a", predicates=[bool]), "predicates: must be functions by name"),  # type: ignore[arg-type]
        (lambda: Swarm.from_config(3), "a swarm's configuration must be a table, not 3"),  # type: ignore[arg-type]
        (lambda: agent("a").from_config(3), "an agent's configuration must be a table, not 3"),  # type: ignore[arg-type]
    ],
    ids=["flow", "predicate", "predicates", "configuration", "agent"],
)
def test_a_thing_of_another_type_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(AgentConfigError, match=message):
        make()


def test_a_flow_that_is_wrong_points_into_its_text() -> None:
    with pytest.raises(FlowError, match="no agent is named 'b'"):
        Swarm([A], "a >> b")
    with pytest.raises(FlowError, match="expected a name"):
        Swarm([A])


@pytest.mark.parametrize("flow", ["a >> \ud800", 'a >> {"\ud800": b, else: pass}'])
def test_a_flow_that_is_not_unicode_is_an_error_that_can_be_printed(flow: str) -> None:
    with pytest.raises(FlowError, match="a character that is not valid Unicode") as caught:
        Swarm([A, B], flow)
    assert str(caught.value).encode().endswith(b"^")
    assert caught.value.column == flow.index("\ud800") + 1


def test_a_flow_of_a_swarm_within_is_told_by_its_whole_key() -> None:
    inner = {"kind": "swarm", "name": "inner", "flow": "a >>", "agents": [{"name": "a"}]}
    table = {"name": "outer", "flow": "inner", "agents": [inner]}
    loop = {"kind": "ralph", "name": "loop", "runnable": {"kind": "swarm", "config": table}}
    with pytest.raises(FlowError) as caught:
        runnable_of_table(loop)
    (problem,) = caught.value.problems
    assert problem.key == caught.value.key == "runnable.config.agents.0.flow"
    assert problem.message == (
        "runnable.config.agents.0.flow: line 1, column 5: expected a name, '(' or '{', but the flow ends"
    )
    assert str(caught.value).splitlines()[1:] == ["    a >>", "        ^"]


def test_a_predicate_that_is_a_function_is_given_to_the_object_and_stored_by_its_name() -> None:
    with pytest.raises(FlowError, match="no predicate is named 'urgnet'; did you mean 'urgent'"):
        Swarm([A, B], "{urgnet: a, else: b}", predicates={"urgent": bool})
    swarm = Swarm([A, B], "{urgent: a, else: b}", predicates={"urgent": bool})
    assert Swarm.from_config(swarm.to_config()).flow == swarm.flow


@pytest.mark.parametrize("given", ["a", A, {"a": A}, [3], [look], 3])
def test_only_agents_and_swarms_are_members(given: Any) -> None:
    with pytest.raises(AgentConfigError, match="swarm 'swarm': agents: "):
        Swarm(given, "a")


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AgentConfigError, match=r"^swarm 'swarm': agents.0: the key 'name' is required$"):
        Swarm.from_config({"agents": [{}]})
    with pytest.raises(AgentConfigError, match="swarm 'swarm': agents: must be a list of tables, not None"):
        Swarm.from_config({})


def test_what_is_wrong_with_all_of_its_agents_is_told() -> None:
    within = {"kind": "swarm", "name": "s", "flow": "c >>", "agents": [{"name": "c"}]}
    with pytest.raises(AgentConfigError) as failed:
        Swarm.from_config({"agents": [{"name": "a", "step": 1}, {"name": "b"}, within, {"max_steps": 0}]})
    keys = [problem.key for problem in failed.value.problems]
    assert keys == ["agents.0.step", "agents.2.flow", "agents.3.name", "agents.3.max_steps"]
    assert "\n" not in str(failed.value)


def test_a_loop_is_an_agent_of_a_swarm() -> None:
    swarm = Swarm([RalphLoop(A, name="polish"), B], "polish >> b")
    again = Swarm.from_config(swarm.to_config())
    assert again.to_config() == swarm.to_config()
    assert isinstance(again.agents["polish"], RalphLoop)


def test_what_plays_has_what_its_mode_gives_it() -> None:
    relay = Swarm([agent("a", instructions="Be a."), B], mode="handoff", descriptions={"b": "all else"})
    handing = relay.members["a"].to_config()
    assert handing["output_schema"]["properties"]["handoff_to"]["enum"] == ["b", None]
    assert handing["instructions"].startswith("Be a.\n\nYou work with other agents")
    assert "- b: all else" in handing["instructions"]
    assert relay.agents["a"].to_config()["instructions"] == "Be a."
    team = Swarm([agent("a", instructions=lambda _: "now", tools=[look]), B], mode="team")
    lead = team.members["a"].to_config()
    assert (lead["tools"], lead["instructions"]) == (["look", "b"], "")
    assert "<lambda>" in lead["instructions_function"]


@pytest.mark.parametrize(
    ("agents", "options", "message"),
    [
        ([agent("a", output_schema={}), B], {"mode": "handoff"}, "'a' has an output_schema"),
        ([Swarm([A], "a"), B], {"mode": "team"}, "entry: 'swarm' is a swarm; a team is led by an agent"),
        ([A, B], {"mode": "team", "descriptions": {"c": "x"}}, "descriptions: 'c' is not one of the agents"),
        ([agent("look"), agent("a", tools=[look])], {"mode": "team", "entry": "a"}, "'look' occurs twice"),
    ],
)
def test_agents_that_do_not_fit_the_mode_are_refused(
    agents: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AgentConfigError, match=message):
        Swarm(agents, **options)
