"""Standing plans: the list, the versions of one, and what is done to them."""

from __future__ import annotations

from typing import Any

import msgspec

from ....eventlog.events import PlanStatus
from ....runtime.shared.plans import GivenStep, PlanVersion
from ..routing import Call, Nothing, Route


class PlanDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A standing plan at a version, and all its versions, oldest first."""

    plan: PlanVersion
    versions: list[PlanVersion]


class SavePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan to save. `version` is the one that the change was made from, 0 for a new plan; null for any."""

    name: str
    steps: list[GivenStep]
    goal: str = ""
    version: int | None = None
    note: str = ""


class SetStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The status of a step; its note stays as it is if that is null."""

    status: PlanStatus
    note: str | None = None


class VersionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version; null for the last one."""

    version: int | None = None


async def list_plans(call: Call[Nothing, Nothing]) -> list[PlanVersion]:
    """List the standing plans with their last versions."""
    return await call.runtime.plans.list()


async def show_plan(call: Call[VersionQuery, Nothing]) -> PlanDetail:
    """Show a standing plan at a version, and who changed it and when."""
    plans, name = call.runtime.plans, call.path("plan")
    versions = [*await plans.versions(name)]
    found = versions[-1] if call.query.version is None else await plans.get(name, call.query.version)
    return PlanDetail(plan=found, versions=versions)


async def save_plan(call: Call[Nothing, SavePlan]) -> PlanVersion:
    """Save a standing plan as its next version; a plan that is already so is left alone."""
    asked = call.body
    steps = [step.step() for step in asked.steps]
    return await call.runtime.plans.save(
        asked.name, steps, goal=asked.goal, version=asked.version, note=asked.note, by=call.author
    )


async def set_plan_step(call: Call[Nothing, SetStep]) -> PlanVersion:
    """Set the status of a step of a standing plan."""
    asked = call.body
    return await call.runtime.plans.set_step(
        call.path("plan"), call.path("step"), asked.status, note=asked.note, by=call.author
    )


async def remove_plan(call: Call[VersionQuery, Nothing]) -> dict[str, bool]:
    """Remove a standing plan; its versions stay."""
    await call.runtime.plans.remove(call.path("plan"), version=call.query.version, by=call.author)
    return {"removed": True}


_PLAN = "/plans/{plan}"
ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/plans", role="viewer", endpoint=list_plans, answer=list[PlanVersion]),
    Route(
        method="POST", path="/plans", role="operator", endpoint=save_plan, body=SavePlan, answer=PlanVersion
    ),
    Route(
        method="GET",
        path=_PLAN,
        role="viewer",
        endpoint=show_plan,
        query=VersionQuery,
        answer=PlanDetail,
    ),
    Route(
        method="POST",
        path=f"{_PLAN}/steps/{{step}}",
        role="operator",
        endpoint=set_plan_step,
        body=SetStep,
        answer=PlanVersion,
    ),
    Route(
        method="DELETE",
        path=_PLAN,
        role="operator",
        endpoint=remove_plan,
        query=VersionQuery,
        answer=dict[str, Any],
    ),
)
