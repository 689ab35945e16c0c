"""The code of a workflow in its driver: it goes on within the turn that stores what it waited for.

So an outcome and what the code asks for next are one commit. Whenever the state is not what the code has seen, after a
conflict or a refused append, the code is dropped and begins again over the log; nothing tells the difference.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...projections.run_state import RunState
from ..agents.workflow.operations import Operation
from ..agents.workflow.program import Divergence
from ..core.commands import CallbackIssued, CodeAdvanced, CodeDiverged, MemoMade
from ..core.decide import take
from ..core.effects import Effect, MakeMemo, RunPlace
from ..core.turn import Turn
from ..core.workflow.decisions import is_to_tell
from ..core.workflow.facts import AskWait, Ending, Fact
from ..ports.json_values import NotJson, as_json, bounded
from ..ports.tools import Signal, in_a_line
from ..tools.context import Callback
from ..tools.functions import call_function
from .cancellation import is_being_cancelled
from .tool_call import CallingDriver, issue_token

if TYPE_CHECKING:
    from ..agents.workflow.workflow import Decider

logger = logging.getLogger("foldlog.workflow")

FACTS_BYTES_MAX = COMMIT_BYTES_MAX // 2
"""The most bytes of what the code asks for that go into one commit; the rest goes into the next."""
ALWAYS_REPLAY = "FOLDLOG_ALWAYS_REPLAY"
"""Set to 1, the code begins again after each commit: for tests, which then find code that is not deterministic."""


class Code:
    """The code of one driver's run."""

    def __init__(self, begin: Callable[[RunState], Decider]) -> None:
        self._begin = begin
        self._decider: Decider | None = None
        self._held: list[Fact] = []
        """The facts that it asks for and the log does not have: too many for a turn, or held back by a pause or by
        calls of unknown outcome."""
        self._has_more = False
        self._end: Ending | None = None
        self._always_replay = os.environ.get(ALWAYS_REPLAY) == "1"

    def go_on(self, turn: Turn) -> bool:
        """Run the code over the turn's new outcomes, and add what it asks for; return whether anything was added."""
        state, before = turn.state, len(turn.events)
        if not state.prepared or state.owner is None or not state.runnable or state.flow is None:
            return False
        if state.flow.diverged is not None:
            return False
        if self._decider is None:
            self._decider = self._begin(state)
        try:
            progress = self._decider.go_on(state)
        except Divergence as found:
            self.forget()
            take(turn, CodeDiverged(place=found.place, recorded=found.recorded, asked=found.asked))
            return len(turn.events) > before
        self._held.extend(progress.facts)
        self._end = progress.end
        self._has_more = False
        if state.pause_requested or any(call.orphaned for call in state.calls.values()):
            return False
        facts = self._fitting()
        self._has_more = bool(self._held)
        whole = not self._held
        end = self._end if whole else None
        take(turn, CodeAdvanced(facts=facts, end=end, idle=whole and progress.idle))
        return len(turn.events) > before and whole

    @property
    def has_more(self) -> bool:
        """Return whether it asks for more than went into the turn, which the next one takes."""
        return self._has_more

    def _fitting(self) -> tuple[Fact, ...]:
        """Take the facts that fit into a commit, from the first on."""
        size, count = 0, 0
        for fact in self._held:
            size += len(msgspec.json.encode(fact)) if len(self._held) > 1 else 0
            if count and size > FACTS_BYTES_MAX:
                break
            count += 1
        facts, self._held = tuple(self._held[:count]), self._held[count:]
        return facts

    def effects(self, state: RunState) -> list[Effect]:
        """Return the children to run and the values to compute."""
        if self._decider is None or state.flow is None or state.flow.diverged is not None or self._held:
            return []
        flow, found = state.flow, list[Effect]()
        for place, operation in self._decider.wanted.items():
            if place in flow.ended:
                continue
            if operation.wanted.make is not None:
                if operation.wanted.fact is None or (place in state.calls and is_to_tell(state.calls[place])):
                    found.append(MakeMemo(place))
            elif not state.pause_requested or place in flow.asked:
                found.append(RunPlace(place))
        return found

    def operation(self, place: str) -> Operation[Any] | None:
        """Return the operation that the code waits for at this place."""
        return self._decider.wanted.get(place) if self._decider is not None else None

    def begins_again(self) -> bool:
        """Drop the code after a commit, if it is set to begin again after each one; return whether it was dropped."""
        if self._always_replay:
            self.forget()
        return self._always_replay

    def forget(self) -> None:
        """Drop the code: it begins again when it goes on."""
        if self._decider is not None:
            self._decider.close()
        self._decider, self._held, self._end, self._has_more = None, [], None, False


def is_over(state: RunState, place: str) -> bool:
    """Return whether no code waits any more for the operation at this place."""
    return state.flow is not None and (place in state.flow.ended or state.flow.has_lost(place))


async def callback_of(driver: CallingDriver, operation: Operation[Any]) -> Callback | None:
    """Return the callback that an operation tells, with a token that is stored; null for one that is none."""
    fact = operation.wanted.fact
    if not isinstance(fact, AskWait):
        return None

    def outcome() -> Signal | None:
        raise ConfigError(f"{fact.place}: the answer is what run.callback returns, once it is awaited")

    issued = CallbackIssued(step=0, call_id=fact.place, wait_id=fact.place, sha256="")
    return Callback(await issue_token(driver, issued), driver.host.public_url, outcome)


async def make_memo(operation: Operation[Any], callback: Callback | None = None) -> MemoMade:
    """Compute a value that the code asks for, or tell a callback. Raises nothing but cancellation."""
    place, name = operation.place, operation.asked.name
    make: Callable[..., Any] | None = operation.wanted.make
    assert make is not None  # noqa: S101 - what makes it a memo
    try:
        if callback is None:
            value = as_json(await call_function(make))
        else:
            value = await call_function(make, callback)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        logger.info("memo %s failed", place, exc_info=True)
        why = f"it cannot be stored as JSON: {error}" if isinstance(error, NotJson) else in_a_line(error)
        return MemoMade(step=0, call_id=place, name=name, error=bounded(why))
    return MemoMade(step=0, call_id=place, name=name, value=value if callback is None else None)
