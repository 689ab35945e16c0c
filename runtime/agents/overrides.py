"""Overrides of one run: changes to an agent for one submission, within the limits of the agent itself.

A run may use another model and other settings, and have less than its agent: fewer steps, fewer tools, lower ceilings.
The resulting configuration is stored with the run, together with the overrides themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ..core.submission import check_text
from ..ports.runnable import Runnable
from ..ports.settings import as_table
from ..ports.suggestions import nearest
from .agent import Agent
from .config import BudgetsConfig

OVERRIDES = ("model", "settings", "max_steps", "instructions_suffix", "tools", "budgets")
"""The options of a run that change its agent for this run."""
_SPAWNS = {"spawn_self": "allow_self_spawn", "parallel_subagents": "allow_parallel_subagents"}


def overridden(agent: Runnable[Any], options: Mapping[str, Any]) -> tuple[Runnable[Any], dict[str, Any]]:
    """Return the agent for one run, and its overrides as stored; the agent unchanged if there are none.

    Raises `ConfigError` for an override that the agent does not allow.
    """
    given = {name: options[name] for name in OVERRIDES if options.get(name) is not None}
    if not given:
        return agent, {}
    if not isinstance(agent, Agent):
        names = " and ".join(given)
        raise ConfigError(
            f"{names}: only a run of an agent has such options, and {agent.name!r} is a {agent.kind}"
        )
    stored = _as_stored(given)
    config = agent.to_config()
    for name, value in stored.items():
        _APPLY[name](config, value)
    made = agent.config.from_config(config)
    tools = {name: tool for name, tool in agent.tools.items() if name in made.tools}
    return agent.derived(made, tools), stored


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
    own = [*config["tools"], *(name for name, allowed in _SPAWNS.items() if config[allowed])]
    for name in names:
        if name not in own and not any(name.startswith(f"mcp__{server}__") for server in servers):
            raise ConfigError(f"tools: the agent has no tool {name!r}{nearest(name, own)}")
    config["tools"] = [name for name in config["tools"] if name in names]
    for name, allowed in _SPAWNS.items():
        config[allowed] = config[allowed] and name in names
    kept = {server: _of_server(server, table, names) for server, table in servers.items()}
    config["mcp_servers"] = {server: table for server, table in kept.items() if table["tools"]}
    config["hitl_tools"] = [name for name in config["hitl_tools"] if name in names]


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
    lower = BudgetsConfig.model_validate(budgets).model_dump(mode="json", exclude_none=True)
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
