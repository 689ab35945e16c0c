"""Overrides of one run: changes to an agent for one submission, within the limits of the agent itself.

A run may use another model and other settings, and have less than its agent: fewer steps, fewer tools, lower ceilings.
The resulting configuration is stored with the run, together with the overrides themselves. A swarm or a loop hands its
overrides down to its members, each of which takes what applies to it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pydantic

from ...eventlog.errors import ConfigError
from ..core.submission import check_text
from ..ports.runnable import Runnable, all_members
from ..ports.settings import TOOL_CHOICES, as_table
from ..ports.suggestions import nearest
from .agent import Agent
from .config import AgentConfig, BudgetsConfig, tools_by_setting
from .loop import RalphLoop
from .swarm import Swarm

OVERRIDES = ("model", "settings", "max_steps", "instructions_suffix", "tools", "budgets")
"""The options of a run that change its agent for this run."""
_SPAWNS = {"spawn_self": "allow_self_spawn", "parallel_subagents": "allow_parallel_subagents"}


def overridden(agent: Runnable[Any], options: Mapping[str, Any]) -> tuple[Runnable[Any], dict[str, Any]]:
    """Return the runnable for one run, and its overrides as stored; unchanged if there are none.

    Raises `ConfigError` for an override that the agent does not allow, or that means nothing to a swarm or a loop.
    """
    given = {name: options[name] for name in OVERRIDES if options.get(name) is not None}
    if not given:
        return agent, {}
    if not isinstance(agent, Agent):
        _check_members(agent, given)
        stored = _as_stored(given)
        return handed_down(agent, stored), stored
    stored = _as_stored(given)
    return _changed(agent, stored), stored


def handed_down(runnable: Runnable[Any], stored: Mapping[str, Any]) -> Runnable[Any]:
    """Return a member of a swarm or a loop for a run with these overrides, each as far as it applies to the member."""
    if isinstance(runnable, Agent):
        return _changed(runnable, _fitting(runnable.to_config(), stored))
    if isinstance(runnable, Swarm | RalphLoop) and stored:
        return runnable.with_agents(lambda member: handed_down(member, stored))
    return runnable


def _check_members(runnable: Runnable[Any], given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for overrides that a swarm or a loop cannot hand down."""
    below = list(all_members(runnable))
    team = next((each for each in below if isinstance(each, Swarm) and each.config.mode == "team"), None)
    if not isinstance(runnable, Swarm | RalphLoop) or team is not None:
        what = f"{team.name!r} is a team" if team is not None else f"{runnable.name!r} is a {runnable.kind}"
        raise ConfigError(
            f"{' and '.join(given)}: {what}, which hands no such options on to its agents: change the agents"
        )
    if "budgets" in given:
        raise ConfigError(
            f"budgets: a {runnable.kind} has none of its own: set those of its agents"
            + (", or the `stop` of the loop" if isinstance(runnable, RalphLoop) else "")
        )
    configs = [each.to_config() for each in below if isinstance(each, Agent)]
    steps, most = given.get("max_steps"), max(config["max_steps"] for config in configs)
    if isinstance(steps, int) and steps > most:
        raise ConfigError(f"max_steps: the agents of {runnable.name!r} allow at most {most}, not {steps}")
    for name in _names(given["tools"]) if "tools" in given else ():
        if not any(_offers(config, name) for config in configs):
            own = [tool for config in configs for tool in config["tools"]]
            raise ConfigError(f"tools: no agent of {runnable.name!r} has a tool {name!r}{nearest(name, own)}")
    choice = _chosen_tool(given)
    if choice is not None and not any(_offers(config, choice) for config in configs):
        raise ConfigError(f"settings.tool_choice: no agent of {runnable.name!r} has a tool {choice!r}")


def _chosen_tool(given: Mapping[str, Any]) -> str | None:
    """Return the tool that the overrides have the model call first; null for none, and for a choice that is wrong."""
    choice = as_table(given["settings"]).get("tool_choice") if "settings" in given else None
    return choice if isinstance(choice, str) and choice not in TOOL_CHOICES else None


