"""Abandoned calls whose thread goes on: the log records that, and later their outcome."""

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
"""The outcome of a call whose thread is still running."""


class Late:
    """The calls of one drive that were abandoned while their thread goes on."""

    def __init__(self, host: Host, subject: Subject) -> None:
        self._host, self._subject = host, subject
        self._at_work: dict[CallTool, tuple[asyncio.Future[Ended], Veil]] = {}

    def __contains__(self, effect: object) -> bool:
        return effect in self._at_work

    def outlives(self, effect: CallTool, ended: asyncio.Future[Ended] | None, veil: Veil) -> None:
        """Note an abandoned call; `ended` is the end of its thread, if it is still running."""
        if ended is not None:
            self._at_work[effect] = ended, veil

    def report(self, effect: CallTool) -> None:
        """Store the call's outcome when its thread ends, if it is still running."""
        if effect in self._at_work:
            task = asyncio.create_task(self._report(effect, *self._at_work[effect]))
            self._host.late.add(task)
            task.add_done_callback(self._host.late.discard)

    async def _report(self, effect: CallTool, ended: asyncio.Future[Ended], veil: Veil) -> None:
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
        message = str(error) if isinstance(error, ToolFailed) else in_a_line(error)
        return {"outcome": "error", "error": bounded(veil.hide(message))}
    try:
        return {"outcome": "success", "result": veil.hide(as_json(value))}
    except NotJson:
        return {"outcome": "success", "result": veil.hide(sound(repr(value)))}
