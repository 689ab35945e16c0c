"""The registry of a process: its agents and tools by name, and the model providers and tool servers for them.

A worker loads one by its path (`Registry.load("my.module:registry")`). Providers are looked up in the given ones, then
in the entry points `foldlog.providers` (a class that is called without arguments), then in `foldlog.provider_configs`
(a function that returns providers by name); prices, tokenizers and memory in the groups below. Nothing is imported or
constructed before a run needs it.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, cast

from ...eventlog.errors import ConfigError, ConfigProblem, NotRegistered
from ...eventlog.events import TokenUsage
from ...eventlog.ports import Log
from ..core.rules import rules_of
from ..ports.knowledge import KnowledgeStore, NoKnowledge
from ..ports.memory import MemoryFactory, MemoryStore
from ..ports.models import ModelProvider
from ..ports.plugins import installed, made
from ..ports.prices import NoPrices, PriceBook
from ..ports.runnable import DepsT_co, Runnable, all_members, is_runnable
from ..ports.suggestions import near, unknown
from ..ports.tokens import Estimate, TokenCounter
from ..ports.tools import Tool, ToolFunction, ToolSourceFactory
from ..tools.decorator import check_injected
from ..tools.run_context import RunContext
from . import capabilities
from .agent import Agent, as_tool, check_clashes
from .deps import Deps, DepsFactory
from .secrets import SecretSource
from .standing_plan import PLAN_TOOLS
from .subagents import subagent_tools
from .todo import TODO_TOOLS
from .workflow.table import Registered, WorkflowTable
from .workflow.workflow import Workflow

PROVIDERS = "foldlog.providers"
PROVIDER_CONFIGS = "foldlog.provider_configs"
TOOL_SOURCES = "foldlog.toolsources"
PRICES = "foldlog.prices"
MEMORY = "foldlog.memory"
KNOWLEDGE = "foldlog.knowledge"
TOKENS = "foldlog.tokens"

_MODULE = re.compile(r"[^\s./:]+(\.[^\s./:]+)*")


class Registry(Generic[DepsT_co]):
    """Agents, workflows and tools by name, and the dependencies that `deps` opens; of a workflow several versions.

    Raises `ConfigError` for duplicate names, and for values of any other type.
    """

    files_elsewhere: AbstractSet[str] = frozenset()
    """Artifacts that messages may name although this log lacks them: nothing reads their bytes here."""

    def __init__(  # noqa: PLR0913 - its parts
        self,
        agents: Iterable[Runnable[Any, DepsT_co]] = (),
        tools: Iterable[Tool[DepsT_co] | ToolFunction] = (),
        providers: Mapping[str, ModelProvider] | None = None,
        *,
        prices: PriceBook | None = None,
        memories: Mapping[str, MemoryFactory] | None = None,
        knowledge: KnowledgeStore | None = None,
        secrets: Mapping[str, SecretSource] | None = None,
        deps: DepsFactory[DepsT_co] | None = None,
        workflows: Iterable[Runnable[Any, DepsT_co]] = (),
    ) -> None:
        self.deps = Deps(deps)
        self._agents: dict[str, Runnable[Any]] = {}
        self._versions: dict[tuple[str, str], Workflow[Any]] = {}
        """The versions of each workflow; `_agents` has the last one, which is for new runs."""
        self._stored: dict[str, Agent[Any]] = {}
        """Stored agents that this process may run, with the tools of all that it has."""
        self._tools: dict[str, Tool] = {}
        self._given = dict(providers or {})
        self._made: dict[str, ModelProvider] = {}
        self._configured: dict[str, ModelProvider] | None = None
        self._sources: ToolSourceFactory | None = None
        self._prices, self._knowledge = prices, knowledge
        self._secrets = dict(secrets or {})
        self._memories = dict(memories or {})
        self._stores: dict[tuple[str, int], tuple[Log, MemoryStore]] = {}
        for agent in (*agents, *workflows):
            self._add_agent(agent)
        for each in tools:
            self._add_tool(as_tool(each))
        for added in self._own_tools():
            self.deps.check_tool(added)
        for member in self._own_agents():
            self.deps.check_agent(member.name, member.deps_type)

    def __repr__(self) -> str:
        return f"<Registry agents={list(self._agents)} tools={list(self._tools)}>"

    @property
    def agents(self) -> Mapping[str, Runnable[Any]]:
        """The agents, swarms, loops and workflows by name."""
        return MappingProxyType(self._agents)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name, without those that agents bring with them."""
        return MappingProxyType(self._tools)

    @property
    def secrets(self) -> Mapping[str, SecretSource]:
        """The sources of the values of `secret://NAME`, by name."""
        return MappingProxyType(self._secrets)

    def adopt(self, config: Mapping[str, Any]) -> Agent[Any]:
        """Return the agent of a stored configuration, and know it by its name from now on, unless code has that name.

        It may name the registered tools, and those that other agents bring with them. Raises `AgentConfigError`.
        """
        agent: Agent[Any] = Agent.from_config(config)
        if agent.name not in self._agents:
            self._stored[agent.name] = agent
        return agent

    @property
    def offered_tools(self) -> Mapping[str, Tool]:
        """The tools that a stored agent may name; not those that two agents bring under one name."""
        return MappingProxyType(TODO_TOOLS | _brought(self._own_agents()) | self._tools)

    @property
    def providers(self) -> frozenset[str]:
        """The names of the model providers of this process. Raises `ConfigError` for a wrong configuration of them."""
        return frozenset((*self._given, *installed(PROVIDERS), *self._from_configs()))

    @property
    def mcp_servers(self) -> Mapping[str, list[dict[str, Any]]]:
        """The entries of MCP servers that registered agents have, by name; of one name several if they differ."""
        found: dict[str, list[dict[str, Any]]] = {}
        for agent in self._own_agents():
            for name, entry in agent.to_config()["mcp_servers"].items():
                if entry not in found.setdefault(name, []):
                    found[name].append(entry)
        return found

    def serves(self, agent_name: str) -> bool:
        """Return whether this process can drive runs of the agent."""
        return agent_name in self._agents or agent_name in self._stored

    def agent(self, name: str) -> Runnable[Any]:
        """Return the agent, swarm or loop of this name. Raises `NotRegistered`."""
        found = self._agents.get(name) or self._stored.get(name)
        if found is None:
            raise NotRegistered(unknown("agent", name, self._agents))
        return found

    def tool(self, name: str) -> Tool:
        """Return the tool of this name. Raises `NotRegistered`."""
        if name not in self._tools:
            raise NotRegistered(unknown("tool", name, self._tools))
        return self._tools[name]

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """Return all Python tools of the agent by name, in its order, then those for sub-agents if it may have them.

        A swarm or a loop has none. A name is looked up in the agent's own tools, those of the registered agent of the
        same name, and the registry's. Raises `NotRegistered` for an unknown name, `AgentConfigError` for a clash with
        an injected argument, `ConfigError` for a tool with dependencies if the registry has none.
        """
        if isinstance(agent, Workflow):
            return self._tools_of_workflow(agent)
        if not isinstance(agent, Agent):
            return {}
        agent.check_functions()
        self.deps.check_agent(agent.name, agent.deps_type, needed=True)
        known = self._known_tools(agent)
        for name in agent.config.tools:
            if name not in known:
                raise NotRegistered(f"agent {agent.name!r}: {unknown('tool', name, known)}")
            check_clashes(agent.config, known[name])
            self.deps.check_tool(known[name], needed=True)
        tools = {name: known[name] for name in agent.config.tools}
        if agent.config.standing_plan is not None:
            tools |= PLAN_TOOLS
        return tools | subagent_tools(agent, tools)

    def _tools_of_workflow(self, workflow: Workflow[Any]) -> dict[str, Tool]:
        """Return the tools of a workflow, as the mapping to which its code adds those that it calls."""
        if isinstance(workflow, WorkflowTable):
            workflow.bind(self)
        for name in workflow.config.tools:
            if name not in workflow.known_tools:
                if name not in self._tools:
                    raise NotRegistered(f"workflow {workflow.name!r}: {unknown('tool', name, self._tools)}")
                workflow.known_tools[name] = self._tools[name]
        for tool in workflow.known_tools.values():
            self.deps.check_tool(tool, needed=True)
        return workflow.known_tools

    def version_of(self, live: Workflow[Any], config: Mapping[str, Any]) -> Workflow[Any]:
        """Return the version of a workflow that a run began with: a table as it was stored. Raises `NotRegistered`."""
        if "steps" in config:
            return self.table(config, live)
        version = str(config.get("version", ""))
        if live.version == version:
            return live
        found = self._versions.get((live.name, version))
        if found is None:
            known = sorted({live.version, *(each for name, each in self._versions if name == live.name)})
            raise NotRegistered(
                f"workflow {live.name!r}: this process has no version {version!r}; it has {', '.join(known)}"
            )
        return found

    def table(self, config: Mapping[str, Any], live: Runnable[Any] | None = None) -> WorkflowTable:
        """Return the table that a run has stored, with the tools and agents of this process. Raises `NotRegistered`.

        `live` is the runnable with the name of the run, if this process has one: it may be the table itself. Its tools
        come before those of other agents.
        """
        if isinstance(live, WorkflowTable) and live.to_config() == config:
            live.bind(self)
            return live
        table = WorkflowTable.from_config(config)
        self.bind(table, live)
        return table

    def bind(self, table: WorkflowTable, live: Runnable[Any] | None = None) -> None:
        """Give a stored table the tools and agents of this process; `live` as in `table`. Raises `NotRegistered`."""
        known = live.known_tools if isinstance(live, Workflow) else getattr(live, "tools", {})
        tools = {each.spec.name: each for each in self._own_tools()} | self._tools | dict(known)
        table.bind(Registered(tools, {**self._agents, **getattr(live, "known_agents", {})}))

    def tool_of(self, agent: str, name: str) -> Tool | None:
        """Return the tool of this name that an agent uses, or another agent here; null if there is none."""
        own = {each.spec.name: each for each in self._own_tools()} | self._tools
        for runnable in self._agents.values():
            for member in all_members(runnable):
                known = member.known_tools if isinstance(member, Workflow) else getattr(member, "tools", {})
                found = known.get(name)
                if found is not None and (member.name == agent or name not in own):
                    return found
        return own.get(name)

    async def instructions(self, agent: Agent[Any], run: RunContext[Any]) -> str:
        """Return the instructions of a run from the agent's function. Raises `AgentConfigError`."""
        return await agent.instructions_for(run)

    def told_plan(self, run: RunContext[Any]) -> str | None:
        """Return the standing plan that an earlier preparation gave the run; null: it gets the one in the log."""
        return None

    async def refusal_of(self, agent: Agent[Any], name: str, output: str, run: RunContext[Any]) -> str | None:
        """Return why a validator of an agent refuses an output, null if it accepts it. Raises what it raises."""
        return await agent.refusal_of(name, output, run)

    def _own_agents(self) -> Iterator[Agent[Any, Any]]:
        """Yield the registered agents, and those that registered swarms and loops coordinate."""
        for runnable in self._agents.values():
            yield from (member for member in all_members(runnable) if isinstance(member, Agent))

    def _own_tools(self) -> Iterator[Tool]:
        """Yield the registered tools, and those that the registered agents bring with them."""
        yield from self._tools.values()
        for agent in self._own_agents():
            yield from agent.tools.values()

    def _known_tools(self, agent: Agent[Any]) -> dict[str, Tool]:
        if agent.name in self._stored:
            return {**self.offered_tools, **agent.tools}
        registered = self._agents.get(agent.name)
        own = registered.tools if isinstance(registered, Agent) else {}
        return {**TODO_TOOLS, **self._tools, **own, **agent.tools}

    def problems(self, agent: Agent[Any]) -> list[ConfigProblem]:
        """Return all reasons why this process could not run the agent: tools, injected arguments, models. Never raises.

        Models are checked by their provider only: neither keys nor files are read.
        """
        known, config = self._known_tools(agent), agent.config
        found: list[ConfigProblem] = []
        for name in config.tools:
            if name not in known:
                problem = f"tools: {unknown('tool', name, known)}"
                found.append(ConfigProblem("tools", problem, near(name, known)))
                continue
            try:
                check_injected(known[name].spec, config.injected_tool_args)
            except ConfigError as error:
                found.append(ConfigProblem("injected_tool_args", str(error)))
        named = {
            "model": [config.model],
            "planning_model": [config.planning_model] if config.planning_model else [],
            "fallback_models": config.fallback_models,
        }
        for key, models in named.items():
            for model in models:
                try:
                    self.provider(model)
                except ConfigError as error:
                    found.append(ConfigProblem(key, f"{key}: {error}"))
        if not any(problem.key in named for problem in found):
            table = config.to_config()
            lacking = capabilities.problems(self.provider, table, rules_of(table))
            found += [ConfigProblem("model", f"model: {problem}") for problem in lacking]
        return found

    def check(self, runnable: Runnable[Any]) -> None:
        """Raise what `resolve` raises, for all below it too: an unknown tool is reported before the first event."""
        for each in self.reachable(runnable):
            self.resolve(each)

    def reachable(self, runnable: Runnable[Any]) -> Iterator[Runnable[Any]]:
        """Yield the runnable, its members, the runnables that its tools start (`as_tool`), and so on, each once.

        A runnable that a tool starts only by `ToolContext.run` cannot be known in advance.
        """
        seen: list[Runnable[Any]] = []
        ahead = [runnable]
        while ahead:
            each = ahead.pop(0)
            if isinstance(each, WorkflowTable):
                each.bind(self)
            if not any(each is one for one in seen):
                seen.append(each)
                yield each
                ahead += [*each.members.values(), *self.started_by(each)]

    def started_by(self, agent: Runnable[Any]) -> list[Runnable[Any]]:
        """Return the runnables that an agent's tools start, as far as the tools declare them."""
        known = self._known_tools(agent) if isinstance(agent, Agent) else {}
        wanted = [known.get(name) for name in agent.config.tools] if isinstance(agent, Agent) else []
        return [starts for tool in wanted if (starts := getattr(tool, "starts", None)) is not None]

    def capabilities(self, runnable: Runnable[Any]) -> frozenset[str]:
        """Return the capabilities that an executor needs for it and its tools."""
        return runnable.capabilities() | ({"children"} if self.started_by(runnable) else set())

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """Return the provider of `provider:model`, and the model's name without it. Raises `ConfigError`.

        A provider is created at its first use, and lives until `aclose`.
        """
        name, colon, rest = model.partition(":")
        if not (name and colon and rest):
            raise ConfigError(f"the model {model!r} must be written provider:model, as in 'openai:gpt-4o'")
        for known in (self._given, self._made):
            if name in known:
                return known[name], rest
        return self._make(name, model), rest

    def tool_sources(self) -> ToolSourceFactory:
        """Return the factory that connects to MCP servers, created at its first use. Raises `ConfigError`."""
        if self._sources is None:
            found = installed(TOOL_SOURCES)
            if "mcp" not in found:
                raise ConfigError(
                    f"no entry point {TOOL_SOURCES}: mcp is installed: agents cannot use mcp_servers"
                )
            self._sources = cast("ToolSourceFactory", made(found["mcp"]))
        return self._sources

    def price_book(self) -> PriceBook:
        """Return the price book, created at its first use. Raises `ConfigError` for malformed prices."""
        if self._prices is None:
            found = installed(PRICES)
            self._prices = cast("PriceBook", made(found["default"])) if "default" in found else NoPrices()
        return self._prices

    def price(self, model: str, usage: TokenUsage) -> Decimal | None:
        """Return the price of tokens of `provider:model` in US dollars; null if unknown. Raises `ConfigError`."""
        return self.price_book().price(model, usage, self._api_url(model))

    def price_known(self, model: str) -> bool:
        """Return whether calls of `provider:model` have a price. Raises `ConfigError`."""
        return self.price(model, TokenUsage(input_tokens=1, output_tokens=1, total_tokens=2)) is not None

    def window_tokens(self, model: str) -> int | None:
        """Return the most input tokens that `provider:model` reads; null if unknown. Raises `ConfigError`."""
        return self.price_book().window_tokens(model, self._api_url(model))

    def token_counter(self, model: str) -> TokenCounter:
        """Return a counter that counts as the model's provider does, if installed here; else an estimate."""
        found = installed(TOKENS)
        counter = made(found["default"], model.partition(":")[2]) if "default" in found else None
        return cast("TokenCounter | None", counter) or Estimate()

    def knowledge(self, namespace: str) -> KnowledgeStore:
        """Return the long-term knowledge for runs of this namespace. Raises `ConfigError`."""
        if self._knowledge is not None:
            return self._knowledge
        found = installed(KNOWLEDGE)
        if "default" not in found:
            return NoKnowledge()
        return cast("KnowledgeStore", made(found["default"], namespace))

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """Return the memory backend of this name over a log; it lives until `aclose`. Raises `ConfigError`."""
        key = backend, id(log)
        if key not in self._stores:
            self._stores[key] = log, self._memory(backend, log)  # keeps the log, so that its id is not reused
        return self._stores[key][1]

    def _memory(self, backend: str, log: Log) -> MemoryStore:
        if backend in self._memories:
            return self._memories[backend](log)
        found = installed(MEMORY)
        if backend in found:
            return cast("MemoryStore", made(found[backend], log))
        raise ConfigError(unknown("memory backend", backend, [*self._memories, *found]))

    def _api_url(self, model: str) -> str | None:
        return getattr(self.provider(model)[0], "api_url", None)

    async def aclose(self) -> None:
        """Close everything this registry created (not the providers given to it). Safe to repeat; it can be used again.

        Call it on the event loop on which the providers and tool sources were used.
        """
        async with AsyncExitStack() as stack:
            if self._sources is not None:
                stack.push_async_callback(self._sources.aclose)
            for provider in (*self._made.values(), *(self._configured or {}).values()):
                stack.push_async_callback(provider.aclose)
            for _, store in self._stores.values():
                stack.push_async_callback(store.aclose)
            stack.push_async_callback(self.deps.aclose)
            self._made, self._configured, self._sources, self._stores = {}, None, None, {}

    @classmethod
    def load(cls, path: str) -> Registry:
        """Return the registry at `my.module:name`; an agent there becomes a registry of its own.

        The working directory is added to the import path. Raises `ConfigError`, which says what is wrong with the
        path, the module or its content.
        """
        found = _found_at(path)
        if isinstance(found, cls):
            return found
        if not is_runnable(found):
            raise ConfigError(
                f"{path!r} is neither a Registry nor an agent, swarm, loop or workflow: its type is "
                f"{type(found).__name__}"
            )
        return cls(agents=[found])

    def _add_agent(self, agent: Runnable[Any]) -> None:
        if not is_runnable(agent):
            raise ConfigError(f"{agent!r:.60} is not an agent, swarm, loop or workflow")
        before = self._agents.get(agent.name)
        if isinstance(agent, Workflow):
            if (agent.name, agent.version) in self._versions:
                raise ConfigError(f"workflow {agent.name!r}: two have the version {agent.version!r}")
            self._versions[agent.name, agent.version] = agent
            if isinstance(before, Workflow):
                self._agents[agent.name] = agent
                return
        if before is not None:
            raise ConfigError(
                f"two agents are named {agent.name!r}: {self._agents[agent.name]!r} and {agent!r}; rename one"
            )
        self._agents[agent.name] = agent

    def _add_tool(self, added: Tool) -> None:
        name = added.spec.name
        if name in self._tools:
            raise ConfigError(
                f"two tools are named {name!r}: {_origin(self._tools[name])} and {_origin(added)}; rename one"
            )
        self._tools[name] = added

    def _make(self, name: str, model: str) -> ModelProvider:
        found = installed(PROVIDERS)
        if name in found:
            self._made[name] = cast("ModelProvider", made(found[name]))
            return self._made[name]
        if name in self._from_configs():
            return self._from_configs()[name]
        known = [*self._given, *found, *self._from_configs()]
        raise ConfigError(f"the model {model!r}: {unknown('provider', name, known)}")

    def _from_configs(self) -> dict[str, ModelProvider]:
        if self._configured is None:
            self._configured = {}
            for entry in installed(PROVIDER_CONFIGS).values():
                self._configured |= cast("Mapping[str, ModelProvider]", made(entry))
        return self._configured


