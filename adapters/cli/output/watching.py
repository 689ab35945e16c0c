"""Watch a run until it ends: show its events, and handle Ctrl-C, timeouts and pauses."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ....eventlog.errors import RunCancelled, RunFailed
from ....eventlog.events import Claimed, Event, LeftToOthers, Parked, Released, Status
from ....projections.run_state import RunState
from ....runtime.stream import stream_run
from ..exits import INTERRUPTED, NO, OK, PAUSED, TIMED_OUT, say_error
from ..loops import Interruption
from ..settings import Settings
from .escaping import one_line
from .terminal import Screen
from .views import ASK, DIM, JsonView, ReadableView, View

if TYPE_CHECKING:
    from ....runtime import RunHandle, Runtime

TELL_AFTER_S = 0.5
"""How long after an interrupt to print why the command has not ended yet."""
SILENCE_S = 1.0
"""Time without an event after which the reason is looked up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Options of watching: the form, the cursor to start after, the timeout, and whether to wait through pauses."""

    json: bool = False
    detailed: bool = False
    after: str | None = None
    timeout_s: float | None = None
    wait: bool = True
    cancels: bool = False
    """Ctrl-C cancels the run."""
    drives: str | None = None
    """`MODULE:REGISTRY` with which this process drives the run; without it the run has no driver after the command."""


def view_for(screen: Screen, settings: Settings, watch: Watch) -> View:
    """Return the view that the options select."""
    return JsonView(screen) if watch.json else ReadableView(screen, settings, detailed=watch.detailed)


class Watcher:
    """Shows one run. `watch` returns the exit code."""

    def __init__(
        self, runtime: Runtime, run: RunHandle[Any], screen: Screen, settings: Settings, how: Watch
    ) -> None:
        self._runtime, self._run, self._how = runtime, run, how
        self._screen, self._settings = screen, settings
        self._view = view_for(screen, settings, how)
        self._news, self._driven = asyncio.Event(), False

    async def watch(self, interrupted: Interruption) -> int:
        """Watch until the run ends, pauses (without `wait`) or times out, or the user interrupts."""
        self._view.begin(await self._run.state())
        async with self._helpers() as failed:
            showing = asyncio.create_task(self._show())
            stopping = asyncio.create_task(interrupted.wait())
            try:
                await asyncio.wait({showing, stopping, failed}, return_when=asyncio.FIRST_COMPLETED)
                if failed.done() and not showing.done():
                    failed.result()
                if not showing.done():
                    return await self._interrupted(interrupted, showing)
                return await self._ended(showing.result(), interrupted)
            finally:
                for task in (showing, stopping):
                    task.cancel()
                await asyncio.gather(showing, stopping, return_exceptions=True)

    async def _show(self) -> int | None:
        """Show the stream; return the exit code if it is left before the run ends."""
        detailed = self._how.detailed if self._how.json else await self._has_details()
        namespace, subject = await self._runtime.place(self._run.run_id)
        events = stream_run(
            namespace.log,
            subject,
            detailed=detailed,
            after=self._how.after,
            engine=True,
        )
        try:
            async with asyncio.timeout(self._how.timeout_s), contextlib.aclosing(events):
                async for event in events:
                    self._see(event)
                    self._view.show(event)
                    if not self._how.wait and await self._is_paused(event):
                        return PAUSED
        except TimeoutError:
            return TIMED_OUT
        return None

    def _see(self, event: Event) -> None:
        """Note whether the run has a driver, as far as the log shows."""
        if event.run_id == self._run.run_id:
            if isinstance(event, Claimed):
                self._driven = True
            elif isinstance(event, Parked | Released | LeftToOthers):
                self._driven = False
        self._news.set()

    async def _is_paused(self, event: Event) -> bool:
        """Return whether the event is a pause, still in effect, of the run or of a run below it."""
        if not (isinstance(event, Status) and event.status == "paused"):
            return False
        state = await self._runtime.get_run(event.run_id).state()
        return state.paused is not None and event.at >= (state.elapsed.paused_at or 0.0)

    async def _has_details(self) -> bool:
        """Return whether the run's executor has detailed events, which the text view always shows."""
        submitted = (await self._run.state()).submitted
        executor = self._runtime.known_executor(submitted.executor) if submitted is not None else None
        return executor is None or "detailed_events" in executor.capabilities

    async def _ended(self, left_with: int | None, interrupted: Interruption) -> int:
        state = await self._run.state()
        if left_with is None or state.over:
            return self._tell_end(state)
        let_go = await self._let_go(interrupted)
        self._view.end(await self._run.state())
        if not let_go:
            return self._tell_left(interrupted)
        if left_with == TIMED_OUT:
            say_error(f"run {state.run} has not ended after {self._how.timeout_s:g} s; {self._way_back()}")
        else:
            self._screen.say((self._way_back(), DIM), important=True)
        return left_with

    def _tell_end(self, state: RunState) -> int:
        self._view.end(state)
        if state.terminal is not None and state.terminal.status == "completed":
            return OK
        if state.terminal is not None and state.terminal.status == "error":
            error = state.error
            say_error(f"{error.error_type}: {error.error}" if error is not None else "the run failed")
        return NO

    async def _interrupted(self, interrupted: Interruption, showing: asyncio.Task[int | None]) -> int:
        code = interrupted.code
        if self._how.cancels and code == INTERRUPTED:
            self._screen.say(("cancelling (repeat to exit immediately)", ASK))
            await self._run.cancel("interrupted", by="foldlog run")
            await showing
            self._view.end(await self._run.state())
            return code
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        self._screen.end_line()  # no summary: the log may be unreachable, and the user wants to leave
        await self._let_go()
        return self._tell_left(interrupted)

    def _tell_left(self, interrupted: Interruption) -> int:
        self._screen.say((f"detached from run {self._run.run_id}; {self._way_back()}", ASK), important=True)
        return interrupted.code

    async def _let_go(self, interrupted: Interruption | None = None) -> bool:
        """Stop driving the run, and wait for unsafe calls in progress; return false if the user does not wait.

        Without `interrupted`, the user has interrupted before, and the next signal ends the process.
        """
        if self._how.drives is None:
            return True
        closing = asyncio.create_task(self._runtime.aclose())
        stopping = asyncio.create_task(
            interrupted.wait() if interrupted is not None else asyncio.Event().wait()
        )
        try:
            await asyncio.wait({closing}, timeout=TELL_AFTER_S)
            if not closing.done():
                how = "Ctrl-C aborts them" if interrupted is not None else "repeat to abort them"
                self._screen.say(
                    (f"waiting for calls in progress ({how}, leaving their outcome unknown)", ASK)
                )
            await asyncio.wait({closing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return closing.done()
        finally:
            for task in (closing, stopping):
                task.cancel()
            await asyncio.gather(closing, stopping, return_exceptions=True)

    def _way_back(self) -> str:
        """Return how to come back to the run."""
        if self._settings.in_memory:
            return "its log was in the memory of this process and is lost"
        run = self._run.run_id
        stream = self._settings.command("runs", "stream", names=[run])
        if self._how.drives is None:
            return f"come back with: {stream}"
        drive = self._settings.command("runs", "drive", names=[run, self._how.drives])
        return f"it has no driver now; continue it with: {drive}"

    # --- beside the stream ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _helpers(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the tasks beside the stream; the one yielded ends with the error of this process' own driver."""
        failed = asyncio.create_task(self._driver_failed())
        waiting = asyncio.create_task(self._silences())
        try:
            yield failed
        finally:
            for task in (failed, waiting):
                task.cancel()
            await asyncio.gather(failed, waiting, return_exceptions=True)

    async def _driver_failed(self) -> None:
        """Raise the error that stopped this process from driving the run; the stream shows how the run ends."""
        with contextlib.suppress(RunFailed, RunCancelled):
            await self._runtime.get_run(self._run.run_id).result()
        await asyncio.Event().wait()

    async def _silences(self) -> None:
        """Print why the run has no driver whenever no events come, unless the reason is the same as last time."""
        told = None
        while True:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), SILENCE_S)
            except TimeoutError:
                why = None if self._driven else await self._why_undriven()
                if why is not None and why != told:
                    self._screen.say((f"waiting for {why}", ASK), important=True)
                told = why or told
                await self._news.wait()

    async def _why_undriven(self) -> str | None:
        """Return why the run has no driver: it waits for a slot, for its session, or for a worker. Null if unknown."""
        found = await self._run.pending()
        if (slot := found.slot) is not None:
            line = f"number {slot.place} in the queue; {len(slot.holders)} of {slot.runs_max} slots held"
            return f"a slot of {slot.limit or slot.agent} ({line})"
        if found.behind:
            return f"run {found.behind[0]} of its session"
        if not found.unclaimed or self._how.drives is not None:
            return None
        agent = (await self._run.state()).agent
        if found.left:
            told_already = not self._how.json and not self._screen.quiet
            return None if told_already else f"another worker: {one_line(found.left[0])}"
        none = "; no live worker does" if found.unserved else ""
        return f"a worker serving {agent}{none}"
