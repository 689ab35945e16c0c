"""Calls approved for good: an operator answered an approval with "always", and the same call is not asked about again.

They are one register of the namespace, whose newest commit has all of them. A run takes them with its submission, as
part of its policy, and keeps them: reading the register later would make its decisions depend on who drives it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...eventlog.commits import Head
from ...eventlog.errors import ApprovalError, LogUnavailable
from ...eventlog.events import ApprovedCall, PolicyUpdated
from ...eventlog.names import digest_of, policy_subject
from ...eventlog.ports import Log
from ...projections.call_texts import recording_key
from ..journal.outages import Decisions, is_last, try_append
from ..journal.register import read_register, register_write

BYTES_MAX = 64 * 1024
"""All of them together are part of each run that may need an approval."""


class ApprovedCalls:
    """The approved calls of a namespace."""

    def __init__(self, log: Log) -> None:
        self._log, self._subject = log, policy_subject(log.events.shards)

    async def read(self) -> list[ApprovedCall]:
        """Return the calls, oldest first. Raises `LogUnavailable`."""
        return (await self._read())[1]

    async def add(self, key: str, by: str) -> None:
        """Approve the call with this `recording_key` for good.

        Raises `ApprovalError` for too many of them, `LogUnavailable`.
        """
        tool, _, arguments = key.partition(" ")
        call = ApprovedCall(
            tool=tool, arguments=msgspec.json.decode(arguments, type=dict), at=self._log.clock.now(), by=by
        )

        def added(calls: list[ApprovedCall]) -> list[ApprovedCall] | None:
            if id_of(call) in map(id_of, calls):
                return None
            after = [*calls, call]
            if len(msgspec.json.encode(after)) > BYTES_MAX:
                raise ApprovalError(
                    f"the calls that are approved for good would take more than {BYTES_MAX // 1024} KiB: write a rule "
                    "for them, or forget some (foldlog policy forget)"
                )
            return after

        await self._change(added)

    async def remove(self, call_id: str) -> bool:
        """Ask about this call again; false if it was not approved. Raises `LogUnavailable`."""
        found = False

        def removed(calls: list[ApprovedCall]) -> list[ApprovedCall] | None:
            nonlocal found
            rest = [each for each in calls if id_of(each) != call_id]
            found = len(rest) != len(calls)
            return rest if found else None

        await self._change(removed)
        return found

    async def _change(self, change: Callable[[list[ApprovedCall]], list[ApprovedCall] | None]) -> None:
        async for _ in Decisions(self._log.clock):
            head, calls = await self._read()
            after = change(calls)
            if after is None:
                if await is_last(self._log, self._subject, head.position):
                    return
                continue
            write = register_write(self._log, self._subject, head, PolicyUpdated(approved=after))
            if await try_append(self._log, write):
                return
        raise LogUnavailable("the approved calls change too quickly; try again")

    async def _read(self) -> tuple[Head, list[ApprovedCall]]:
        head, events = await read_register(self._log, self._subject)
        return head, [call for event in events if isinstance(event, PolicyUpdated) for call in event.approved]


def id_of(call: ApprovedCall) -> str:
    """Return the id of an approved call: the same for the same tool and arguments."""
    return digest_of(recording_key(call.tool, call.arguments))[:12]