def _fitting(config: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides as far as they apply to an agent: fewer steps than its own, and those tools that it has."""
    fitting = dict(stored)
    if "tools" in stored:
        fitting["tools"] = [name for name in stored["tools"] if _offers(config, name)]
    if isinstance(stored.get("max_steps"), int):
        fitting["max_steps"] = min(stored["max_steps"], config["max_steps"])
    choice = _chosen_tool(stored)
    if choice is not None and not _offers({**config, "tools": fitting.get("tools", config["tools"])}, choice):
        fitting["settings"] = {**stored["settings"], "tool_choice": None}
    return fitting


def _offers(config: Mapping[str, Any], name: str) -> bool:
    try:
        _select_tools(copy.deepcopy(dict(config)), [name])
    except ConfigError:
        return False
    return True


def _changed(agent: Agent[Any], stored: Mapping[str, Any]) -> Agent[Any]:
    """Return the agent for a run with these overrides. Raises `ConfigError` for one that it does not allow."""
    config = agent.to_config()
    for name, value in stored.items():
        _APPLY[name](config, value)
    made = agent.config.from_config(config)
    tools = {name: tool for name, tool in agent.tools.items() if name in made.tools}
    return agent.derived(made, tools)


def _as_stored(given: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides as JSON. Raises `ConfigError`."""
    stored = dict(given)
    if "settings" in given:
        stored["settings"] = as_table(given["settings"])
    if "tools" in given:
        stored["tools"] = _names(given["tools"])
    if "budgets" in given:
        found = given["budgets"]
        stored["budgets"] = (
            found.model_dump(mode="json", exclude_none=True) if isinstance(found, BudgetsConfig) else found
        )
    try:
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(stored))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(f"the options of a run must hold JSON values: {error}") from None
    return plain


def _names(given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"tools: must be a list of names, not {given!r:.60}")
    for each in given:
        check_text("the name of a tool", each)
    return list(given)


def _set_model(config: dict[str, Any], model: Any) -> None:
    config["model"] = model


def _merge_settings(config: dict[str, Any], settings: dict[str, Any]) -> None:
    config["settings"] = {**(config.get("settings") or {}), **settings}


def _limit_steps(config: dict[str, Any], steps: Any) -> None:
    most = config["max_steps"]
    if isinstance(steps, int) and steps > most:
        raise ConfigError(f"max_steps: the agent allows {most}, not {steps}")
    config["max_steps"] = steps


def _add_instructions(config: dict[str, Any], suffix: Any) -> None:
    """Append to a text; the text of a function is only computed at preparation, and appended to then."""
    check_text("instructions_suffix", suffix)
    if config.get("instructions_function") is None:
        config["instructions"] = "\n\n".join(filter(None, (config["instructions"], suffix)))


def _select_tools(config: dict[str, Any], names: list[str]) -> None:
    servers = config["mcp_servers"]
    native = config.get("native_tools") or []
    spawns = [name for name, allowed in _SPAWNS.items() if config[allowed]]
    own = [*config["tools"], *spawns, *(table["type"] for table in native)]
    for name in names:
        if name not in own and not any(name.startswith(f"mcp__{server}__") for server in servers):
            raise ConfigError(f"tools: the agent has no tool {name!r}{nearest(name, own)}")
    config["tools"] = [name for name in config["tools"] if name in names]
    for name, allowed in _SPAWNS.items():
        config[allowed] = config[allowed] and name in names
    if native:
        config["native_tools"] = [table for table in native if table["type"] in names] or None
    kept = {server: _of_server(server, table, names) for server, table in servers.items()}
    config["mcp_servers"] = {server: table for server, table in kept.items() if table["tools"]}
    kept_names = {*names, *tools_by_setting(config)}
    config["hitl_tools"] = [name for name in config["hitl_tools"] if name in kept_names]


def _of_server(server: str, table: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the table of a server with only the named tools. Raises `ConfigError` for a tool that it excludes."""
    prefix = f"mcp__{server}__"
    wanted = [name for name in names if name.startswith(prefix)]
    allowed = table.get("tools")
    for name in wanted:
        forms = {name, name.removeprefix(prefix)}
        if (allowed is not None and not forms & set(allowed)) or forms & set(table.get("exclude") or ()):
            raise ConfigError(f"tools: the agent does not offer {name!r}")
    return {**table, "tools": wanted}


def _lower_budgets(config: dict[str, Any], budgets: Any) -> None:
    try:
        lower = BudgetsConfig.model_validate(budgets).model_dump(mode="json", exclude_none=True)
    except pydantic.ValidationError as error:
        AgentConfig.from_config({**config, "budgets": budgets})  # names the key, as of an agent
        raise ConfigError(f"budgets: {error}") from None
    before = config.get("budgets") or {}
    step = {**(before.get("step") or {}), **(lower.get("step") or {})}
    for where, now, was in (
        ("budgets.", lower, before),
        ("budgets.step.", lower.get("step") or {}, before.get("step") or {}),
    ):
        for name, limit in now.items():
            if name != "step" and name in was and float(limit) > float(was[name]):
                raise ConfigError(f"{where}{name}: the agent allows {was[name]}, not {limit}")
    config["budgets"] = {**before, **lower, **({"step": step} if step else {})}


_APPLY: dict[str, Any] = {
    "model": _set_model,
    "settings": _merge_settings,
    "max_steps": _limit_steps,
    "instructions_suffix": _add_instructions,
    "tools": _select_tools,
    "budgets": _lower_budgets,
}
