"""The script of a parity check: the model's replies in the scripted provider's format, and the run's inputs.

    {"input": "What is the answer?",
     "turns": [{"tool_calls": [...]}, {"text": ["42"]}],
     "planner": [{"text": "1. Ask."}],
     "summaries": [{"text": "They want to know the answer."}],
     "agents": {"researcher": [...]},
     "scenes": [{"input": "Measure the pier", "turns": [...]}],
     "inputs": [{"type": "message", "step": 2, "content": "hurry"}],
     "plans": {"move": ["Pack.", {"text": "Drive.", "status": "in_progress"}]}}

`turns` are the replies to the checked agent's steps, `planner` and `summaries` those to its other model calls. `agents`
has the turns of its child agents by name; a swarm or a loop needs nothing else. `scenes` apply to runs whose input
contains a text: useful for sub-agents, which have the name of their parent. `input` is the run's input, and `inputs`
are those of `foldlog.replay.parity.inputs`. `plans` are the standing plans as each run finds them, by their names.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import PlanStep
from ...eventlog.files import read_bounded
from ...runtime import Agent
from ...runtime.agents.registry import Registry
from ...runtime.ports.models import (
    Delta,
    Finished,
    InvalidRequest,
    ModelProvider,
    ModelRequest,
    ModelSettings,
    NativeTool,
)
from ...runtime.ports.runnable import Runnable, all_members
from ...runtime.shared.plans import steps_of
from .inputs import Inputs, parse_inputs

Turn = Mapping[str, Any]
ScriptLike = Sequence[Turn] | Mapping[str, Any] | str | Path
"""Turns, an object with `turns`, or the path of a JSON file with such an object."""

_PHASES = ("planner", "summaries")
_KEYS = frozenset({"input", "turns", "agents", "scenes", "inputs", "plans", *_PHASES})


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The replies of a family's models: the turns of the root agent, and those of other agents by name."""

    turns: tuple[Turn, ...]
    phases: Mapping[str, tuple[Turn, ...]] = {}
    """The replies to the root agent's planner and summary calls, by phase."""
    agents: Mapping[str, tuple[Turn, ...]] = {}
    scenes: tuple[Mapping[str, Any], ...] = ()
    input: str | None = None
    inputs: Inputs = ()
    plans: Mapping[str, Sequence[PlanStep]] = {}
    source: str = "script"

    @property
    def streams(self) -> bool:
        """True if a text comes in several pieces, so that a reader sees drafts."""
        scenes = (scene.get("turns", ()) for scene in self.scenes)
        every = [turn for turns in (self.turns, *self.agents.values(), *scenes) for turn in turns]
        return any(isinstance(turn.get("text"), list) and len(turn["text"]) > 1 for turn in every)


def read_script(script: ScriptLike) -> Script:
    """Read a script from a file or from Python values. Raises `ConfigError` that names the place of an error."""
    if isinstance(script, (str, Path)):
        return _from_object(_load(Path(script)), str(script))
    if isinstance(script, Mapping):
        return _from_object(script, "script")
    return _from_object({"turns": list(script)}, "script")


def _load(path: Path) -> Any:
    try:
        return msgspec.json.decode(read_bounded(path))
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_object(data: Any, where: str) -> Script:
    needed = isinstance(data, Mapping) and ("turns" in data or "agents" in data)
    if not needed or not isinstance(data.get("turns", []), list):
        raise ConfigError(f'{where}: a script is an object {{"turns": [...]}}')
    if unknown := sorted(set(data) - _KEYS):
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    agents, asked = data.get("agents", {}), data.get("input")
    if not isinstance(agents, Mapping) or not all(isinstance(turns, list) for turns in agents.values()):
        raise ConfigError(f"{where}: agents must be an object of lists of turns by the agent's name")
    if asked is not None and not isinstance(asked, str):
        raise ConfigError(f"{where}: input must be text")
    for name in _PHASES:
        if not isinstance(data.get(name, []), list):
            raise ConfigError(f"{where}: {name} must be a list of turns")
    scenes = data.get("scenes", [])
    if not isinstance(scenes, list) or not all(isinstance(scene, Mapping) for scene in scenes):
        raise ConfigError(f"{where}: scenes must be a list of objects with input and turns")
    plans = data.get("plans", {})
    if not isinstance(plans, Mapping):
        raise ConfigError(f"{where}: plans must be an object of lists of steps by the plan's name")
    return Script(
        turns=tuple(data.get("turns", ())),
        scenes=tuple(scenes),
        phases={name: tuple(data[name]) for name in _PHASES if name in data},
        agents={name: tuple(turns) for name, turns in agents.items()},
        input=asked,
        inputs=parse_inputs(data.get("inputs", []), where),
        plans={name: _steps(steps, f"{where}: plan {name!r}") for name, steps in plans.items()},
        source=where,
    )


