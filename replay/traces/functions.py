"""The functions of a recorded family (predicates, scorers, what reflects): they say again what they said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import Evaluated, Event
from ...projections.fold import apply
from ...projections.run_state import RunState
from ...runtime.agents.agent import Agent
from ...runtime.agents.readiness import functions_asked
from ...runtime.core.coordination import COORDINATORS
from ...runtime.core.effects import Evaluate
from ...runtime.ports.runnable import Runnable

Values = dict[tuple[str, str, str], list[Evaluated]]
"""What functions said, by (the runnable's name, the function's, its argument), in order."""


def values_of(run: Iterable[Event]) -> Values:
    """What the functions of one run said, from its events in order."""
    found: Values = {}
    state, events = RunState(), list(run)
    if not any(isinstance(event, Evaluated) for event in events):
        return found
    name = events[0].agent_path.rpartition("/")[2]
    for event in events:
        if isinstance(event, Evaluated) and state.kind in COORDINATORS:
            for asked in COORDINATORS[state.kind].wanted(state):
                if isinstance(asked, Evaluate) and (asked.name, asked.ordinal) == (event.name, event.ordinal):
                    found.setdefault((name, event.name, asked.argument), []).append(event)
        own = msgspec.structs.replace(event, agent_path="")  # as stored
        apply(state, own, event.at)  # type: ignore[arg-type]
    return found


class RecordedRunnable:
    """A swarm or loop whose functions are recorded; all else is its own."""

    def __init__(self, runnable: Runnable[Any], values: Values) -> None:
        self._runnable, self._values = runnable, values
        self.name, self.kind, self.output_type = runnable.name, runnable.kind, runnable.output_type
        self.members: Mapping[str, Runnable[Any]] = {
            name: recorded(member, values) for name, member in runnable.members.items()
        }

    @property
    def functions(self) -> frozenset[str]:
        """All that its configuration asks for: what is not recorded is named when it is asked."""
        return functions_asked(self._runnable)

    def parse_output(self, value: Any) -> Any:
        """As the runnable does."""
        return self._runnable.parse_output(value)

    def to_config(self) -> dict[str, Any]:
        """That of the runnable."""
        return self._runnable.to_config()

    def submission_config(self, run: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """That of the runnable."""
        return self._runnable.submission_config(run)

    def capabilities(self) -> frozenset[str]:
        """Those of the runnable."""
        return self._runnable.capabilities()

    async def evaluate(self, name: str, argument: str) -> Any:
        """The recorded value; one that is asked for more often than recorded is the last one again.

        Raises `ConfigError` where nothing is recorded, and for a recorded failure.
        """
        values = self._values.get((self.name, name, argument))
        if not values:
            raise ConfigError(f"{self.kind} {self.name!r}: the recording has no value of {name!r} for this")
        value = values.pop(0) if len(values) > 1 else values[0]
        if value.error is not None:
            raise ConfigError(value.error)
        return value.value


def recorded(runnable: Runnable[Any], values: Values) -> Runnable[Any]:
    """The runnable with recorded functions, and all that is below it."""
    return runnable if isinstance(runnable, Agent) else RecordedRunnable(runnable, values)
