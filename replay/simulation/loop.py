"""A simulated event loop: virtual time, a choice of the next callback, no sockets, no threads.

    result = run_simulated(main, picks=Picks(seed=7))      # the same seed runs the same schedule

`time()` does not advance while a callback is ready; when none is, it jumps to the next timer. `Picks` chooses which of
the ready callbacks runs next, one at a time, so every order that asyncio permits can occur and be repeated. If nothing
is ready and no timer is set, the loop raises `Stuck`, because nothing could ever wake a task again.

A task belongs to the simulated process (`OWNER`) in which it was created. The callbacks of a stopped process are set
aside until it resumes; those of a dead process never run again, not even to clean up.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ...eventlog.errors import FoldlogError
from ...runtime.tools.functions import INLINE

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0
"""The Unix time at which every simulation begins."""
STEPS_MAX = 300_000
OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("OWNER", default="")
"""The simulated process that a task belongs to; inherited by the tasks that it creates."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RESOLUTION_S = 1e-9
"""A timer due within this time is due now, so that rounding of floats does not matter."""
_FAREWELLS_MAX = 20


class Stuck(FoldlogError):
    """Nothing can run, now or later: a deadlock."""


class TooLong(FoldlogError):
    """The simulation takes more steps than any needs: it is probably an endless loop."""


class Picks:
    """Chooses the next of the ready callbacks: drawn from a seed, or as given and, after those, always the first.

    `taken` lists the choices that were made, so that a schedule can be played again without its seed.
    """

    def __init__(self, seed: int | str | None = None, given: Sequence[int] = ()) -> None:
        self.taken: list[int] = []
        self._rng = random.Random(seed) if seed is not None else None  # noqa: S311 - not for secrets
        self._given = deque(given)

    def pick(self, count: int) -> int:
        """Return one of `count` (two or more) numbers from 0."""
        if self._rng is not None:
            chosen = int(self._rng.random() * count)
        else:
            chosen = self._given.popleft() % count if self._given else 0
        self.taken.append(chosen)
        return chosen


class _Task(asyncio.Task[Any]):
    """A task with a hash that depends on the order of creation, not on its address, so that sets are deterministic."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(asyncio.BaseEventLoop):
    """The simulated loop. `unhandled` lists the contexts that its exception handler received."""

    def __init__(self, picks: Picks | None = None, *, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self._steps_max, self._steps = steps_max, 0
        self._now_s = 0.0
        self._picks = picks
        self._tasks_made = 0
        self._still: dict[str, list[Any]] = {}
        self.unhandled: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))
        self.set_task_factory(self._make_task)

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks_made += 1
        return _Task(coro, loop=loop, number=self._tasks_made, **options)

    def time(self) -> float:
        """Return the simulated time in seconds since the beginning."""
        return self._now_s

    def stop_process(self, owner: str) -> None:
        """Run nothing of this process until `resume_process`; for a dead process, never again."""
        self._still.setdefault(owner, [])

    def resume_process(self, owner: str) -> None:
        """Continue the process with the callbacks that were set aside."""
        self._ready.extend(self._still.pop(owner, ()))

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override] # takes any arguments
        """Raise `RuntimeError`: a thread would not be deterministic."""
        raise RuntimeError("a simulation has no threads")

    _ready: deque[Any]
    _scheduled: list[Any]

    def _run_once(self) -> None:
        """Run one callback, where `BaseEventLoop` would run all that are ready."""
        self._steps += 1
        if self._steps > self._steps_max:
            raise TooLong(f"{self._steps_max} steps, at {self._now_s:.3f} s of simulated time")
        ready = self._ready
        self._ring()
        if not ready:
            self._let_time_pass()
        index = self._picks.pick(len(ready)) if self._picks is not None and len(ready) > 1 else 0
        handle = ready[index]
        del ready[index]
        if handle.cancelled():
            return
        if self._still:
            aside = self._still.get(handle._context.get(OWNER, ""))  # noqa: SLF001 - the loop runs its handles
            if aside is not None:
                aside.append(handle)
                return
        handle._run()  # noqa: SLF001 - as above

    def _ring(self) -> None:
        """Make the timers that are due ready."""
        scheduled = self._scheduled
        while scheduled and (scheduled[0].cancelled() or scheduled[0].when() - self._now_s < _RESOLUTION_S):
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # noqa: SLF001 - as the base class does
            if not timer.cancelled():
                self._now_s = max(self._now_s, timer.when())
                self._ready.append(timer)

    def _let_time_pass(self) -> None:
        if not self._scheduled:
            raise Stuck("nothing is ready and no timer is set")
        self._now_s = self._scheduled[0].when()
        self._ring()

    def _process_events(self, _event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def forget(self) -> None:
        """Cancel what is left, with a limit on its clean-up, and close the loop."""
        self._steps, self._picks = 0, None
        for owner in [*self._still]:
            self.resume_process(owner)
        try:
            for _ in range(_FAREWELLS_MAX):
                left = asyncio.all_tasks(self)
                if not left:
                    break
                for task in left:
                    task.cancel()
                try:
                    self.run_until_complete(asyncio.wait(left, timeout=1.0))
                except Stuck:
                    continue
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.close()


class SimulatedClock:
    """`foldlog.eventlog.Clock` over the running loop's time, with ids that count up.

    `begins_at` is the Unix time of its beginning, which a scenario may set before anything runs.
    """

    begins_at = EPOCH_S

    def __init__(self) -> None:
        self._ids = 0

    def now(self) -> float:
        """Return the simulated Unix time."""
        return self.begins_at + self.monotonic()

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        """Sleep for `delay_s` seconds of simulated time."""
        await asyncio.sleep(max(0.0, delay_s))

    def new_id(self) -> str:
        """Return the next id."""
        self._ids += 1
        return _base32(int(self.now() * 1000), 10) + _base32(self._ids, 16)


def _base32(value: int, length: int) -> str:
    return "".join(_ALPHABET[(value >> (5 * i)) & 31] for i in range(length - 1, -1, -1))


def simulated_loop() -> SimulatedLoop:
    """Return the running loop. Raises `RuntimeError` outside of a simulation."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise RuntimeError("this works only within a simulation")  # noqa: TRY004 - a wrong place, not a wrong type
    return loop


def run_simulated(
    main: Callable[[], Coroutine[Any, Any, T]], *, picks: Picks | None = None, steps_max: int = STEPS_MAX
) -> T:
    """Run `main` on its own loop until it returns, and cancel what is still running then.

    Without picks, callbacks run in the order in which they became ready. Functions that are not async run on the loop,
    too: simulated time would not wait for a thread. Raises what `main` raises, `Stuck` and `TooLong`.
    """

    async def inline() -> T:
        INLINE.set(True)
        return await main()

    loop = SimulatedLoop(picks, steps_max=steps_max)
    try:
        return loop.run_until_complete(inline())
    finally:
        loop.forget()
