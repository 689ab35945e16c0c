"""Answers that are kept for the idempotency keys of requests: a caller who repeats a request gets the first answer.

The record of a key is a register. What a request did is in the logs of runs and nowhere else; the record keeps what was
said about it: a start has the key as its own, a fork as its id, a message as its `request_key`, and other commands are
idempotent. So a request that is repeated while, or after, another server carries it out does nothing twice, also when
its answer is no longer kept.
"""

from __future__ import annotations

from ...eventlog.commits import Commit, Head, decode
from ...eventlog.errors import LogUnavailable
from ...eventlog.events import AnswerKept
from ...eventlog.names import answer_subject
from ...eventlog.ports import Log
from ..journal.outages import Decisions, try_append
from ..journal.register import newest_commit, register_write

KEPT_S = 86_400.0
"""The time for which an answer is kept, in seconds."""


class KeptAnswers:
    """The answers of a namespace. All methods raise `LogUnavailable`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def find(self, actor: str, key: str) -> AnswerKept | None:
        """Return the record of an actor's key; null if there is none, or its time is over."""
        return (await self._read(actor, key))[1]

    async def keep(self, actor: str, key: str, request: str, status: int, body: str) -> AnswerKept:
        """Keep the answer to a request; return the first one."""
        event = AnswerKept(request=request, status=status, body=body)
        subject = answer_subject(actor, key, self._log.events.shards)
        async for _ in Decisions(self._log.clock):
            head, found = await self._read(actor, key)
            if found is not None:
                return found
            if await try_append(self._log, register_write(self._log, subject, head, event)):
                return event
        raise LogUnavailable("the record of an idempotency key changes too quickly; try again")

    async def sweep(self) -> int:
        """Remove the records whose time is over, and return their number."""
        swept = 0
        for shard in range(self._log.events.shards):
            over = {
                stored.subject: stored.position + 1
                async for stored in self._log.events.heads(shard, "answer")
                if self._is_over(decode(stored.data))
            }
            await self._log.events.purge(over)
            swept += len(over)
        return swept

    def _is_over(self, commit: Commit) -> bool:
        return commit.at + KEPT_S <= self._log.clock.now()

    async def _read(self, actor: str, key: str) -> tuple[Head, AnswerKept | None]:
        head, commit = await newest_commit(self._log, answer_subject(actor, key, self._log.events.shards))
        events = () if commit is None or self._is_over(commit) else commit.events
        return head, next((event for event in events if isinstance(event, AnswerKept)), None)
