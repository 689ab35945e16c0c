"""The rollback of a table that failed, started by the process that drives it, before the table ends.

It has the key of the run's rollback (W42): a driver that dies in between, and the next that does it again, start one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..driving.host import Host
from ..journal.keys import check_there, note_stored, place_of_run
from ..rollbacks.rollback import plan_of_failed, submission_of
from .durable import DurableExecutor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ...eventlog.ports import Subject
    from ..agents.workflow.table import WorkflowTable
    from ..ports.executor import Executor


async def roll_back(host: Host, executor: Executor, subject: Subject) -> str:
    """Start the rollback of a run on this executor; return its id, empty if nothing has to be rolled back.

    Raises `ConfigError`, `NotRegistered`, `PayloadTooLarge`, `LogUnavailable`.
    """
    plan = await plan_of_failed(host.log, host.registry, subject)
    if plan.rollback is not None or not plan.steps:
        return plan.rollback or ""

    async def policy(table: WorkflowTable) -> Mapping[str, Any]:
        return {} if host.policy is None else await host.policy.of_run(host.registry.reachable(table))

    submitted, table = await submission_of(plan, host.registry, executor.name, policy)
    place = await place_of_run(host.log, submitted)
    if place.stored:
        await check_there(host.log, place)
        return place.subject.id
    if not await executor.submit(place.subject, place.submitted, table):
        await executor.drive(place.subject, table)  # its first submitter may be gone
    await note_stored(host.log, place)
    return place.subject.id


def on_workers(host: Host) -> Callable[[Subject], Awaitable[str]]:
    """Return what a worker starts rollbacks with: they are for any worker that serves the agent."""
    return lambda subject: roll_back(host, DurableExecutor(host), subject)
