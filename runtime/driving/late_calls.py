"""Calls that go on in a thread after they were given up: the log has that they do, and later what became of them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ...eventlog.errors import FoldlogError
from ...eventlog.events import LateOutcome
from ...eventlog.ports import Subject
from ..agents.secrets import Veil
from ..core.effects import CallTool
from ..core.turn import Turn
from ..journal.journal import Journal
from ..ports.json_values import NotJson, as_json, bounded, sound
from ..ports.tools import ToolFailed, in_a_line
from ..tools.functions import Ended
from .host import Host

logger = logging.getLogger("foldlog.tool")

UNKNOWN = "unknown"
"""The outcome of a call whose thread goes on."""


class Late:
    """The calls of one drive that were given up while a thread of theirs goes on."""

    def __init__(self, host: Host, subject: Subject) -> None:
        self._host, self._subject = host, subject
        self._at_work: dict[CallTool, tuple[asyncio.Future[Ended], Veil]] = {}

    def __contains__(self, effect: object) -> bool:
        return effect in self._at_work

    def outlives(self, effect: CallTool, ended: asyncio.Future[Ended] | None, veil: Veil) -> None:
        """A call is given up; `ended` is the end of its thread, if one goes on."""
        if ended is not None:
            self._at_work[effect] = ended, veil

    def tell(self, effect: CallTool) -> None:
        """Have the log told what the call comes to when its thread ends, if one goes on."""
        if effect in self._at_work:
            task = asyncio.create_task(self._tell(effect, *self._at_work[effect]))
            self._host.late.add(task)
            task.add_done_callback(self._host.late.discard)

    async def _tell(self, effect: CallTool, ended: asyncio.Future[Ended], veil: Veil) -> None:
        event = LateOutcome(
            step=effect.step, tool_call_id=effect.call_id, kind="tool", **await _outcome(ended, veil)
        )
        journal = Journal(self._host.log, self._subject, wait_for_log=True)
        try:
            stored = False
            await journal.load()
            while not stored:
                turn = Turn(journal.state, journal.rules, self._host.log.clock.now())
                turn.add(event)
                stored = await journal.store(turn.events, epoch=0)
        except FoldlogError as error:
            logger.warning("run %s: a late outcome is not stored: %s", self._subject.id, error)


async def _outcome(ended: asyncio.Future[Ended], veil: Veil) -> dict[str, Any]:
    value, error = await ended
    if error is not None:
        told = str(error) if isinstance(error, ToolFailed) else in_a_line(error)
        return {"outcome": "error", "error": bounded(veil.hide(told))}
    try:
        return {"outcome": "success", "result": veil.hide(as_json(value))}
    except NotJson:
        return {"outcome": "success", "result": veil.hide(sound(repr(value)))}
