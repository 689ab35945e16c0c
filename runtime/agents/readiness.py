"""The readiness of a process for a run: checked before the run is claimed, and before a fork of it is stored.

It goes by what the run has stored: its configuration, the tools that it was prepared with, its open calls, and the open
runs below it; not by what this process would give a new run. Tools of MCP servers are not checked: a server that is
down is down for every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...eventlog.errors import ConfigError, NotRegistered
from ...eventlog.events import ToolSpec
from ...projections.retrieval import SOURCE as RETRIEVAL
from ...projections.run_state import SPAWN_SELF, CallState, RunState
from ..core import tool_refresh
from ..core.approvals import effective_arguments
from ..core.rules import Rules
from ..core.swarm.flow import tests_in
from ..ports import conditions
from ..ports.runnable import Runnable
from ..ports.schema_problems import value_problem
from ..ports.suggestions import unknown
from ..tools.decorator import expose
from .agent import Agent
from .kinds import runnable_of
from .subagents import PARALLEL
from .swarm import Swarm
from .workflow.workflow import Workflow

if TYPE_CHECKING:
    from ..ports.tools import Tool
    from .registry import Registry

_MCP = "mcp:"


class OpenRun(Protocol):
    """A run as far as it is known: a journal, or the turn that opens a fork."""

    @property
    def state(self) -> RunState:
        """The folded run."""
        ...

    @property
    def rules(self) -> Rules:
        """The rules of the run."""
        ...


class Readiness:
    """The check of one family. Its methods raise `ConfigError`, which says what is missing or has changed."""

    def __init__(self, registry: Registry, family: Mapping[str, OpenRun]) -> None:
        self._registry, self._family = registry, family

    def check(self, run: OpenRun, live: Runnable[Any]) -> None:
        """Check a run, which `live` would drive here, and all open runs below it."""
        state, submitted = run.state, run.state.submitted
        if submitted is None:
            return
        if state.unknown_type is not None:
            raise ConfigError(
                f"{submitted.kind} {state.path!r} has an event {state.unknown_type!r}, which this release does not know"
            )
        if run.rules.policy.is_conditional and not conditions.installed():
            raise ConfigError(
                f"{submitted.kind} {state.path!r}: its policy has conditions, and this process lacks the extra that "
                "evaluates them: pip install 'foldlog[cel]'"
            )
        if live.kind != submitted.kind:
            raise NotRegistered(
                f"{submitted.kind} {state.path!r} is a run of a {submitted.kind}, but {live.name!r} is a {live.kind} "
                "in this process"
            )
        tools: Mapping[str, Tool] = {}
        if isinstance(live, Workflow):
            live = self._registry.version_of(live, submitted.config)
        elif isinstance(live, Agent):
            live = live.as_stored(submitted.config)
            tools = self._registry.resolve(live)
            self._tools(run, tools)
        else:
            self._members(state, runnable_of(submitted.kind, submitted.config), live)
        self._registry.check(live)
        for child, call_id in state.open_children.items():
            below = self._family.get(child)
            if below is None or below.state.over:  # announced, but not started
                continue
            runnable = self._of_child(state, below.state, call_id, live, tools)
            if runnable is not None:
                self.check(below, runnable)

    def _members(self, state: RunState, stored: Runnable[Any], live: Runnable[Any]) -> None:
        """Check the functions and members of a swarm or loop, and of those in it, as stored."""
        for name in sorted(functions_used(stored) - live.functions):
            raise NotRegistered(f"{live.kind} {state.path!r}: there is no function {name!r} in this process")
        for name, member in stored.members.items():
            if name not in live.members:
                raise NotRegistered(f"{live.kind} {state.path!r}: {unknown('member', name, live.members)}")
            self._members(state, member, live.members[name])

    def _of_child(
        self,
        state: RunState,
        child: RunState,
        call_id: str | None,
        live: Runnable[Any],
        tools: Mapping[str, Tool],
    ) -> Runnable[Any] | None:
        """Return the runnable that drives an open child here; null if only the tool knows that starts it."""
        if call_id is None:
            return live.members.get(child.agent)  # checked by `_members`
        call = state.calls.get(call_id)
        if call is None:
            return None
        if call.name in {SPAWN_SELF, PARALLEL}:
            return live
        starts: Runnable[Any] | None = getattr(tools.get(call.name), "starts", None)
        if starts is not None and starts.name != child.agent:
            raise NotRegistered(
                f"agent {state.path!r}: the tool {call.name!r} has started {child.agent!r}, but starts {starts.name!r} "
                "in this process"
            )
        return starts

    def _tools(self, run: OpenRun, tools: Mapping[str, Tool]) -> None:
        """Check the tools that the run was prepared with, if it was."""
        state, rules = run.state, run.rules
        for name, stored in state.tools.items():
            if stored.source == RETRIEVAL or stored.source.startswith(_MCP):
                continue
            if name not in tools:
                raise NotRegistered(f"agent {state.path!r}: {unknown('tool', name, tools)}")
            now = expose(tools[name].spec, rules.injected_tool_args)
            change = None if tool_refresh.is_due(state) else _change(state, stored, now)
            if change is not None:
                raise NotRegistered(f"agent {state.path!r}: the tool {name!r} has changed: {change}")


def _change(state: RunState, stored: ToolSpec, now: ToolSpec) -> str | None:
    """Return how a tool differs from the one that the run was prepared with, if that matters to the run.

    Arguments that match the parameters which the model was sent must still match; a description may change.
    """
    if now.effect != stored.effect:
        return f"its effect was {stored.effect} and is now {now.effect}"
    if _canonical(now.postcondition) != _canonical(stored.postcondition):
        return "its postcondition is different"
    if _canonical(now.parameters) == _canonical(stored.parameters):
        return None
    required = set(now.parameters.get("required", ())) - set(stored.parameters.get("required", ()))
    if required:
        return f"it now requires {_named(required)}"
    removed = set(stored.parameters.get("properties", {})) - set(now.parameters.get("properties", {}))
    if removed and now.parameters.get("additionalProperties", True) is False:
        return f"it no longer has a parameter {_named(removed)}"
    open_calls = [*state.calls.values(), *state.planning.calls.values()]
    for call in open_calls:
        problem = _misfit(state, call, stored, now)
        if problem is not None:
            return f"the arguments of the call {call.id} no longer match it: {problem}"
    return None


def _misfit(state: RunState, call: CallState, stored: ToolSpec, now: ToolSpec) -> str | None:
    """Return why the arguments of an open call, right when the run was prepared, no longer match; null if they do."""
    if call.name != stored.name or call.result is not None or call.raw_arguments is not None:
        return None
    arguments = effective_arguments(state, call)
    if value_problem(arguments, stored.parameters) is not None:
        return None
    return value_problem(arguments, now.parameters)


def functions_used(runnable: Runnable[Any]) -> frozenset[str]:
    """Return the names of the functions that a configuration uses."""
    if isinstance(runnable, Swarm):
        return tests_in(runnable.flow) if runnable.flow else frozenset()
    return runnable.functions


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _named(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
