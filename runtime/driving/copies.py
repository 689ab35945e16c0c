"""Limits on the copies of itself that a run starts by `spawn_self`: its own, and all of it and its copies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...projections.run_state import RunState
from ..journal.family import family_of
from ..journal.outages import through_outages
from ..ports.tools import ToolFailed

if TYPE_CHECKING:
    from ..journal.journal import Journal


class Copies:
    """Counts for a run that is not a copy, and for all its copies: all have the same driver."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._total: int | None = None
        self._own: dict[str, int] = {}
        self._counting = asyncio.Lock()

    async def add(self, state: RunState) -> None:
        """Count another copy of the run `state`, or of one of its copies. Raises `ToolFailed` at a limit."""
        config = state.submitted.config if state.submitted is not None else {}
        own_max, total_max = config.get("max_spawn_children"), config.get("max_spawn_total")
        if not config.get("allow_self_spawn") or own_max is None or total_max is None:
            return  # a user's tool of that name
        async with self._counting:
            own, total = self._own.get(state.run, state.spawned), await self._all()
            if own >= own_max:
                problem = f"you have started {own} copies of yourself (max_spawn_children)"
            elif total >= total_max:
                problem = f"you and your copies have started {total} copies in all (max_spawn_total)"
            else:
                self._own[state.run], self._total = own + 1, total + 1
                return
        raise ToolFailed(f"{problem}, and may start no more: do the rest yourself")

    async def _all(self) -> int:
        """Return the number of all copies: read from the log at first, then counted here."""
        if self._total is None:
            family = await through_outages(self._journal.log.clock, family_of, self._journal)
            self._total = _stored(family, self._journal.subject.id)
        return self._total


def _stored(family: Mapping[str, Journal], run: str) -> int:
    state = family[run].state
    copies = [
        id_
        for id_, each in family.items()
        if each.state.agent == state.agent
        and (submitted := each.state.submitted) is not None
        and submitted.parent is not None
        and submitted.parent.run == run
    ]
    return state.spawned + sum(_stored(family, copy) for copy in copies)
