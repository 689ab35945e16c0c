"""The functions of a recorded family (predicates, scorers, reflection): they return their recorded values again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import Evaluated, Event
from ...projections.fold import apply
from ...projections.run_state import RunState
from ...runtime.agents.agent import Agent
from ...runtime.agents.readiness import functions_used
from ...runtime.core.coordination import COORDINATORS
from ...runtime.core.effects import Evaluate
from ...runtime.core.outputs import output_of
from ...runtime.ports.runnable import Runnable

Values = dict[tuple[str, str, str], list[Evaluated]]
"""The recorded values of functions, in order, by (name of the runnable, name of the function, its argument)."""


def values_of(run: Iterable[Event]) -> Values:
    """Return the recorded values of one run's functions, from its events in order."""
    found: Values = {}
    state, events = RunState(), list(run)
    if not any(isinstance(event, Evaluated) for event in events):
        return found
    name = events[0].agent_path.rpartition("/")[2]
    for event in events:
        if isinstance(event, Evaluated) and state.kind == "agent":
            found.setdefault((name, event.name, output_of(state)), []).append(event)
        elif isinstance(event, Evaluated) and state.kind in COORDINATORS:
            for asked in COORDINATORS[state.kind].wanted(state):
                if isinstance(asked, Evaluate) and (asked.name, asked.ordinal) == (event.name, event.ordinal):
                    found.setdefault((name, event.name, asked.argument), []).append(event)
        own = msgspec.structs.replace(event, agent_path="")  # as stored
        apply(state, own, event.at)  # type: ignore[arg-type]
    return found


class RecordedRunnable:
    """A swarm or loop whose functions return recorded values; everything else is delegated to it."""

    def __init__(self, runnable: Runnable[Any], values: Values) -> None:
        self._runnable, self._values = runnable, values
        self.name, self.kind, self.output_type = runnable.name, runnable.kind, runnable.output_type
        self.members: Mapping[str, Runnable[Any]] = {
            name: recorded(member, values) for name, member in runnable.members.items()
        }

    @property
    def functions(self) -> frozenset[str]:
        """All functions that the configuration names; one without recorded values fails when it is called."""
        return functions_used(self._runnable)

    def parse_output(self, value: Any) -> Any:
        """Delegate to the runnable."""
        return self._runnable.parse_output(value)

    def check_deps(self, deps: Any) -> None:
        """Delegate to the runnable."""
        self._runnable.check_deps(deps)

    def to_config(self) -> dict[str, Any]:
        """Return the configuration of the runnable."""
        return self._runnable.to_config()

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that the runnable needs."""
        return self._runnable.capabilities()

    async def evaluate(self, name: str, argument: str) -> Any:
        """Return the next recorded value; after the last one, return that again.

        Raises `ConfigError` if nothing is recorded, and for a recorded failure.
        """
        values = self._values.get((self.name, name, argument))
        if not values:
            raise ConfigError(
                f"{self.kind} {self.name!r}: no value of {name!r} is recorded for this argument"
            )
        value = values.pop(0) if len(values) > 1 else values[0]
        if value.error is not None:
            raise ConfigError(value.error)
        return value.value


def recorded(runnable: Runnable[Any], values: Values) -> Runnable[Any]:
    """Return the runnable with recorded functions, its members included."""
    return runnable if isinstance(runnable, Agent) else RecordedRunnable(runnable, values)
