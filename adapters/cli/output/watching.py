"""Watching a run until it is over: its events shown, and what Ctrl-C, time-outs and pauses mean for whoever waits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ....eventlog.errors import RunCancelled, RunFailed
from ....eventlog.events import Claimed, Event, LeftToOthers, Parked, Released, Status
from ....projections.run_state import RunState
from ....runtime.stream import stream_run
from ..exits import INTERRUPTED, NO, OK, PAUSED, TERMINATED, TIMED_OUT, say_error
from ..loops import Interruption
from ..settings import Settings
from .escaping import one_line
from .terminal import Screen
from .views import ASK, DIM, JsonView, ReadableView, View

if TYPE_CHECKING:
    from ....runtime import RunHandle, Runtime

TELL_AFTER_S = 0.5
"""After how long whoever wants to leave is told why it takes a while."""
SILENCE_S = 1.0
"""After how long without an event it is looked why nothing happens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """How to watch: in which form, from where, how long, and whether pauses are waited through."""

    json: bool = False
    detailed: bool = False
    after: str | None = None
    timeout_s: float | None = None
    wait: bool = True
    cancels: bool = False
    """Ctrl-C cancels the run."""
    drives: str | None = None
    """With what (`MODULE:REGISTRY`) this process drives the run; nobody does once it has left."""


def view_for(screen: Screen, settings: Settings, watch: Watch) -> View:
    """The view that the options ask for."""
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
        """Until the run is over, paused (without `wait`), too late, or the user has seen enough."""
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
        """Show the stream; the exit code if it is left before the run is over."""
        detailed = self._how.detailed if self._how.json else await self._has_details()
        events = stream_run(
            self._runtime.log,
            await self._runtime.locate(self._run.run_id),
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
        """Note whether the run is driven, as far as the log tells."""
        if event.run_id == self._run.run_id:
            if isinstance(event, Claimed):
                self._driven = True
            elif isinstance(event, Parked | Released | LeftToOthers):
                self._driven = False
        self._news.set()

    async def _is_paused(self, event: Event) -> bool:
        """Return whether the event tells of a pause that still holds, of the run or of one below it."""
        if not (isinstance(event, Status) and event.status == "paused"):
            return False
        state = await self._runtime.get_run(event.run_id).state()
        return state.paused is not None and event.at >= (state.elapsed.paused_at or 0.0)

    async def _has_details(self) -> bool:
        """People are shown what becomes of tool calls, if the run's executor tells."""
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
            say_error(f"run {state.run} is not over after {self._how.timeout_s:g} s; {self._way_back()}")
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
        code = _code_of(interrupted)
        if self._how.cancels and code == INTERRUPTED:
            self._screen.say(("cancelling (once more to end at once)", ASK))
            await self._run.cancel("interrupted", by="foldlog run")
            await showing
            self._view.end(await self._run.state())
            return code
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        self._screen.end_line()  # the log is asked for nothing: it may be away, and the user has seen enough
        await self._let_go()
        return self._tell_left(interrupted)

    def _tell_left(self, interrupted: Interruption) -> int:
        self._screen.say((f"run {self._run.run_id} is left alone; {self._way_back()}", ASK), important=True)
        return _code_of(interrupted)

    async def _let_go(self, interrupted: Interruption | None = None) -> bool:
        """Drive the run no more, which waits for unsafe calls at work; false if the user did not want to wait.

        Without an interruption to wait for, the user has interrupted before, and the next signal ends the process.
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
                how = "Ctrl-C cuts them off" if interrupted is not None else "once more to cut them off"
                self._screen.say((f"calls at work end first ({how}, and leaves what they did in doubt)", ASK))
            await asyncio.wait({closing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return closing.done()
        finally:
            for task in (closing, stopping):
                task.cancel()
            await asyncio.gather(closing, stopping, return_exceptions=True)

    def _way_back(self) -> str:
        """How to come back to a run that is left."""
        if self._settings.in_memory:
            return "its log was in the memory of this process, and ends with it"
        run = self._run.run_id
        stream = self._settings.command("runs", "stream", names=[run])
        if self._how.drives is None:
            return f"come back with: {stream}"
        drive = self._settings.command("runs", "drive", names=[run, self._how.drives])
        return f"nobody drives it now; go on with: {drive}"

    # --- beside the stream ------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _helpers(self) -> AsyncIterator[asyncio.Task[None]]:
        """What has an eye on the run meanwhile; the task yielded ends with the error of this process' own driver."""
        failed = asyncio.create_task(self._driver_failed())
        waiting = asyncio.create_task(self._silences())
        try:
            yield failed
        finally:
            for task in (failed, waiting):
                task.cancel()
            await asyncio.gather(failed, waiting, return_exceptions=True)

    async def _driver_failed(self) -> None:
        """Raise what stopped this process from driving the run; how the run ends is told by the stream."""
        with contextlib.suppress(RunFailed, RunCancelled):
            await self._runtime.get_run(self._run.run_id).result()
        await asyncio.Event().wait()

    async def _silences(self) -> None:
        """Say in each silence why the run is not driven, unless the one before said the same."""
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
        """It stands in line, behind a turn of its session, or no worker takes it."""
        found = await self._run.pending()
        if (slot := found.slot) is not None:
            line = f"{slot.place}. in line; driven at once: {len(slot.holders)} of {slot.runs_max}"
            return f"a slot of {slot.agent} ({line})"
        if found.behind:
            return f"run {found.behind[0]} of its session"
        if not found.unclaimed or self._how.drives is not None:
            return None
        agent = (await self._run.state()).agent
        if found.left:
            told_already = not self._how.json and not self._screen.quiet
            return None if told_already else f"another worker: {one_line(found.left[0])}"
        none = "; none that is there does" if found.unserved else ""
        return f"a worker serving {agent}{none}"


def _code_of(interrupted: Interruption) -> int:
    return TERMINATED if interrupted.signal == signal.SIGTERM else INTERRUPTED