def _brought(agents: Iterable[Agent[Any, Any]]) -> dict[str, Tool]:
    """Return the tools that agents bring with them, without names that two agents use for different tools."""
    found: dict[str, Tool] = {}
    twice: set[str] = set()
    for agent in agents:
        for name, own in agent.tools.items():
            if found.setdefault(name, own) is not own:
                twice.add(name)
    return {name: own for name, own in found.items() if name not in twice}


def _found_at(path: str) -> Any:
    """Return the object at `my.module:name`. Raises `ConfigError`."""
    module_name, colon, attributes = path.partition(":")
    if not (colon and attributes and _MODULE.fullmatch(module_name)) or module_name.endswith(".py"):
        raise ConfigError(f"{path!r} must be written module:attribute{_meant(module_name, attributes)}")
    found: Any = _import(module_name)
    for attribute in attributes.split("."):
        found = _attribute(path, found, attribute)
    return found


def _meant(file: str, attributes: str) -> str:
    """Return the end of the error message for text that is not `module:attribute`, with the likely correction."""
    if file.endswith((".toml", ".json")):
        return "; a module loads the agent of such a file, with Agent.from_config"
    parts = file.removesuffix(".py").strip("./").split("/")
    if file.endswith(".py") and all(map(str.isidentifier, parts)):
        return f"; did you mean {'.'.join(parts) + ':' + (attributes or 'registry')!r}?"
    return ", as in 'my.module:registry'"


