"""The preparation of a run: its tools, what its models can read, and what it remembers and knows.

The tools of a driver are opened once, at the first need, and listed again when a refresh asks for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError, FoldlogError, NotRegistered
from ...projections.run_state import RunState
from ..agents import budget_check, capabilities
from ..agents.agent import Agent
from ..agents.deps import Opened
from ..agents.standing_plan import with_plan
from ..agents.todo import of_run
from ..agents.workflow.table import WorkflowTable
from ..agents.workflow.workflow import Decider, Workflow
from ..core.commands import Command, KnowledgeRead, PreparationFailed, ToolsResolved
from ..core.effects import Evaluate, Prepare
from ..core.offloading import is_offered, with_retrieval
from ..core.rules import Rules
from ..core.tool_refresh import removed
from ..journal.journal import Journal
from ..journal.outages import through_outages
from ..ports.runnable import Runnable
from ..ports.settings import TOOL_CHOICES
from ..ports.tools import Tool, ToolSource, ToolSourceUnavailable
from ..shared.plans import PlanOfRun
from ..tools.decorator import expose
from ..tools.run_context import RunContext, facts_of
from . import hydration
from .host import Host


class Preparation:
    """The tools of one run in this process, and the commands that prepare the run with them."""

    def __init__(self, host: Host, journal: Journal) -> None:
        self._host, self._journal = host, journal
        self._tools: Mapping[str, Tool] | None = None
        self._source: ToolSource | None = None
        self._opening = asyncio.Lock()
        self._own_deps: Opened[Any] | None = None

    @property
    def known(self) -> Mapping[str, Tool] | None:
        """The run's tools, once they were opened."""
        return self._tools

    @property
    def at_hand(self) -> Mapping[str, Tool] | None:
        """The run's tools, if they are available without waiting."""
        return None if self._opening.locked() else self._tools

    async def tools(self) -> Mapping[str, Tool]:
        """Return the run's tools in this process; connects to its tool servers at the first call."""
        if self.at_hand is not None:
            return self.at_hand
        async with self._opening:
            if self._tools is None:
                self._source, self._tools = await self._opened(self._journal.state.mcp_servers)
        return self._tools

    async def aclose(self) -> None:
        """Disconnect from the tool servers."""
        if self._source is not None:
            await self._source.aclose()

    def at_once(self) -> ToolsResolved:
        """Open the tools of a run without servers, and return what it is prepared with. Raises `ConfigError`."""
        self._tools = self._python_tools()
        return self.resolved(self._tools)

    def _python_tools(self) -> dict[str, Tool]:
        """Return the tools that need no server."""
        tools = self._host.registry.resolve(self._agent)
        if self._journal.state.flow is not None:
            return tools  # the same mapping, to which the code adds the tools that it calls
        own = of_run(tools, lambda: self._journal.state)
        if (plan := self._plan()) is not None:
            own = with_plan(own, plan)
        return with_retrieval(
            own, self._journal.rules, self._host.log.artifacts.of(self._journal.subject.root)
        )

    def decider(self, state: RunState) -> Decider:
        """Return the code of a workflow's run, at its beginning. Raises `NotRegistered`."""
        workflow = self._agent
        if not isinstance(workflow, Workflow):
            raise NotRegistered(f"{workflow.kind} {workflow.name!r} is not a workflow in this process")
        roll_back, subject = self._host.roll_back, self._journal.subject
        if not isinstance(workflow, WorkflowTable) or roll_back is None:
            return workflow.decider(state)
        decider = workflow.decider(state)
        clock = self._host.log.clock
        decider.roll_back = lambda: through_outages(clock, roll_back, subject)
        return decider

    async def deps(self) -> Any:
        """Open what the code of the run depends on, at the first call. Raises `ConfigError`."""
        deps = self._host.registry.deps
        if deps.factory is None:
            return None
        if deps.of_each_run and self._own_deps is None:
            self._own_deps = deps.of_run(RunContext(facts_of(self._journal.state), None))
        opened = await (self._own_deps.value() if self._own_deps is not None else deps.shared())
        self._agent.check_deps(opened)
        return opened

    async def close_deps(self) -> None:
        """Close what was opened for the code of this run alone."""
        if self._own_deps is not None:
            await self._own_deps.aclose()

    async def prepare(self, effect: Prepare) -> Command:
        """Return the command that prepares the run, or says why it cannot be prepared."""
        number = effect.refresh
        try:
            found = self.resolved(await (self._listed_again() if number else self.tools()))
            if not number:
                found = await self._planned(await self._instructed(await self._remembered(found)))
        except ToolSourceUnavailable as error:
            return PreparationFailed(error_type="tool_source_unavailable", message=str(error), refresh=number)
        except FoldlogError as error:
            return PreparationFailed(error_type="config_error", message=str(error), refresh=number)
        return msgspec.structs.replace(found, refresh=number)

    async def look_up(self) -> Command:
        """Return the command with the stored knowledge that fits the run's input."""
        try:
            return KnowledgeRead(await hydration.look_up(self._host, self._journal.state))
        except FoldlogError as error:
            return PreparationFailed(error_type="config_error", message=str(error))

    async def evaluate(self, effect: Evaluate) -> Any:
        """Return the value of a function of the run; of an agent, why a validator refuses its output, or null."""
        agent = self._agent
        if not isinstance(agent, Agent):
            return await agent.evaluate(effect.name, effect.argument)
        run = RunContext(facts_of(self._journal.state), await self.deps())
        return await self._host.registry.refusal_of(agent, effect.name, effect.argument, run)

    def resolved(self, tools: Mapping[str, Tool]) -> ToolsResolved:
        """Return what the run is prepared with. Raises `ConfigError`."""
        rules = self._journal.rules
        if self._journal.state.flow is not None:
            return ToolsResolved(tools=tuple(tool.spec for tool in self._listed(tools)), model="")
        if self._journal.state.kind != "agent":
            return ToolsResolved(tools=(), model="")
        for name in rules.models:
            provider, model = self._host.registry.provider(name)
            provider.check(model)
        if self._journal.state.submitted is not None:
            capabilities.check(self._host.registry.provider, self._journal.state.submitted.config, rules)
        self._host.registry.price_book()
        budget_check.check(self._host.registry, rules)
        gone = removed(self._journal.state)
        offered = [
            tool.spec
            for name, tool in tools.items()
            if name not in gone and is_offered(tool.spec, self._journal.state, rules)
        ]
        if not self._journal.state.prepared:  # later a tool may be gone, and with it its calls
            self._check_named(rules, {spec.name for spec in offered})
        specs = tuple(expose(spec, rules.injected_tool_args) for spec in offered)
        window = budget_check.window_tokens(self._host.registry, rules)
        return ToolsResolved(tools=specs, model=rules.model, window_tokens=window)

    def _check_named(self, rules: Rules, offered: AbstractSet[str]) -> None:
        """Raise `ConfigError` for a tool that the configuration names, and that its servers do not have."""
        choice = rules.settings.tool_choice
        for key, names in (
            ("hitl_tools", rules.hitl_tools),
            ("settings.tool_choice", {choice or "auto"}.difference(TOOL_CHOICES)),
        ):
            if unknown := names - offered:
                raise ConfigError(
                    f"{key} names {min(unknown)!r}, which agent {self._journal.state.agent!r} does not have"
                )

    def _listed(self, tools: Mapping[str, Tool]) -> list[Tool]:
        """Return the tools that a workflow lists; the others are known once its code calls them."""
        if isinstance(self._agent, WorkflowTable):
            return [tools[name] for name in self._agent.config.tools]
        submitted = self._journal.state.submitted
        names = (submitted.config.get("tools") or ()) if submitted is not None else ()
        return [tools[name] for name in names]

    async def _remembered(self, found: ToolsResolved) -> ToolsResolved:
        limit = self._journal.rules.context.history_messages_max
        hydrated = await hydration.recall(self._host, self._journal.state, limit)
        return msgspec.structs.replace(found, hydrated=hydrated)

    async def _instructed(self, found: ToolsResolved) -> ToolsResolved:
        """Add the instructions from the agent's function, if it has one."""
        agent = self._agent
        if not isinstance(agent, Agent) or agent.config.instructions_function is None:
            return found
        run = RunContext(facts_of(self._journal.state), await self.deps())
        text = await self._host.registry.instructions(agent, run)
        submitted = self._journal.state.submitted
        suffix = submitted.overrides.get("instructions_suffix") if submitted is not None else None
        return msgspec.structs.replace(found, instructions="\n\n".join(filter(None, (text, suffix))))

    async def _planned(self, found: ToolsResolved) -> ToolsResolved:
        """Add the standing plan that the agent follows, if it has one."""
        plan = self._plan()
        if plan is None:
            return found
        told = self._host.registry.told_plan(RunContext(facts_of(self._journal.state), None))
        return msgspec.structs.replace(found, standing_plan=await plan.text() if told is None else told)

    def _plan(self) -> PlanOfRun | None:
        state, log = self._journal.state, self._host.log
        name = state.submitted.config.get("standing_plan") if state.submitted is not None else None
        return None if name is None else PlanOfRun(log, name, self._journal.subject, state.agent)

    async def _listed_again(self) -> Mapping[str, Tool]:
        """List the tools again, with the servers of the refresh; new connections open before the old ones close."""
        refresh = self._journal.state.refresh
        servers = self._journal.state.mcp_servers | (refresh.mcp_servers if refresh is not None else {})
        async with self._opening:
            before = self._source
            self._source, self._tools = await self._opened(servers)
            if before is not None:
                await before.aclose()
        return self._tools

    async def _opened(self, servers: Mapping[str, Any]) -> tuple[ToolSource | None, Mapping[str, Tool]]:
        tools = self._python_tools()
        if not servers:
            return None, tools
        source = await self._host.registry.tool_sources().open(servers)
        return source, {**tools, **source.tools}

    @functools.cached_property
    def _agent(self) -> Runnable:
        """Return the run's agent with the configuration that the run stored: this process may have a newer one."""
        state = self._journal.state
        live, submitted = self._host.runnable_of(state), state.submitted
        if isinstance(live, Workflow) and submitted:
            return self._host.registry.version_of(live, submitted.config)
        return live.as_stored(submitted.config) if isinstance(live, Agent) and submitted else live
