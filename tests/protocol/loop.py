"""An event loop without a machine under it: virtual time, a seeded choice of what runs next, no sockets, no threads.

    result = simulate(main, seed=7)      # the same seed runs the same schedule

`time()` stands still while anything can run and jumps to the next timer when nothing can. With a seed, the next of
the callbacks that are ready is drawn by a random number generator instead of taken in their order. When nothing is
ready and no timer is set, `Stuck` is raised: nobody would ever wake anybody.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0
"""Unix time at which every simulation begins."""
STEPS_MAX = 300_000
OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("OWNER", default="")
"""The simulated process that a task belongs to; inherited by the tasks that it creates."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Stuck(AssertionError):
    """Nothing can run, now or later."""


class TooLong(AssertionError):
    """More steps than any simulation needs: somebody goes round in circles."""


class _NoSelector:
    """Where a real loop waits for sockets, this one lets the time pass."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set")
        self._loop.advance(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop. `unhandled` lists what no task retrieved, as the loop's exception handler is told it."""

    def __init__(self, seed: int | None = None, *, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self._steps_max = steps_max
        self._now_s = 0.0
        self._steps = 0
        self._rng = random.Random(seed) if seed is not None else None
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9
        self._owned: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self.unhandled: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def time(self) -> float:
        return self._now_s

    def forget_steps(self) -> None:
        """Count the steps anew."""
        self._steps = 0

    def advance(self, delay_s: float) -> None:
        """Let time pass."""
        self._now_s += delay_s

    def _reach_next_timer(self) -> None:
        """A timer that is due within the rounding of floats is due now, also for those who look at the time."""
        scheduled: Any = self._scheduled  # type: ignore[attr-defined]
        if scheduled and 0 < scheduled[0]._when - self._now_s < self._clock_resolution:
            self._now_s = scheduled[0]._when

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._owned[task] = OWNER.get()
        return task

    def tasks_of(self, owner: str) -> list[asyncio.Task[Any]]:
        """The unfinished tasks of a simulated process, in the order of their making."""
        tasks = [task for task, name in self._owned.items() if name == owner and not task.done()]
        return sorted(tasks, key=lambda task: int(task.get_name().rpartition("-")[2]))

    def run_in_executor(self, *_: Any) -> Any:
        raise RuntimeError("a simulation has no threads")

    def _process_events(self, _event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        self._steps += 1
        if self._steps > self._steps_max:
            raise TooLong(f"{self._steps_max} steps, at {self._now_s:.3f} s of simulated time")
        self._reach_next_timer()
        ready: Any = self._ready  # type: ignore[has-type]
        if self._rng is None or len(ready) < 2:
            super()._run_once()  # type: ignore[misc]
            return
        waiting = list(ready)
        ready.clear()
        ready.append(waiting.pop(self._rng.randrange(len(waiting))))
        try:
            super()._run_once()  # type: ignore[misc]
        finally:
            ready.extendleft(reversed(waiting))


class SimulatedClock:
    """`foldlog.eventlog.Clock` over the running loop's time, with ids that count up."""

    def __init__(self) -> None:
        self._ids = 0

    def now(self) -> float:
        return EPOCH_S + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(max(0.0, delay_s))

    def new_id(self) -> str:
        self._ids += 1
        return _base32(int(self.now() * 1000), 10) + _base32(self._ids, 16)


def _base32(value: int, length: int) -> str:
    return "".join(_ALPHABET[(value >> (5 * i)) & 31] for i in range(length - 1, -1, -1))


def simulate(
    main: Callable[[], Coroutine[Any, Any, T]], *, seed: int | None = None, steps_max: int = STEPS_MAX
) -> T:
    """Run `main` on a loop of its own to its end, and forget what is still running then."""
    loop = SimulatedLoop(seed, steps_max=steps_max)
    try:
        return loop.run_until_complete(main())
    finally:
        _forget(loop)


def _forget(loop: SimulatedLoop) -> None:
    """End what is left without letting it say goodbye for long."""
    loop.forget_steps()
    try:
        for _ in _rounds():
            left = asyncio.all_tasks(loop)
            if not left:
                break
            for task in left:
                task.cancel()
            try:
                loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            except Stuck:
                continue
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _rounds() -> Iterator[int]:
    yield from range(20)
