"""Ralph loops as users write them: a runnable to repeat, scorers, feedback, and stop conditions.

`config` is all that the log or a worker need; the functions exist only on the object and are called by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from math import isfinite
from numbers import Real
from types import MappingProxyType
from typing import Any, Generic

import msgspec

from ...eventlog.errors import AgentConfigError, ConfigError, FlowError
from ..core.loop.config import REFLECT, Reflection, Scored
from ..core.rules import rules_of
from ..ports.runnable import DepsT_contra, Runnable, all_members, is_runnable
from ..tools.decorator import PythonTool
from ..tools.functions import call_function
from .agent import Agent, OutputT
from .as_tool import runnable_tool
from .config import config_digest, within
from .loop_config import RalphConfig, Stop, read_config
from .tables import StopTable

Scorer = Callable[[Scored], float | Decimal | Awaitable[float | Decimal]]
"""Scores an output; more is better. Usually 0 to 1. A truth value is 0 or 1."""

Reflect = Callable[[Reflection], str | Awaitable[str]]
"""Returns the feedback for the next iteration, which is added to the loop's own input."""


class RalphLoop(Generic[OutputT, DepsT_contra]):
    """A named loop; frozen, equal only to itself.

    `RalphLoop(writer, scorers={"quality": score}, stop=Stop(score_threshold=0.9))`. `runnable` is an agent, a swarm or
    another loop. `scorers` are functions of a `Scored`, sync or async, by name or in a list, where each has its own
    name; `reflect` is a function of a `Reflection`, whose text is fed back (without it, the scores and the last output
    are). Their results are stored, so they are called once per iteration, or again after a crash. Raises
    `AgentConfigError`, which names the wrong key.
    """

    __slots__ = ("__weakref__", "_reflect", "_scorers", "_stop", "name", "runnable")

    name: str
    runnable: Runnable[OutputT, DepsT_contra]
    _scorers: Mapping[str, Scorer]
    _reflect: Reflect | None
    _stop: Any

    def __init__(
        self,
        runnable: Runnable[OutputT, DepsT_contra],
        scorers: Mapping[str, Scorer] | Sequence[Scorer] = (),
        stop: Stop | StopTable | None = None,
        *,
        name: str = "loop",
        reflect: Reflect | None = None,
    ) -> None:
        if not is_runnable(runnable):
            raise AgentConfigError(
                f"loop {name!r}: runnable: {runnable!r} is not an agent, swarm, loop or workflow"
            )
        named = _by_name(name, scorers)
        _check_functions(name, named, reflect)
        stops = stop.model_dump() if isinstance(stop, Stop) else stop or {}
        parts = {
            "name": name,
            "runnable": runnable,
            "_scorers": MappingProxyType(dict(named)),
            "_reflect": reflect,
            "_stop": stops,
        }
        for key, value in parts.items():
            object.__setattr__(self, key, value)
        self._config({"name": getattr(runnable, "name", "")})

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise `AttributeError`: a loop is immutable."""
        raise AttributeError(f"a loop is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Raise `AttributeError`: a loop is immutable."""
        raise AttributeError(f"a loop is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        return f"<RalphLoop {self.name} of {self.runnable!r}>"

    @property
    def kind(self) -> str:
        """The kind of its runs."""
        return "ralph"

    @property
    def members(self) -> Mapping[str, Runnable[Any]]:
        """The repeated runnable, by name."""
        return {self.runnable.name: self.runnable}

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions that are called for an iteration."""
        return frozenset(self._scorers) | ({REFLECT} if self._reflect is not None else set())

    @property
    def output_type(self) -> Any:
        """The output type of the repeated runnable."""
        return self.runnable.output_type

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of `to_config()`."""
        return config_digest(self.to_config())

    def parse_output(self, value: Any) -> OutputT:
        """Return the output as `output_type`. Raises `ValueError`."""
        return self.runnable.parse_output(value)

    def check_deps(self, deps: DepsT_contra) -> None:
        """Accept them: a loop hands nothing to its functions, and its members are checked in their own runs."""

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it, without those for the repeated runnable."""
        return frozenset({"children"})

    def check_prices(self, known: Callable[[str], bool]) -> None:
        """Raise `AgentConfigError` for a `max_cost_usd` that cannot be enforced, as a price is not `known`."""
        if not read_config(self._config({"name": self.runnable.name})).stop.max_cost_usd:
            return
        for each in all_members(self.runnable):
            for model in rules_of(each.config.to_config()).models if isinstance(each, Agent) else ():
                if not known(model):
                    raise AgentConfigError(
                        f"loop {self.name!r}: stop.max_cost_usd needs the price of {model!r} (agent {each.name!r}), "
                        "which is unknown: configure it, or leave max_cost_usd out"
                    )

    def as_tool(
        self, name: str | None = None, description: str = "", *, files: bool = False
    ) -> PythonTool[Any, Any]:
        """Return a tool that runs this loop as a child run, and returns its output. Raises `ConfigError`."""
        return runnable_tool(self, name, description, files=files)

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins."""
        return self._config(self.runnable.to_config())

    def _config(self, member: Mapping[str, Any]) -> dict[str, Any]:
        data = {
            "name": self.name,
            "runnable": {"kind": self.runnable.kind, "config": dict(member)},
            "scorers": tuple(self._scorers),
            "reflects": self._reflect is not None,
            "stop": self._stop,
        }
        return read_config(data).model_dump(mode="json")

    def with_agents(
        self, change: Callable[[Runnable[Any]], Runnable[Any]]
    ) -> RalphLoop[OutputT, DepsT_contra]:
        """Return a copy that repeats another runnable of the same name. Raises `AgentConfigError`."""
        return RalphLoop(
            change(self.runnable), self._scorers, self._stop, name=self.name, reflect=self._reflect
        )

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> RalphLoop:
        """Return the loop of a stored configuration. It can only run if nothing is left to be scored or reflected.

        Raises `AgentConfigError` for a wrong key.
        """
        config = read_config(data)
        runnable = _read(config)
        return cls(
            runnable,
            name=config.name,
            scorers={name: _gone(name) for name in config.scorers},
            reflect=_gone(REFLECT) if config.reflects else None,
            stop=config.stop,
        )

    async def evaluate(self, name: str, argument: str) -> Any:
        """Call a scorer or the reflection function. Raises its errors, and `ConfigError` for a wrong result type."""
        function: Callable[..., Any] | None = self._reflect if name == REFLECT else self._scorers.get(name)
        if function is None:
            raise ConfigError(f"loop {self.name!r} has no function {name!r}")
        kind = Reflection if name == REFLECT else Scored
        value = await call_function(function, msgspec.json.decode(argument, type=kind))
        if name == REFLECT and not isinstance(value, str):
            raise ConfigError(f"reflect of loop {self.name!r} returned {type(value).__name__}, not text")
        return value if name == REFLECT else self._score(name, value)

    def _score(self, name: str, value: Any) -> float:
        """Return the number that a scorer returned; true is 1."""
        shown = repr(value) if isinstance(value, float) else type(value).__name__
        with suppress(OverflowError):
            if isinstance(value, (Real, Decimal)) and isfinite(score := float(value)):
                return score
        raise ConfigError(f"scorer {name!r} of loop {self.name!r} returned {shown}, not a finite number")


def _read(config: RalphConfig) -> Runnable[Any]:
    """Return the repeated runnable."""
    from .kinds import checked_kind, runnable_of

    key = "runnable"
    try:
        kind, key = checked_kind(config.runnable.kind), "runnable.config"
        return runnable_of(kind, config.runnable.config)
    except FlowError as error:
        raise error.within(key) from None
    except AgentConfigError as error:
        inner = within(key, error)
        raise AgentConfigError(f"loop {config.name!r}: {inner}", inner.problems) from None


def _by_name(loop: object, scorers: object) -> Mapping[str, Scorer]:
    """Return the scorers of a list by their names. Raises `AgentConfigError` for a missing or repeated name."""
    if isinstance(scorers, Mapping):
        return scorers
    if not isinstance(scorers, Sequence) or isinstance(scorers, str):
        raise AgentConfigError(
            f"loop {loop!r}: scorers: must be functions, by name or in a list, not {scorers!r:.60}"
        )
    named: dict[str, Scorer] = {}
    for index, scorer in enumerate(scorers):
        key = getattr(scorer, "__name__", "")
        if not key.isidentifier() or key in named:
            problem = (
                f"another one is named {key!r}" if key in named else f"{scorer!r:.60} has no name of its own"
            )
            raise AgentConfigError(
                f"loop {loop!r}: scorers.{index}: {problem}: give them by name, {{'quality': score}}"
            )
        named[key] = scorer
    return named


def _check_functions(name: object, scorers: Mapping[str, object], reflect: object) -> None:
    """Raise `AgentConfigError` for values that are not functions."""
    for key, scorer in scorers.items():
        if key == REFLECT:
            raise AgentConfigError(
                f"loop {name!r}: scorers: {REFLECT!r} is the name of the reflection function; use another name"
            )
        if not callable(scorer):
            raise AgentConfigError(f"loop {name!r}: scorers.{key}: {scorer!r:.60} is not a function")
    if reflect is not None and not callable(reflect):
        raise AgentConfigError(f"loop {name!r}: reflect: {reflect!r:.60} is not a function")


def _gone(name: str) -> Callable[[Any], Any]:
    def function(_: Any) -> Any:
        raise ConfigError(f"the function {name!r} is not here: register the loop itself in this process")

    return function
