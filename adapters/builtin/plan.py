"""The tool `update_plan`: an agent's plan and its progress, as events of the run."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...runtime.ports.tools import Tool, ToolFailed
from ...runtime.tools.context import Custom, ToolContext
from ...runtime.tools.decorator import tool

PLAN: Final = "plan"
"""The name of the custom event. Its data: `steps`, a list of `{step, status}`, and `explanation`, if there is one."""


class PlanStep(BaseModel):
    """One step of a plan."""

    model_config = ConfigDict(extra="forbid")

    step: Annotated[str, Field(min_length=1, description="What is to be done, in a few words.")]
    status: Literal["pending", "in_progress", "completed"]


def plan_tool() -> Tool:
    """Return the tool `update_plan`. The last `custom` event named `plan` of a run is its plan."""
    return tool(effect="idempotent", parallel=False)(update_plan)


def update_plan(  # noqa: D417 - The context is none of the model's.
    plan: list[PlanStep], context: ToolContext, explanation: str | None = None
) -> str:
    """Write down the plan for the task, or what has changed in it. At most one step may be in progress.

    Args:
        plan: All steps, in order; this list replaces the one before.
        explanation: Why the plan changed.
    """
    if sum(step.status == "in_progress" for step in plan) > 1:
        raise ToolFailed("at most one step of a plan can be in_progress")
    data: dict[str, object] = {"steps": [step.model_dump() for step in plan]}
    if explanation:
        data["explanation"] = explanation
    context.emit(Custom(PLAN, data))
    return "Plan updated"
