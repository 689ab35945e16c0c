"""The rows of operators' questions: workers, lanes, slots, breakers, and agents with their queues."""

from __future__ import annotations

import msgspec

from ...projections.run_list import Takeover


class Drive(msgspec.Struct, frozen=True, kw_only=True):
    """A family that a process drives: its root run, and the seconds since its lease was renewed."""

    run_id: str
    epoch: int
    lease_age_s: float


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is present, as it announced itself, and what it drives. `since` is in Unix seconds.

    `serves` is empty for a program that drives only runs of its own. `silent_s` is the longest time since a lease of it
    was renewed, 0 without any. A worker that is `draining` takes no more runs, and finishes those that it drives.
    """

    worker: str
    host: str
    pid: int
    release: str
    build: str
    serves: tuple[str, ...]
    concurrency: int
    since: float
    drives: tuple[Drive, ...]
    silent_s: float
    draining: bool


class LostWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that vanished: runs that it drove were taken over, or are still its own.

    `since` is when that was first seen, in Unix seconds: the earliest of its takeovers, or the last commit of a run
    that is `left`, that is, driven by nobody else yet.
    """

    worker: str
    since: float
    taken: tuple[TakenRun, ...] = ()
    left: tuple[str, ...] = ()


class TakenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that another process took over."""

    run_id: str
    takeover: Takeover


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a line, and since when it has its status (Unix seconds)."""

    run_id: str
    agent: str
    status: str
    since: float


class LaneRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lane with open runs: the one whose turn it is, and those after it, in order."""

    lane: str
    runs: tuple[Standing, ...]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or a call of it (`call` and `tool` are not empty), that holds a slot or waits for one since `since`."""

    run_id: str
    call: str = ""
    tool: str = ""
    since: float = 0.0


class SlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a name (`agent:refunds`, `call:printer`, `limit:tool:print`): holders, and waiters in their order.

    `places` is how many there are, 0 if nothing waits for one. `configured` is whether the configuration of the
    process that answers has the limit; null for other slots than those of limits, and if it has no limits at all.
    """

    name: str
    places: int
    holders: tuple[Holder, ...]
    waiting: tuple[Holder, ...]
    configured: bool | None = None


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """The spending of a budget of the namespace by its owner, such as `user:ada`, in the period that began then.

    Amounts of dollars are decimals; what is left is null if the budget does not limit it. `amount` and `when_spent` are
    empty in a process that does not know the budget. Of `calls`, `unpriced` have no known cost. `until` (Unix seconds)
    is null for a total.
    """

    owner: str
    amount: str
    per: str
    time_zone: str
    when_spent: str
    began_at: float
    until: float | None
    calls: int
    unpriced: int
    tokens: int
    cost_usd: str
    left_tokens: int | None
    left_usd: str | None


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker that has counted failures. `state` closed, open or half_open; `until` in Unix seconds."""

    name: str
    state: str
    failures: int
    until: float
    error_type: str
    run_id: str


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with open root runs: queued, driven, parked or paused; wake-ups nobody took yet; and its workers."""

    agent: str
    queued: int = 0
    driven: int = 0
    parked: int = 0
    wakeups: int = 0
    workers: tuple[str, ...] = ()
