"""An event loop without a machine under it: virtual time, a choice of what runs next, no sockets, no threads.

    result = run_simulated(main, picks=Picks(seed=7))      # the same seed runs the same schedule

`time()` stands still while anything can run and jumps to the next timer when nothing can. Which of the callbacks that
are ready runs next is up to the picks. When nothing is ready and no timer is set, `Stuck` is raised: nobody would ever
wake anybody.

A task belongs to the simulated process (`OWNER`) in which it was made. A process that is stopped runs none of its
callbacks until it goes on; one that died never runs any again, not even to clean up.
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

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0
"""Unix time at which every simulation begins."""
STEPS_MAX = 300_000
OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("OWNER", default="")
"""The simulated process that a task belongs to; inherited by the tasks that it creates."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RESOLUTION_S = 1e-9
"""A timer that is due within the rounding of floats is due now, also for those who look at the time."""
_FAREWELLS_MAX = 20


class Stuck(FoldlogError):
    """Nothing can run, now or later."""


class TooLong(FoldlogError):
    """More steps than any simulation needs: somebody goes round in circles."""


class Picks:
    """Which of the ready callbacks runs next: drawn from a seed, or as given, and the first once those are used up.

    `taken` lists the choices that were made, so that a schedule can be played again without its seed.
    """

    def __init__(self, seed: int | str | None = None, given: Sequence[int] = ()) -> None:
        self.taken: list[int] = []
        self._rng = random.Random(seed) if seed is not None else None  # noqa: S311 - not for secrets
        self._given = deque(given)

    def pick(self, count: int) -> int:
        """One of `count` (two or more), from 0."""
        if self._rng is not None:
            chosen = int(self._rng.random() * count)
        else:
            chosen = self._given.popleft() % count if self._given else 0
        self.taken.append(chosen)
        return chosen


class _Task(asyncio.Task[Any]):
    """A task whose place in a set is the order of its making, and not where it lies in memory."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop. `unhandled` lists what no task retrieved, as the loop's exception handler is told it."""

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
        """The simulated time in seconds from the beginning."""
        return self._now_s

    def stop_process(self, owner: str) -> None:
        """Let nothing of this process run until `resume_process`; for one that died, never."""
        self._still.setdefault(owner, [])

    def resume_process(self, owner: str) -> None:
        """Let the process go on with what it would have done meanwhile."""
        self._ready.extend(self._still.pop(owner, ()))

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override] # whatever is given
        """Raise `RuntimeError`: a thread would run in its own time."""
        raise RuntimeError("a simulation has no threads")

    _ready: deque[Any]
    _scheduled: list[Any]

    def _run_once(self) -> None:
        """Run one callback, as `BaseEventLoop` runs all that are ready."""
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
        """Move what is due to what is ready."""
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
        """End what is left without letting it say goodbye for long, and close the loop."""
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
    """`foldlog.eventlog.Clock` over the running loop's time, with ids that count up."""

    def __init__(self) -> None:
        self._ids = 0

    def now(self) -> float:
        """Simulated Unix time."""
        return EPOCH_S + self.monotonic()

    def monotonic(self) -> float:
        """Seconds from the beginning."""
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        """Let others go on for so long."""
        await asyncio.sleep(max(0.0, delay_s))

    def new_id(self) -> str:
        """The next id."""
        self._ids += 1
        return _base32(int(self.now() * 1000), 10) + _base32(self._ids, 16)


def _base32(value: int, length: int) -> str:
    return "".join(_ALPHABET[(value >> (5 * i)) & 31] for i in range(length - 1, -1, -1))


def simulated_loop() -> SimulatedLoop:
    """The loop that is running. Raises `RuntimeError` outside a simulation."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise RuntimeError("this works within a simulation only")  # noqa: TRY004 - of where it is called
    return loop


def run_simulated(
    main: Callable[[], Coroutine[Any, Any, T]], *, picks: Picks | None = None, steps_max: int = STEPS_MAX
) -> T:
    """Run `main` on a loop of its own to its end, and forget what is still running then.

    Without picks, what became ready first runs first. Raises what `main` raises, `Stuck` and `TooLong`.
    """
    loop = SimulatedLoop(picks, steps_max=steps_max)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.forget()