def _steps(given: Any, where: str) -> Sequence[PlanStep]:
    try:
        return steps_of(given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def check_plans(script: Script, agent: Runnable[Any]) -> None:
    """Raise `ConfigError` for an agent that follows a standing plan which the script does not have."""
    for member in all_members(agent):
        name = member.config.standing_plan if isinstance(member, Agent) else None
        if name and name not in script.plans:
            raise ConfigError(
                f"agent {member.name!r} follows the standing plan {name!r}: "
                f'give its steps in {script.source}, as "plans": {{"{name}": [...]}}'
            )


@functools.cache
def _provider_class() -> type[ModelProvider]:
    """Return the class of the scripted provider, found by name like any other."""
    return type(Registry().provider("scripted:any")[0])


class ScriptFiles:
    """A script as files for the scripted provider, one per agent, in a directory that the caller removes."""

    def __init__(self, script: Script, agent: str, directory: Path) -> None:
        self.script = script
        self._paths: dict[str, str] = {}
        self.provider: ModelProvider = _provider_class()()
        for name, turns in {**script.agents, agent: script.turns}.items():
            path = directory / f"{name}.json"
            phases = script.phases if name == agent else {}
            path.write_bytes(msgspec.json.encode({"turns": turns, "scenes": script.scenes, **phases}))
            self._paths[name] = str(path)

    def check(self) -> None:
        """Raise `ConfigError` for a turn that the provider does not understand."""
        for name, path in self._paths.items():
            try:
                self.provider.check(path)
            except ConfigError as error:
                where = self.script.source if len(self._paths) == 1 else f"{self.script.source}, agent {name}"
                raise ConfigError(str(error).replace(path, where)) from None

    def model_of(self, agent: str) -> str:
        """Return the model's name for the scripted provider. Raises `InvalidRequest` for an agent without turns."""
        if agent not in self._paths:
            raise InvalidRequest(
                f"{self.script.source} has no turns for the agent {agent!r}: put them under `agents`"
            )
        return self._paths[agent]


OnModelCall = Callable[[str, int], Awaitable[str]]
"""Called with (run, step) at each model call; returns the agent's name once the model may answer."""


def run_and_step(request: ModelRequest) -> tuple[str, int]:
    """Return the run and step of a request; a planner or summary call has the number of the step before it."""
    run, _, call = request.idempotency_key.partition(":")
    return run, int(call.rpartition(":")[2])


class StageModel:
    """The provider of every model in a check: announces each call, then answers from the script."""

    def __init__(self, files: ScriptFiles, called: OnModelCall) -> None:
        self._files, self._called = files, called

    def check(self, model: str) -> None:
        """Accept any model; the script replaces it."""

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Accept any setting, as the script answers whatever it is asked."""
        return {}

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return None: the script may contain calls of any native tool."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the turn of the run's agent, under the name of the model that was called."""
        agent = await self._called(*run_and_step(request))
        scripted = msgspec.structs.replace(request, model=self._files.model_of(agent))
        deltas: AsyncIterator[Delta] = self._files.provider.stream(scripted)
        async for delta in deltas:
            yield (
                msgspec.structs.replace(delta, model=request.model) if isinstance(delta, Finished) else delta
            )

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""
