"""The memory backend `log`: earlier runs, read from the log itself. It needs no other store and is never stale.

`session` recalls the whole conversation of the session's runs. `task` recalls the inputs and answers of the same agent
in the session, `user` those of the user's runs in the namespace, both of completed runs only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...eventlog.names import run_subject
from ...eventlog.ports import Log
from ...projections.history import PastTurn, distinct_calls
from ...projections.messages import Message
from ..ports.memory import MemoryItem, MemoryKeys, Scope, check_keys
from .run_index import open_run_index
from .sessions import read_turn, session_history

if TYPE_CHECKING:
    from ...projections.projector import RunIndex


class LogMemory:
    """A `MemoryStore` of what the log holds. The first recall of scope `user` reads the whole namespace."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._index: RunIndex | None = None

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """Return the newest `limit` turns, oldest first (`MemoryStore.recall`)."""
        check_keys(scope, keys)
        if limit <= 0:
            return ()
        if scope == "session":
            turns = await self._session(keys, limit, agent=None)
            return _items(turns, (turn.messages for turn in turns))
        by_user = scope == "user"
        turns = await (self._user(keys, limit) if by_user else self._session(keys, limit, agent=keys.agent))
        return _items(turns, (turn.exchange for turn in turns))

    async def aclose(self) -> None:
        """Close the index of the runs."""
        if self._index is not None:
            await self._index.aclose()
            self._index = None

    async def _session(self, keys: MemoryKeys, limit: int, *, agent: str | None) -> Sequence[PastTurn]:
        """Return turns of the session; if an agent is given, only its completed ones."""
        own = keys.session == keys.own_session
        history = await session_history(
            self._log,
            keys.session or "",
            keys.lane if own else None,
            before=keys.run if own else None,
            turns_max=limit,
            wanted=lambda turn: agent is None or (turn.agent == agent and turn.status == "completed"),
        )
        return history.turns

    async def _user(self, keys: MemoryKeys, limit: int) -> Sequence[PastTurn]:
        if self._index is None:
            self._index = await open_run_index(self._log)
        rows = await self._index.runs(status="completed", user=keys.user, limit=limit + 1, buried=False)
        others = [row for row in rows if row.run_id != keys.run][:limit]
        turns = [
            await read_turn(self._log, run_subject(row.shard, row.root_id, row.run_id)) for row in others
        ]
        return [turn for turn in reversed(turns) if turn is not None]


def _items(turns: Sequence[PastTurn], messages: Iterable[Sequence[Message]]) -> Sequence[MemoryItem]:
    distinct = distinct_calls([(turn.run, said) for turn, said in zip(turns, messages, strict=True)])
    return [
        MemoryItem(id=turn.run, messages=said, at=turn.submitted_at)
        for turn, said in zip(turns, distinct, strict=True)
    ]
