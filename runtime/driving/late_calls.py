"""Effects without an outcome in the log when a drive ends, and calls whose thread goes on after that.

The log records what is known of them, and the outcome of a thread when it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import FoldlogError
from ...eventlog.events import LateOutcome
from ...eventlog.ports import Subject
from ...projections.run_state import RunState
from ..agents.secrets import Veil
from ..core.approvals import UNVERIFIABLE
from ..core.commands import Command, ModelReplied, ToolReturned
from ..core.effects import (
    AwaitTimer,
    CallModel,
    CallTool,
    CancelChild,
    Effect,
    Evaluate,
    Expire,
    LookUp,
    MakeMemo,
    Prepare,
    RunNode,
    RunPlace,
    VerifyCall,
    WaitUntil,
)
from ..core.turn import Turn
from ..journal.journal import Journal
from ..ports.json_values import NotJson, as_json, bounded, sound
from ..ports.tools import ToolFailed, in_a_line
from ..tools.functions import Ended
from .host import Host
from .usage import Account

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

    def outcomes(
        self,
        unsettled: Sequence[Effect],
        commands: Sequence[Command],
        broken_off: Mapping[Effect, Account | None],
    ) -> list[LateOutcome]:
        """Return the outcomes of effects that the end of the run cut off, as far as commands that came too late tell.

        `broken_off` has the usage of replies that were cancelled while they arrived.
        """
        returned = {c.call_id: c for c in commands if isinstance(c, ToolReturned)}
        replied = next((c for c in commands if isinstance(c, ModelReplied)), None)
        events: list[LateOutcome] = []
        for effect in unsettled:
            if isinstance(effect, CallModel):
                events.append(_late_answer(effect, replied, broken_off.get(effect)))
            elif isinstance(effect, CallTool):
                events.append(self._late_result(effect, returned.get(effect.call_id)))
        return events

    def _late_result(self, effect: CallTool, returned: ToolReturned | None) -> LateOutcome:
        unknown = effect in self or (returned is not None and returned.in_doubt)
        known = returned.status if returned is not None else "cancelled"
        return _of_tool(
            effect,
            outcome=UNKNOWN if unknown else known,
            result=returned.result if returned else None,
            error=returned.error if returned else None,
        )

    async def _report(self, effect: CallTool, ended: asyncio.Future[Ended], veil: Veil) -> None:
        event = _of_tool(effect, **await _outcome(ended, veil))
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


def _of_tool(effect: CallTool, **outcome: Any) -> LateOutcome:
    return LateOutcome(step=effect.step or None, tool_call_id=effect.call_id, kind="tool", **outcome)


async def _outcome(ended: asyncio.Future[Ended], veil: Veil) -> dict[str, Any]:
    value, error = await ended
    if error is not None:
        message = str(error) if isinstance(error, ToolFailed) else in_a_line(error)
        return {"outcome": "error", "error": bounded(veil.hide(message))}
    try:
        return {"outcome": "success", "result": veil.hide(as_json(value))}
    except NotJson:
        return {"outcome": "success", "result": veil.hide(sound(repr(value)))}


def _late_answer(effect: CallModel, replied: ModelReplied | None, account: Account | None) -> LateOutcome:
    """Return the late outcome of a model call, with the usage of a reply that came too late or was cut off."""
    used: dict[str, Any] = {} if account is None else msgspec.structs.asdict(account)
    if replied is not None:
        used = {"usage": replied.usage, "source": replied.usage_source, "cost_usd": replied.cost_usd}
    outcome = "cancelled" if replied is None else "completed"
    return LateOutcome(step=effect.step or None, kind="model", outcome=outcome, **used)


def is_unsettled(state: RunState, effect: Effect) -> bool:
    """Return whether the log does not have the outcome of the effect yet."""
    match effect:
        case CallModel():
            return state.model.requested and (effect.step, effect.attempt) == (
                state.step,
                state.model.attempt,
            )
        case CallTool():
            call = state.calls.get(effect.call_id) if effect.step == state.step else None
            if call is None or call.result is not None or effect.attempt != call.attempt:
                return False
            approval = state.approvals.get(call.approval_id or "")
            is_asked = approval is not None and approval.request.kind == UNVERIFIABLE
            return call.started > 0 or not is_asked
        case AwaitTimer() | Prepare() | LookUp() | WaitUntil() | RunNode() | Evaluate() | Expire():
            return False
        case VerifyCall() | RunPlace() | MakeMemo() | CancelChild():
            return False
