"""Driving one run: load, decide, perform, append, until it is over, parked, or another worker's.

Every executor drives with a `Driver`, whatever woke it. It commits only under its own claim (W1 to W4): after a
conflict, everything in the log is folded before it decides again, and a driver that finds itself fenced appends
nothing more.

A claim proves ownership for writes: the log rejects the append of a former owner, however late it comes. It proves
nothing for effects, which happen outside of the log. A driver that was stopped (a suspended machine, a blocked event
loop) resumes with an old view of the run, while another worker may have claimed the run and settled its calls. Pure
and idempotent calls may then run twice. An unsafe call must not, so before it starts the driver proves its ownership
(W20):

1. Its lease is in force. A worker that wants to take the run over waits until that lease is over.
2. Then it reads the run's tail: the claim in force is still its own. In this order, either the other claimant sees
   the lease and waits, or it has claimed before the read, which sees the claim. Replicas may lag, so the stream's
   leader says first how far the read has to reach (`EventLog.last_position`).
3. The proof is valid for `PROOF_S`, under that very lease; news of a later commit (`notify`) invalidate it. Nothing is
   awaited between the last look at the clock and the start.

What remains is a process that is suspended between that look and the start for longer than its lease. Only an
idempotency key at the other system closes that gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ...eventlog.commits import decode
from ...eventlog.errors import ConfigError, FoldlogError, LogUnavailable, PayloadTooLarge
from ...eventlog.events import CancelRequested, ToolStarted
from ...eventlog.ports import Write
from ...projections.run_state import RunState
from ..core import timeouts, timers
from ..core.commands import (
    Claim,
    Command,
    EvaluationReturned,
    Expired,
    ParkForChildren,
    PreparationFailed,
    Release,
    Tick,
    TimerDue,
)
from ..core.decide import advance, pending, take, unsafe_starts
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
from ..core.tool_calls import call_of, tool_of
from ..core.turn import Turn
from ..journal.cancel import see_cancel_through
from ..journal.journal import Journal
from ..journal.outages import STALE_READ_S, through_outages
from ..journal.snapshots import GRACE_S, SnapshotTaker
from ..ports.json_values import as_json, sound
from ..ports.tools import Tool, in_a_line
from ..shared.log_ids import at_work, done_with
from ..shared.spending import Spending
from . import hydration
from .cancellation import is_being_cancelled, shielded
from .children import ChildRuns
from .code import Code, callback_of, is_over, make_memo
from .host import Ending, Host, Posted
from .late_calls import Late, is_unsettled
from .model_call import call_model, over_budget
from .model_slots import provider_slot
from .preparation import Preparation
from .tool_call import call_tool, refused_call, tool_breaker_of, update_breaker
from .tool_once import CallOnce
from .tool_slots import CallSlots
from .usage import Account
from .verify_call import verify_call

logger = logging.getLogger("foldlog.drive")

FOLLOW_AFTER_S = 0.05
"""A run that commits more often than this does not follow its own log: commits of others conflict with its next one."""
STOP_GRACE_S = 10.0
UNBOUNDED_CALL_S = 60.0
"""The time that a leaving process gives an unsafe call without a timeout."""
PROOF_S = 0.25
"""The time that a proof of ownership is valid: a disconnected worker can lose the run before its lease expires. Each
further attempt doubles it, because the log may be slow to answer."""
LOOK_AGAIN_S = 5.0
"""The time in which a driver stopped from outside checks the log for the end of its run: that of a slow request."""


_OF_A_STEP = (CallModel, CallTool, VerifyCall, Expire)
_OF_A_CALL = (CallTool, VerifyCall)


class Driver:
    """One claim on one run. Use once: `claim`, then `drive`."""

    def __init__(self, host: Host, journal: Journal) -> None:
        self.host, self.journal, self.clock = host, journal, host.log.clock
        self.epoch = 0
        self.lease_number, self.lease_deadline = 0, -math.inf
        self._proven_under, self._proven_position = 0, 0
        self._proven_at = -math.inf
        self.guard = self
        """The driver whose lease covers this run: this one, or for a child the one of its root (W19)."""
        self.above: Driver | None = None
        """The driver of the parent, for a child."""
        self._heard_cancel = False
        self.slots_below = False
        """Set if any run below needed a slot."""
        self.serves_unsafe = False
        """Set if an unsafe call above waits for this run, which then goes on until that call has ended."""
        self.family: set[Driver] = {self}
        """Of a guard: the drivers of its run and of the runs below it."""
        self.renew: Callable[[], Awaitable[None]] | None = None
        """Renews the lease; set while heartbeats are sent for this driver."""
        self._inbox: list[Posted] = []
        self._bell: asyncio.Future[None] | None = None
        self._tasks: dict[Effect, asyncio.Task[None]] = {}
        self._tidy_step = 0
        self._performing = 0
        self._services: list[asyncio.Task[None]] = []
        self._snapshots = SnapshotTaker(journal, host.snapshot_events)
        self._parking: asyncio.Task[None] | None = None
        self._news_position = 0
        self._releasing: str | None = None
        self._broken: BaseException | None = None
        self._preparation = Preparation(host, journal)
        self._slots, self._once = CallSlots(self), CallOnce(self)
        self.spending = Spending(host, journal) if host.budgets else None
        journal.counting = self.spending.counted if self.spending is not None else None
        self.children = ChildRuns(self)
        self.deps: Any = None
        """The dependencies of the run's code, once they are open."""
        self.broken_off: dict[Effect, Account | None] = {}
        """The usage of replies that were cancelled while they arrived."""
        self.late = Late(host, journal.subject)
        self._code = Code(self._preparation.decider)

    @property
    def state(self) -> RunState:
        """The run as this driver knows it."""
        return self.journal.state

    def post(
        self, command: Command, extra: Sequence[Write] = (), stored: asyncio.Future[None] | None = None
    ) -> None:
        """Add a command to the next turn. Only for the event loop's own thread."""
        self._inbox.append(Posted(command, tuple(extra), stored))
        self.wake()

    def submit(self, command: Command, *writes: Write) -> asyncio.Future[None]:
        """Add a command to the next turn, with writes that belong to it; the future is done once it is stored."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.post(command, writes, stored)
        return stored

    def notify(self, position: int) -> None:
        """Report that the log holds a commit of this run at `position`."""
        self._news_position = max(self._news_position, position)
        self.wake()

    def release_soon(self, reason: str) -> None:
        """Release the run as soon as no unsafe call is running; calls that can be repeated are cut off."""
        self._releasing = reason
        self.wake()

    @property
    def is_leaving(self) -> bool:
        """Return whether the run is about to be released."""
        return self._releasing is not None

    @property
    def unsafe_calls_take_s(self) -> float:
        """The longest time that a running unsafe call, here or below, may take; 0 if there are none."""
        return max((driver._own_unsafe_calls_take_s() for driver in self.family), default=0.0)  # noqa: SLF001 - its own kind

    def _own_unsafe_calls_take_s(self) -> float:
        longest = 0.0
        for call in self.state.calls.values():
            at_work = call.started and call.result is None and not call.orphaned
            effect = CallTool(step=self.state.step, call_id=call.id, attempt=call.attempt)
            if at_work and not self.children.waits(effect):
                spec = tool_of(self.state, call)
                own = spec.timeout_s if spec is not None else None
                longest = max(longest, UNBOUNDED_CALL_S if own is None else own)
        return longest

    def renewed(self, since: float) -> None:
        """Note that the log has the lease sent at `since` (monotonic), the earliest time that anyone counts it from.

        A lease that lapsed in between gets a new number: it does not cover what began before it came back.
        """
        if self.clock.monotonic() >= self.lease_deadline:  # it lapsed before this renewal arrived
            self.lease_number += 1
        self.lease_deadline = since + self.host.lease_s

    @property
    def lease_in_force(self) -> int:
        """The number of the lease, 0 if none is in force: an equal number means that it never lapsed in between."""
        return self.lease_number if self.clock.monotonic() < self.lease_deadline else 0

    def child_waits(self) -> None:
        """Note that a child waits for a person or a timer. When all open effects do, the run parks."""
        if self.host.park_after_s is not None and self._parking is None:
            self._parking = asyncio.create_task(self._park_when_idle(self.host.park_after_s))
            self._services.append(self._parking)

    async def _park_when_idle(self, after_s: float) -> None:
        await self.clock.sleep(after_s)
        self._parking = None
        tasks = self._tasks.items()
        going_on = [e for e, task in tasks if not task.done() and not isinstance(e, AwaitTimer)]
        if going_on and not self._inbox and all(self.children.waits(effect) for effect in going_on):
            self.post(ParkForChildren())

    def wake(self) -> None:
        """Make the driver check its run again."""
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def for_child(self, host: Host, journal: Journal, *, serves_unsafe: bool) -> Driver:
        """Return a driver for a child of this run, under the lease that covers this one."""
        driver = Driver(host, journal)
        driver.guard, driver.above = self.guard, self
        driver.serves_unsafe = self.serves_unsafe or serves_unsafe
        return driver

    # --- claim --------------------------------------------------------------------------------------------------------

    async def claim(self, *causes: Command, extra: Sequence[Write] = ()) -> bool:
        """Claim the loaded run, after the event that woke it (W11). False: a conflict; judge the run again."""
        if self.state.closed:
            return False
        turn = self.turn()
        self.claim_within(turn, *causes)
        return await self.journal.store(turn.events, epoch=self.epoch, extra=extra, at=turn.now)

    def claim_within(self, turn: Turn, *causes: Command) -> None:
        """Add the claim, and all that follows from it, to a turn that is about to be stored."""
        take(turn, Claim(self.host.worker, self.host.lease_s, self.host.build))
        for cause in causes:
            take(turn, cause)
        self.epoch = self.state.epoch
        end = timeouts.is_over(self.state, self.journal.rules, turn.now)
        if end is not None:
            take(turn, Expired(scope=end.scope, step=end.step))
        self._prepare_at_once(turn)
        self._advance(turn)

    def _advance(self, turn: Turn) -> None:
        """Decide all that follows from the turn; of a workflow, the code goes on within it."""
        advance(turn)
        if self.state.flow is not None:
            while self._code.go_on(turn):
                advance(turn)

    def turn(self) -> Turn:
        """Return a new turn at the run."""
        if self.spending is not None:
            self.spending.model = self.state.model.model
        return Turn(self.state, self.journal.rules, self.clock.now())

    def _prepare_at_once(self, turn: Turn) -> None:
        """Prepare a run without tool servers in the commit of its claim: it needs nothing from outside."""
        submitted = self.state.submitted
        outside = submitted is None or submitted.config.get("mcp_servers") or hydration.is_needed(self.state)
        needed = ("instructions_function", "standing_plan")
        outside = outside or (submitted is not None and any(map(submitted.config.get, needed)))
        if not self.state.prepared and not outside:
            try:
                take(turn, self._preparation.at_once())
            except ConfigError as error:
                take(turn, PreparationFailed(error_type="config_error", message=str(error)))

    @property
    def ids(self) -> dict[str, str | int]:
        """The ids for log records of this run: its own, of its agent, and of the request that started it."""
        submitted = self.state.submitted
        of_request = {} if submitted is None or submitted.trigger is None else submitted.trigger.ids
        return {"run": self.state.run, "agent": self.state.agent, **of_request}

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def drive(self) -> Ending:
        """Advance the run until it ends, parks, or is no longer ours."""
        ids = at_work(self.ids)
        self._services.append(asyncio.create_task(self._follow()))
        self.guard.family.add(self)
        try:
            while (ending := self._ending()) is None:
                self._snapshots.look()
                try:
                    await self._go_on()
                except FoldlogError:
                    raise
                except Exception as error:  # noqa: BLE001 - see there
                    await self._end_by_bug(error)
        finally:  # a child that hears of a cancel is soon cancelled by its parent, which hears of it as well
            await shielded(self._stop())
            if self.guard is not self:
                self.guard.family.discard(self)
                self.guard.wake()
            done_with(ids)
        return "over" if self.state.over else ending

    def _ending(self) -> Ending | None:
        state = self.state
        if state.over:
            return "over"
        if state.epoch != self.epoch or state.cancelling or self._is_cancelled_above:
            return "fenced"
        if state.parked is not None:
            return "parked"
        if state.owner is None:
            return "released"
        return None

    @property
    def _is_cancelled_above(self) -> bool:
        """Return whether a run above this one is being cancelled, so that this one will soon be over."""
        return self.above is not None and self.above.is_cancelled

    @property
    def is_cancelled(self) -> bool:
        """Return whether this run or one above it is being cancelled, as far as this process knows."""
        return self._heard_cancel or self.state.cancelling or self._is_cancelled_above

    async def _go_on(self) -> None:
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        if self._news_position > self.state.head.position:
            await self.journal.catch_up()
            if self.state.flow is not None:
                self.post(Tick())
            if self._news_position > self.state.head.position:  # a stale read: a later one will be fresh
                await self.clock.sleep(STALE_READ_S)
            return
        if self._releasing is not None and not self.unsafe_calls_take_s:
            await self._turn([Posted(Release(self._releasing))])
            return
        if self.guard.is_leaving:
            self.guard.wake()  # it may be able to release its run now
        leaving = self.guard.is_leaving and not self.serves_unsafe
        self._slots.sweep()
        self._once.sweep()
        self._launch(leaving=leaving)
        found = () if leaving else unsafe_starts(self.state, self.clock.now())
        starts = [each for each in found if self._may_take_place(each)]
        if starts:
            await self._store_starts(starts)
            return
        await self._turn(await self._gather())

    async def _store_starts(self, starts: Sequence[ToolStarted]) -> None:
        """Store the starts of unsafe calls. If the log accepts them, the run was ours at the time of sending."""
        turn = self.turn()
        turn.add(*starts)
        under, since = self.guard.lease_in_force, self.clock.monotonic()
        if await self.journal.store(turn.events, epoch=self.epoch):
            self._proven_under, self._proven_at = under, since

    def _may_take_place(self, start: ToolStarted) -> bool:
        call_id = start.tool_call_id
        return call_id is None or (self._once.admits(call_id) and self._slots.admits(call_id))

    async def _turn(self, posted: list[Posted]) -> None:
        """Decide and store one turn; after a conflict its commands are decided again on top of the other commits."""
        turn, extra, waiting = self.turn(), list[Write](), list[asyncio.Future[None]]()
        posted = self._together(posted)
        for item in posted:
            if item.stored is not None and item.stored.cancelled():  # its sender no longer waits for it
                continue
            before = len(turn.events)
            take(turn, item.command)
            if len(turn.events) > before:
                extra.extend(item.extra)
            if item.stored is not None:
                waiting.append(item.stored)
        self._advance(turn)
        try:
            stored = not turn.events or await self.journal.store(
                turn.events, epoch=self.epoch, extra=extra, at=turn.now
            )
        except PayloadTooLarge as error:
            await self._fail("payload_too_large", str(error))
            return
        if self.state.flow is not None:
            self._follow_code(stored=stored, anything=bool(turn.events))
        if not stored:
            self._inbox[:0] = self._without_parking(posted)
            return
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _follow_code(self, *, stored: bool, anything: bool) -> None:
        """Drop the code of a workflow if it has seen what is not stored; let it go on if it asks for more."""
        if not stored:
            self._code.forget()
            return
        if self._code.has_more or (anything and self._code.begins_again()):
            self.post(Tick())

    def _together(self, posted: list[Posted]) -> list[Posted]:
        """Return the commands at the front that may share a turn; the others come next.

        Starts of children get a turn of their own: one in which the run ends would leave the children open (W24).
        """
        begins = bool(posted and posted[0].extra)
        count = next((at for at, item in enumerate(posted) if bool(item.extra) != begins), len(posted))
        self._inbox[:0] = posted[count:]
        return posted[:count]

    async def _fail(self, error_type: str, message: str) -> None:
        """End the run with an error; open children end with it (W24), and commits they make meanwhile conflict."""
        stored = False
        while not stored and self._ending() is None:
            turn = self.turn()
            turn.fail(error_type, message, recoverable=False, step=None)
            stored = await self.journal.store(turn.events, epoch=self.epoch)

    async def _end_by_bug(self, error: Exception) -> None:
        """End the run because of a bug, and name it: otherwise worker after worker would run into it."""
        state = await self.journal.load()
        logger.error("run %s: a bug at revision %d", state.run, state.head.rev, exc_info=error)
        where = f"run {state.run}, revision {state.head.rev}"
        await self._fail("fatal", f"{type(error).__name__}: {error} ({where})")

    async def _gather(self) -> list[Posted]:
        """Wait for a command, then let everything that is already finished join the same commit."""
        if not self._inbox and self._broken is None:
            self._bell = asyncio.get_running_loop().create_future()
            await self._bell
            self._bell = None
        count = -1
        while self._performing and count != len(self._inbox):
            count = len(self._inbox)
            await self.clock.sleep(0)
        posted, self._inbox = self._inbox, []
        return posted if len(posted) == 1 else self._without_parking(posted)

    def _without_parking(self, posted: list[Posted]) -> list[Posted]:
        """Drop requests to park if anything else happened: whether all effects wait is checked again."""
        kept = [each for each in posted if not isinstance(each.command, ParkForChildren)]
        if len(kept) < len(posted):
            self.child_waits()
        return kept

    # --- effects ------------------------------------------------------------------------------------------------------

    def _launch(self, *, leaving: bool = False) -> None:
        """Start the pending effects; `leaving`: only unsafe calls whose start is stored."""
        ends = timeouts.expiry(self.state, self.journal.rules), timers.next_timer(self.state)
        effects: tuple[Effect, ...] = pending(self.state, self.clock.now())
        effects = (*effects, *(end for end in ends if end is not None))
        if self.state.flow is not None and self._ending() is None:
            effects = (*effects, *self._code.effects(self.state))
        self._forget_all_but(effects)
        for effect in effects:
            if leaving and not (isinstance(effect, CallTool) and self._is_unsafe(effect)):
                continue
            if effect not in self._tasks:
                self._performing += 1
                self._tasks[effect] = asyncio.create_task(self._perform(effect))

    def _forget_all_but(self, wanted: Sequence[Effect]) -> None:
        """Forget the effects of earlier steps, so that memory does not grow with each step."""
        if self.state.flow is not None:
            self._forget_operations(wanted)
            return
        step = self.state.step
        if step == self._tidy_step:
            return
        self._tidy_step = step
        for effect, task in [*self._tasks.items()]:
            over = isinstance(effect, _OF_A_STEP) and effect.step < step
            if (over or isinstance(effect, AwaitTimer)) and effect not in wanted:
                if task.done():
                    del self._tasks[effect]
                elif isinstance(effect, (Expire, AwaitTimer)):
                    task.cancel()

    def _forget_operations(self, wanted: Sequence[Effect]) -> None:
        """Forget what is done of a workflow, and stop calls and values of branches that lost a race."""
        open_calls = self.state.calls
        for effect, task in [*self._tasks.items()]:
            if effect in wanted:
                continue
            if task.done():
                del self._tasks[effect]
            elif (
                isinstance(effect, (AwaitTimer, Expire))
                or (isinstance(effect, _OF_A_CALL) and effect.call_id not in open_calls)
                or (isinstance(effect, MakeMemo) and is_over(self.state, effect.place))
            ):
                task.cancel()

    async def _perform(self, effect: Effect) -> None:
        """Perform an effect, which ends in a command. If it raises, the drive stops, or it would wait for ever."""
        if isinstance(effect, _OF_A_STEP):
            at_work(
                {"step": effect.step, **({"call": effect.call_id} if isinstance(effect, _OF_A_CALL) else {})}
            )
        try:
            await self._do(effect)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it stops the drive
            self._broken = self._broken or error
            self.wake()
        finally:
            self._performing -= 1
            if self.children.rest:
                self.child_waits()

    async def _do(self, effect: Effect) -> None:  # noqa: C901 - one case each
        match effect:
            case CallTool():
                await self._call_tool(effect)
            case VerifyCall():
                await self._verify(effect)
            case CallModel():
                async with provider_slot(self, effect) as taken:
                    if taken and self._ending() is None:  # news since its launch may have made it obsolete
                        await self._call_model(effect)
            case Prepare():
                self.post(await self._preparation.prepare(effect))
            case LookUp():
                self.post(await self._preparation.look_up())
            case RunNode():
                await self.children.run_node(effect)
            case RunPlace() | MakeMemo():
                await self._operate(effect)
            case CancelChild():
                await self.children.cancel(effect.child_run)
            case Evaluate():
                self.post(await self._evaluate(effect))
            case WaitUntil() | AwaitTimer() | Expire():
                await self._sleep_until(effect.at)
                self._post_time(effect)

    async def _call_model(self, effect: CallModel) -> None:
        refused = await over_budget(self, self.spending, effect) if self.spending is not None else None
        if refused is not None:
            self.post(refused)
        elif self._ending() is None:  # the read of the budgets took its time
            self.post(await call_model(self, effect))

    async def _operate(self, effect: RunPlace | MakeMemo) -> None:
        operation = self._code.operation(effect.place)
        if operation is None:  # its branch has lost a race since
            return
        if isinstance(effect, RunPlace):
            await self.children.run_place(operation)
        else:
            self.post(await make_memo(operation, await callback_of(self, operation)))

    def _post_time(self, effect: WaitUntil | AwaitTimer | Expire) -> None:
        match effect:
            case WaitUntil():
                self.post(Tick())
            case AwaitTimer():
                self.post(TimerDue(effect.timer_id))
            case Expire():
                if timeouts.is_over(self.state, self.journal.rules, self.clock.now()):
                    self.post(Expired(scope=effect.scope, step=effect.step))

    async def _sleep_until(self, at: float) -> None:
        while (left_s := at - self.clock.now()) > 0:  # a sleep may end a moment early
            await self.clock.sleep(left_s)

    async def _evaluate(self, effect: Evaluate) -> EvaluationReturned:
        value: Any = None
        problem: str | None = None
        try:
            value = as_json(await self._preparation.evaluate(effect))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            logger.info("function %s of %s failed", effect.name, self.state.agent, exc_info=True)
            problem = sound(in_a_line(error))
        return EvaluationReturned(name=effect.name, ordinal=effect.ordinal, value=value, error=problem)

    async def _verify(self, effect: VerifyCall) -> None:
        if await self._has_deps():
            self.post(await verify_call(self, effect, self.state.calls[effect.call_id]))

    async def _call_tool(self, effect: CallTool) -> None:
        if self.state.flow is not None and effect.call_id not in self.state.calls:
            return  # its branch has lost a race since
        call = call_of(self.state, effect)
        spec = tool_of(self.state, call)
        if self._preparation.known is None:
            with contextlib.suppress(FoldlogError):  # a server that is away fails the call itself
                await self.tools()  # before the check: nothing may be awaited between it and the start
        if spec is not None and spec.once is not None and not await self._once.wait(call.id):
            return
        if self._slots.needs(call.id) and not await self._slots.wait(call.id):
            return
        breaker = tool_breaker_of(self, call)
        code = (self._preparation.known or {}).get(call.name)
        if getattr(code, "takes_context", True) and not await self._has_deps():
            return
        if breaker is not None and (refused := await breaker.admit()) is not None:
            self.post(refused_call(effect, refused, self.clock.now()))
            return
        if spec is not None and spec.effect == "unsafe" and not await self._may_start():
            return
        returned = await call_tool(self, effect, call)
        if breaker is not None:
            await update_breaker(breaker, returned, self.state.run)
        self.post(returned)

    async def _has_deps(self) -> bool:
        """Open the dependencies of the run's code. False: that failed, which ends the run."""
        try:
            self.deps = await self._preparation.deps()
        except ConfigError as error:
            self.post(PreparationFailed(error_type="config_error", message=str(error)))
            return False
        return True

    async def _may_start(self) -> bool:
        """Return whether an unsafe tool may start: the log has just shown, under the lease in force, our claim (W20).

        Nothing is awaited between the last look at the clock and the start.
        """
        if self.guard.renew is None:  # no heartbeat renews a lease
            return await self._prove()
        holds_s = PROOF_S
        while self._ending() is None:
            known = max(self.state.head.position, self._proven_position)
            fresh = self.clock.monotonic() - self._proven_at < holds_s
            if fresh and self._proven_under == self.guard.lease_in_force > 0 and self._news_position <= known:
                return True
            if not await self._prove():
                return False
            holds_s *= 2
        return False

    async def _prove(self) -> bool:
        """Renew the lease, then read the log: another claimant has either seen the lease, or is seen by this read."""
        if not self.guard.lease_in_force and self.guard.renew is not None:
            await through_outages(self.clock, self.guard.renew)
        under, since = self.guard.lease_in_force, self.clock.monotonic()
        proven = all([await driver.is_in_force() for driver in dict.fromkeys((self.guard, self))])
        if proven:  # only now: another call may check meanwhile
            self._proven_under, self._proven_at = under, since
        return proven

    async def is_in_force(self) -> bool:
        """Return whether the log shows this driver's claim in force, by a read of all that was stored before it began.

        A replica that lags may hide another's claim, so the leader says first how far the read has to reach.
        """
        log, subject = self.host.log, self.journal.subject
        fresh = Journal(log, subject, wait_for_log=True)
        last = await through_outages(self.clock, lambda: log.events.last_position(subject))
        known = max(last, self.state.head.position, self._news_position)
        short = not self.journal.snapshot_rev
        state = await fresh.load(short=short)
        while state.head.position < known:  # a lagging replica proves nothing
            await self.clock.sleep(STALE_READ_S)
            state = await fresh.load(short=short)
        self._proven_position = state.head.position
        self.notify(state.head.position)
        return not state.over and state.epoch == self.epoch and state.owner == self.host.worker

    @property
    def tools_at_hand(self) -> Mapping[str, Tool] | None:
        """The run's tools, if they are available without waiting."""
        return self._preparation.at_hand

    async def tools(self) -> Mapping[str, Tool]:
        """Return the run's tools in this process; connects to its tool servers at the first call."""
        return await self._preparation.tools()

    # --- the tail of the log, and the end -------------------------------------------------------------------

    async def _follow(self) -> None:
        known = -1
        while self.state.head.position != known:
            known = self.state.head.position
            await self.clock.sleep(FOLLOW_AFTER_S)
        async for stored in self.host.log.events.follow(self.journal.subject, self.state.head.position):
            if stored.position > self.state.head.position:
                with contextlib.suppress(ValueError):  # a damaged commit is reported when it is folded
                    events = decode(stored.data).events
                    self._heard_cancel |= any(isinstance(event, CancelRequested) for event in events)
                self.notify(stored.position)

    async def _stop(self) -> None:
        """Stop the running effects, and report their outcomes if the run was cancelled meanwhile."""
        self._code.forget()
        cancelling = asyncio.create_task(see_cancel_through(self.journal)) if self.state.cancelling else None
        unsettled = [effect for effect in self._tasks if is_unsettled(self.state, effect)]
        await self._end_tasks()
        await self._preparation.close_deps()
        await self._once.aclose()
        await self._slots.aclose()
        await self._snapshots.end(GRACE_S if self._ending() in {"parked", "released"} else 0.0)
        await self._preparation.aclose()
        if cancelling is not None:
            await cancelling
        elif unsettled and (self._ending() is None or self._is_cancelled_above):
            await self._look_again()
        if self.state.over and self.state.epoch == self.epoch and unsettled:
            await self._report_late(unsettled)
        for effect in unsettled:
            if isinstance(effect, CallTool) and (self.state.over or self._is_unsafe(effect)):
                self.late.report(effect)

    async def _end_tasks(self) -> None:
        tasks = [task for task in (*self._tasks.values(), *self._services) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_GRACE_S)
        for posted in self._inbox:
            if posted.stored is not None:
                posted.stored.cancel()

    def _is_unsafe(self, effect: CallTool) -> bool:
        """Return whether the call must not run again without a decision."""
        call = self.state.calls.get(effect.call_id)
        spec = tool_of(self.state, call) if call is not None else None
        return spec is not None and spec.effect == "unsafe"

    async def _look_again(self) -> None:
        """Read the run again: a driver stopped from outside, as by its parent's, may not know yet that it is over."""
        fresh = Journal(self.host.log, self.journal.subject)
        with contextlib.suppress(FoldlogError, TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                self.journal.state = await fresh.load(short=not self.journal.snapshot_rev)
                if self._is_cancelled_above:
                    await fresh.follow_until(lambda state: state.over)

    async def _report_late(self, unsettled: Sequence[Effect]) -> None:
        commands = [posted.command for posted in self._inbox]
        events = self.late.outcomes(unsettled, commands, self.broken_off)
        stored = False
        try:
            while not stored and self.state.over and self.state.epoch == self.epoch:
                self.turn().add(*events)
                stored = await self.journal.store(events, epoch=self.epoch)
        except LogUnavailable:
            logger.warning("run %s: the log is away, late outcomes are not stored", self.state.run)
