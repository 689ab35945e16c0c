"""Calls of tools with `once`: each owns its key before it starts, or gets the outcome of the call that does (W43).

A twin of a call that is under way holds its worker for up to `IN_PLACE_S`, as a short sleep does (ADR 0009). Then its
attempt ends with a wait, so the run parks, and a timer wakes it to look again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ...eventlog.errors import FoldlogError, RunGone
from ...eventlog.events import ToolResult, ToolStatus
from ...projections.messages import canonical_json, sha256_hex
from ...projections.run_state import CallState
from ..core.approvals import effective_arguments
from ..core.commands import ToolReturned, ToolWaits
from ..journal.outages import through_outages
from ..ports.json_values import sound
from ..shared.once import OnceCall, Twin, note_over, own_files, take_once
from .cancellation import is_being_cancelled
from .gate import Gate
from .verify_call import ToolDriver

IN_PLACE_S = 10.0
LOOK_S_MIN, LOOK_S_MAX = 0.05, 1.0
"""The time between two looks at a twin while the worker is held."""
PARKED_S_MIN, PARKED_S_MAX = 10.0, 60.0
"""The time between two looks at a twin while the run is parked; it doubles."""
WAIT = "once"
"""The name of the waits of a twin."""
KEY_CHARS_MAX = 512
NOTE_S = 1.0


class BadKey(Exception):
    """The function of the tool gives no key for these arguments."""


class CallOnce(Gate[ToolDriver]):
    """The keys of the calls of one driver's run."""

    def __init__(self, driver: ToolDriver) -> None:
        super().__init__(driver)
        self._owned: dict[str, OnceCall] = {}
        self._noting: set[asyncio.Task[None]] = set()

    def sweep(self) -> None:
        """Forget the calls that are over, and those that wait for their twin, which look again later."""
        for call_id in [*self._taking]:
            call = self._driver.state.calls.get(call_id)
            if call is not None and call.result is None and call.open_wait is None:
                continue
            if self._taking[call_id].done():
                del self._taking[call_id]
            owned = self._owned.pop(call_id, None)
            if owned is not None and call is not None and call.result is not None:
                noting = asyncio.create_task(note_over(self._driver.host.log, owned))
                self._noting.add(noting)
                noting.add_done_callback(self._noting.discard)

    async def aclose(self) -> None:
        """Stop looking at twins: the driver leaves the run."""
        tasks = [task for task in self._taking.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._noting:
            await asyncio.wait(set(self._noting), timeout=NOTE_S)

    def _work_for(self, call_id: str) -> Coroutine[Any, Any, bool] | None:
        call = self._driver.state.calls.get(call_id)
        spec = self._driver.state.tools.get(call.name) if call is not None else None
        if call is None or spec is None or spec.once is None:
            return None
        return self._taken(call, spec.once)

    async def _taken(self, call: CallState, scope: str) -> bool:
        try:
            wanted = await self._wanted(call, scope)
        except BadKey as error:
            self._end(call, "error", error=f"not called: {error}")
            return False
        if wanted is None:  # its server is away, which fails the call itself
            return True
        try:
            twin = await self._look(wanted)
        except RunGone as error:
            why = f"not called: the outcome of the same call is gone with its run: {error}"
            self._end(call, "error", error=why, twin=error.run_id)
            return False
        if twin is None:
            self._owned[call.id] = wanted
            return True
        await self._settle(call, wanted, twin)
        return False

    async def _look(self, wanted: OnceCall) -> Twin | None:
        """Return what `take_once` returns, after a while if the twin is under way. Raises `RunGone`."""
        log, clock = self._driver.host.log, self._driver.clock
        until, pause_s = clock.monotonic() + IN_PLACE_S, LOOK_S_MIN
        while True:
            twin = await through_outages(clock, take_once, log, wanted)
            if (
                twin is None
                or twin.result is not None
                or twin.lost
                or not twin.same
                or clock.monotonic() >= until
            ):
                return twin
            await clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S_MAX)

    async def _settle(self, call: CallState, wanted: OnceCall, twin: Twin) -> None:
        named = f"{twin.run}/{twin.call}"
        if not twin.same:
            why = (
                f"not called: the key {wanted.key!r} in {wanted.scope!r} belongs to the call {twin.call} of run "
                f"{twin.run}, which has other arguments"
            )
            self._end(call, "error", error=why, twin=named)
        elif twin.lost:
            why = (
                f"not called: the call {twin.call} of run {twin.run}, which has the same key, was under way when its "
                "run ended, and it is unknown what it did"
            )
            self._end(call, "error", error=why, twin=named)
        elif twin.result is not None:
            await own_files(self._driver.host.log, self._driver.state.root, twin.result)
            self._end_as(call, twin.result, named)
        else:
            number = sum(wait.started.name == WAIT for wait in call.waits.values())
            later_s = min(PARKED_S_MIN * 2**number, PARKED_S_MAX)
            self._driver.post(
                ToolWaits(
                    step=self._driver.state.step,
                    call_id=call.id,
                    attempt=call.attempt,
                    wait_id=f"{WAIT}-{number}",
                    kind="sleep",
                    name=WAIT,
                    until=self._driver.clock.now() + later_s,
                    form=None,
                )
            )

    async def _wanted(self, call: CallState, scope: str) -> OnceCall | None:
        """Return the key that the call wants. Raises `BadKey`."""
        try:
            code = (await self._driver.tools()).get(call.name)
        except FoldlogError:
            return None
        arguments = effective_arguments(self._driver.state, call)
        find_key = getattr(code, "once", None)
        if find_key is None:
            raise BadKey(f"the tool {call.name!r} has no `once` in this process")
        try:
            key = find_key(arguments)
        except Exception as error:
            if is_being_cancelled():
                raise
            raise BadKey(sound(f"`once` of {call.name!r} failed: {type(error).__name__}: {error}")) from None
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARS_MAX:
            raise BadKey(
                f"`once` of {call.name!r} must return 1 to {KEY_CHARS_MAX} characters, not {key!r:.80}"
            )
        return OnceCall(
            run=self._driver.journal.subject,
            call=call.id,
            scope=scope,
            key=sound(key),
            digest=sha256_hex(canonical_json(arguments)),
            unsafe=self._driver.state.tools[call.name].effect == "unsafe",
        )

    def _end_as(self, call: CallState, result: ToolResult, twin: str) -> None:
        status: ToolStatus = result.metadata.get("status", "success" if result.success else "error")
        self._end(
            call,
            status,
            result=result.result,
            in_parts=result.in_parts,
            error=result.error,
            twin=twin,
            same=True,
        )

    def _end(
        self,
        call: CallState,
        status: ToolStatus,
        *,
        result: object = None,
        in_parts: bool = False,
        error: str | None = None,
        twin: str = "",
        same: bool = False,
    ) -> None:
        now = self._driver.clock.now()
        self._driver.post(
            ToolReturned(
                step=self._driver.state.step,
                call_id=call.id,
                attempt=call.attempt,
                status=status,
                result=result,
                in_parts=in_parts,
                error=error,
                started_at=now,
                completed_at=now,
                once=twin or "no key",
                deduplicated=same,
            )
        )