def _import(module_name: str) -> Any:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"there is no module {error.name!r} in {here} or on the Python path") from None
        raise _import_failed(module_name, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any error of a module is reported in one line
        raise _import_failed(module_name, error) from error


def _attribute(path: str, found: Any, name: str) -> Any:
    try:
        return getattr(found, name)
    except AttributeError:
        raise ConfigError(f"{path!r}: {unknown('attribute', name, _public(found))}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # attributes computed on demand may fail like an import
        raise ConfigError(f"{path!r}: {name!r} cannot be read: {_said(error)}") from error


def _import_failed(module_name: str, error: BaseException) -> ConfigError:
    return ConfigError(f"importing {module_name!r} failed{_line(module_name, error)}: {_said(error)}")


def _said(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name}: {str(error) or name}"


def _line(module_name: str, error: BaseException) -> str:
    """Return the line of the error in the imported package, or else the last line of the traceback."""
    if isinstance(error, SyntaxError):
        return f" at {error.filename}, line {error.lineno}"
    package = module_name.partition(".")[0]
    places = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    theirs = [place for place in places if place[0].partition(".")[0] == package]
    _, filename, line = (theirs or places)[-1]
    return f" at {filename}, line {line}"


def _public(holder: Any) -> list[str]:
    return [name for name in dir(holder) if not name.startswith("_")]


def _origin(found: Tool) -> str:
    module = getattr(found, "__module__", None)
    return f"{getattr(found, '__qualname__', found.spec.name)} in {module}" if module else repr(found)
