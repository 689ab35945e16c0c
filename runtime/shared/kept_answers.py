"""Answers that are kept for the idempotency keys of requests: whoever repeats a request gets the first answer.

The record of a key is a register. What a request did is in the logs of runs and nowhere else; the record keeps what was
said about it: a start has the key as its own, a fork as its id, a message as its `request_key`, and other commands are
idempotent. So a request that is repeated while, or after, another server carries it out does nothing twice.
"""

from __future__ import annotations

from ...eventlog.commits import Head
from ...eventlog.errors import AppendUnsure, Conflict, LogUnavailable
from ...eventlog.events import AnswerKept
from ...eventlog.names import answer_subject
from ...eventlog.ports import Log
from ..journal.register import read_register, register_write

CONFLICTS_MAX = 16


class KeptAnswers:
    """The answers of a namespace. All methods raise `LogUnavailable`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def find(self, actor: str, key: str) -> AnswerKept | None:
        """Return the record of an actor's key; null if there is none."""
        return (await self._read(actor, key))[1]

    async def keep(self, actor: str, key: str, request: str, status: int, body: str) -> AnswerKept:
        """Keep the answer to a request; return the first one."""
        event = AnswerKept(request=request, status=status, body=body)
        subject = answer_subject(actor, key, self._log.events.shards)
        for _ in range(CONFLICTS_MAX):
            head, found = await self._read(actor, key)
            if found is not None:
                return found
            try:
                await self._log.events.append(register_write(self._log, subject, head, event))
            except (Conflict, AppendUnsure):
                continue
            return event
        raise LogUnavailable("the record of an idempotency key changes too quickly; try again")

    async def _read(self, actor: str, key: str) -> tuple[Head, AnswerKept | None]:
        head, events = await read_register(self._log, answer_subject(actor, key, self._log.events.shards))
        return head, next((event for event in events if isinstance(event, AnswerKept)), None)
