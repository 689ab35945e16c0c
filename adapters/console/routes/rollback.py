"""Rollbacks: the plan of what would undo a run, and the run that does it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from ..problems import Problem
from ..routing import Answered, Call, Nothing, Route
from .runs import Started

if TYPE_CHECKING:
    from ....runtime.rollbacks.rollback import RollbackPlan


class RollBack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part to undo: all, or from the call `from_step` on. `plan` is the digest of the plan that was shown.

    `executor` is that of the run by default.
    """

    from_step: str | None = None
    executor: str | None = None
    plan: str = ""


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a step undoes."""

    run: str
    call: str
    tool: str


class RollbackStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step: the call of a `tool`, or, if that is null, what a person does `by_hand`."""

    step: str
    tool: str | None
    arguments: dict[str, Any] | None
    by_hand: str | None
    undoes: Undone


class ShownRollback(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a rollback, and its digest. `rollback`: the run that does it already, or has done it."""

    digest: str
    run: str
    number: int
    rollback: str | None
    steps: list[RollbackStep]


async def plan_rollback(call: Call[Nothing, RollBack]) -> ShownRollback:
    """Show what would undo a run, and store nothing."""
    return _shown(await call.runtime.plan_rollback(call.path("run"), from_step=call.body.from_step))


def _shown(plan: RollbackPlan) -> ShownRollback:
    told = plan.as_json()
    digest = hashlib.sha256(msgspec.json.encode(told)).hexdigest()
    return msgspec.convert(told | {"digest": digest}, ShownRollback)


async def roll_back(call: Call[Nothing, RollBack]) -> Answered:
    """Undo a run that is over, as a workflow with an approval for each step; 409 if the plan is not that of `plan`.

    A rollback that is there already is what is asked for, whatever the plan.
    """
    asked, name = call.body, call.path("run")
    shown = _shown(await call.runtime.plan_rollback(name, from_step=asked.from_step))
    if shown.rollback is None and asked.plan not in {"", shown.digest}:
        raise Problem(409, "the plan is not the one that was shown: look at it again", digest=shown.digest)
    run = await call.runtime.rollback(
        name, from_step=asked.from_step, executor=asked.executor, by=call.author
    )
    where = {"Location": f"{call.door.options.base_path}/api/v1/runs/{run.run_id}"}
    return Answered(Started(run.run_id, run.is_new), 201 if run.is_new else 200, where)


ROUTES = (
    Route(
        method="POST",
        path="/runs/{run}/rollback/plan",
        role="operator",
        endpoint=plan_rollback,
        body=RollBack,
        answer=ShownRollback,
        cost="heavy",
    ),
    Route(
        method="POST",
        path="/runs/{run}/rollback",
        role="admin",
        endpoint=roll_back,
        body=RollBack,
        answer=Started,
        status=201,
        cost="start",
    ),
)
