"""The rollback of a table that failed, started by the process that drives it, before the table ends.

It has the key of the run's rollback (W42), so a driver that dies in between and the next one start the same rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..driving.host import Host
from ..rollbacks.rollback import plan_of_failed, submission_of
from .durable import DurableExecutor
from .starting import submit_once

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...eventlog.ports import Subject
    from ..ports.executor import Executor


async def roll_back(host: Host, executor: Executor, subject: Subject) -> str:
    """Start the rollback of a run on this executor; return its id, empty if nothing has to be rolled back.

    Raises `ConfigError`, `NotRegistered`, `PayloadTooLarge`, `LogUnavailable`.
    """
    plan = await plan_of_failed(host.log, host.registry, subject)
    if plan.rollback is not None or not plan.steps:
        return plan.rollback or ""
    submitted, table = await submission_of(plan, host.registry, executor.name, host.policy_of)
    return await submit_once(host, executor, submitted, table)


def on_workers(host: Host) -> Callable[[Subject], Awaitable[str]]:
    """Return the function with which a worker starts rollbacks: any worker that serves the agent takes them."""
    return lambda subject: roll_back(host, DurableExecutor(host), subject)
