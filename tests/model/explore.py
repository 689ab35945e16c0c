"""Explore all reachable states of a model, and check that each leads to an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class ModelState(Protocol):
    """A state of a model. `bad` names the property that it breaks, and is empty if it breaks none."""

    @property
    def bad(self) -> str:
        """The broken property."""
        ...


S = TypeVar("S", bound=ModelState)


def explore(
    start: S,
    steps: Callable[[S], Iterable[S]],
    faults: Callable[[S], Iterable[S]],
    is_end: Callable[[S], bool],
) -> tuple[str, int]:
    """Return the first broken property, empty for none, and the number of states.

    `ends` is broken if some state leads to no end by steps alone, that is, without further faults.
    """
    seen, queue, before = {start}, deque([start]), dict[S, list[S]]()
    while queue:
        state = queue.popleft()
        good = list(steps(state))
        for after in good:
            before.setdefault(after, []).append(state)
        for after in (*good, *faults(state)):
            if after.bad:
                return after.bad, len(seen)
            if after not in seen:
                seen.add(after)
                queue.append(after)
    ends = {state for state in seen if is_end(state)}
    reached, queue = set(ends), deque(ends)
    while queue:
        for state in before.get(queue.popleft(), ()):
            if state not in reached:
                reached.add(state)
                queue.append(state)
    return ("ends" if seen - reached else ""), len(seen)
