"""The check before a fork: does a process have all that the fork needs? It reports everything missing, in one error.

It goes by what the runs stored: their configurations, and the tools that they were prepared with. Models, prices, tool
servers and memory are needed wherever the fork is driven; agents, Python tools and keys only if it is driven here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...eventlog.errors import ConfigError, NotRegistered
from ...eventlog.events import Submitted
from ...eventlog.ports import Log
from ...projections.run_state import RunState
from ..agents import budget_check, capabilities
from ..agents.agent import Agent
from ..agents.kinds import runnable_of
from ..agents.loop import RalphLoop
from ..agents.readiness import Readiness
from ..agents.registry import Registry
from ..agents.workflow.program import Divergence
from ..agents.workflow.table import WorkflowTable
from ..agents.workflow.workflow import Workflow
from ..core.rules import rules_of
from ..core.workflow.places import described
from ..ports.executor import Executor, require
from ..ports.memory import memory_use
from ..ports.runnable import Runnable, all_members
from .family import Opening, Shared


class ForkCheck:
    """The check of one fork. With an executor that drives here, `given` is the agent for the forked run."""

    def __init__(self, registry: Registry, log: Log, executor: Executor, given: Runnable[Any] | None) -> None:
        self._registry, self._log, self._executor, self._given = registry, log, executor, given
        self._here = executor.runs_in == "process"
        self._found: dict[str, tuple[ConfigError, list[str]]] = {}
        """The errors by message, with the agents that they concern."""
        self._seen: list[Runnable[Any]] = []

    def check(self, opening: Opening) -> None:
        """Raise `ConfigError` (`NotRegistered` if that is all) that names everything missing.

        Raises `UnsupportedByExecutor` for what the executor cannot do.
        """
        root = next(iter(opening.values()))
        submitted = root.turn.state.submitted
        assert submitted is not None  # noqa: S101 - for the type checker
        stored = runnable_of(submitted.kind, submitted.config)
        for each in all_members(stored):
            if isinstance(each, WorkflowTable) and self._here:
                self._try(lambda table=each: self._registry.bind(table, self._live(table.name)))  # type: ignore[misc]
        self._refuse()
        self._capabilities(submitted, stored)
        self._runnable(stored, self._given, "")
        for shared in opening.values():
            if not shared.over:
                self._try(lambda shared=shared: self._going_on(shared))  # type: ignore[misc]
        if self._here and self._given is not None and not self._found:
            below = {run: shared.turn for run, shared in opening.items() if not shared.over}
            ready, given = Readiness(self._registry, below), self._given
            self._try(lambda: ready.check(root.turn, given))
        self._refuse()

    def _refuse(self) -> None:
        if self._found:
            only = all(type(error) is NotRegistered for error, _ in self._found.values())
            problems = "; ".join(_problem(message, whom) for message, (_, whom) in self._found.items())
            raise (NotRegistered if only else ConfigError)(f"the fork cannot go on: {problems}")

    def _try(self, attempt: Callable[[], object], whom: str = "") -> None:
        try:
            attempt()
        except ConfigError as error:
            _, concerned = self._found.setdefault(str(error), (error, []))
            if whom and whom not in concerned:
                concerned.append(whom)

    def _capabilities(self, submitted: Submitted, stored: Runnable[Any]) -> None:
        needed = {"messages"} if submitted.messages else set[str]()
        needed |= {"approvals"} if submitted.fork is not None and submitted.fork.tools != "run" else set()
        unbound = not self._here and any(isinstance(each, WorkflowTable) for each in all_members(stored))
        for each in all_members(stored) if unbound else self._registry.reachable(stored):
            require(self._executor, self._registry.capabilities(each) | needed)

    def _runnable(self, stored: Runnable[Any], live: Runnable[Any] | None, above: str) -> None:
        """Check a stored runnable against the one of this process, and all below it, including those tools start."""
        if self._here and live is None and not isinstance(stored, WorkflowTable):
            self._try(lambda: self._lacks(stored, above))
            return
        if isinstance(stored, Agent):
            self._agent(stored, live)
        if isinstance(stored, RalphLoop):
            self._try(lambda: stored.check_prices(self._registry.price_known))
        for name, member in stored.members.items():
            self._runnable(member, live.members.get(name) if live is not None else None, f"{stored.name}/")
        for started in self._registry.started_by(live if live is not None else stored):
            if not any(started is each for each in self._seen):
                self._seen.append(started)
                self._runnable(started, started, f"{stored.name}/")

    def _lacks(self, stored: Runnable[Any], above: str) -> None:
        if not above:
            self._registry.agent(stored.name)  # names those that exist
        raise NotRegistered(f"{stored.kind} {above + stored.name!r} is not in this process")

    def _agent(self, stored: Agent[Any], live: Runnable[Any] | None) -> None:
        config, rules = stored.config, rules_of(stored.config.to_config())
        for model in rules.models:
            self._try(lambda model=model: self._model(model), stored.name)  # type: ignore[misc]
        self._try(lambda: capabilities.check(self._registry.provider, config.to_config(), rules), stored.name)
        self._try(lambda: budget_check.check(self._registry, rules))
        if config.mcp_servers:
            self._try(lambda: self._registry.tool_sources().check(config.mcp_servers), stored.name)
        if self._here and live is not None:
            self._try(lambda: self._tools(stored.name, live, config.tools))

    def _model(self, model: str) -> None:
        provider, name = self._registry.provider(model)
        if self._here:
            provider.check(name)

    def _tools(self, agent: str, live: Runnable[Any], needed: Any) -> None:
        known = self._registry.resolve(live)
        lacking = [name for name in needed if name not in known]
        if lacking:
            raise NotRegistered(
                f"agent {agent!r} has no tool {', '.join(map(repr, lacking))} in this process"
            )

    def _going_on(self, shared: Shared) -> None:
        """Check what a run that goes on needs: the tools it was prepared with, servers added later, its memory."""
        state = shared.turn.state
        if state.kind == "workflow" and self._here:
            self._fits(state)
        if state.kind != "agent" or state.submitted is None:
            return
        if state.mcp_servers:
            self._registry.tool_sources().check(state.mcp_servers)
        if not state.prepared and (use := memory_use(state.submitted, state.run)) is not None:
            self._registry.memory(use.backend, self._log)

    def _fits(self, state: RunState) -> None:
        """Run the code of a workflow over what is shared, without an effect."""
        assert state.submitted is not None  # noqa: S101 - the caller has seen it
        assert state.flow is not None  # noqa: S101
        config, live = state.submitted.config, self._live(state.agent)
        workflow = self._registry.table(config, live) if "steps" in config else live
        if not isinstance(workflow, Workflow):
            return  # the check of the family has named it, or only code knows it
        decider = self._registry.version_of(workflow, config).decider(state)
        try:
            decider.go_on(state)
            if left := decider.unasked:
                raise Divergence(left[0], described(state.flow.asked[left[0]]), "")
        except Divergence as found:
            raise ConfigError(
                f"the code of workflow {state.agent!r} does not fit what it shares: {found}"
            ) from None
        finally:
            decider.close()

    def _live(self, name: str) -> Runnable[Any] | None:
        given = all_members(self._given) if self._given is not None else ()
        return next((each for each in given if each.name == name), self._registry.agents.get(name))


def _problem(message: str, whom: list[str]) -> str:
    """Return the problem, after the names of the agents that it concerns."""
    if not whom:
        return message
    names = ", ".join(map(repr, whom))
    return f"{'agent' if len(whom) == 1 else 'agents'} {names}: {message}"
