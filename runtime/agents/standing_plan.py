"""The tools `read_plan` and `update_plan_step`: an agent with a `standing_plan` has them, bound to each of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast, get_args

from ...eventlog.errors import PlanNotFound
from ...eventlog.events import PlanStatus, ToolEffect, ToolSpec
from ..ports.tools import InvalidArguments, Tool, ToolContextPort, ToolFailed

READ_PLAN, UPDATE_STEP = "read_plan", "update_plan_step"
_SOURCE = "standing_plan"


class FollowedPlan(Protocol):
    """The plan that a run follows. Both methods return the plan as it is then, as JSON."""

    async def read(self) -> dict[str, Any]:
        """Read the plan. Raises `PlanNotFound`."""
        ...

    async def update(self, call: str, step: str, status: PlanStatus, note: str | None) -> dict[str, Any]:
        """Change a step for a call, once however often the call is repeated. Raises `PlanNotFound`, `ToolFailed`."""
        ...


class PlanTool:
    """One of the two tools, of a run once it has its plan."""

    def __init__(self, spec: ToolSpec, plan: FollowedPlan | None = None) -> None:
        self.spec, self._plan = spec, plan

    def over(self, plan: FollowedPlan) -> PlanTool:
        """Return the tool for one run."""
        return PlanTool(self.spec, plan)

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Read the plan, or change a step of it. Raises `ToolFailed`."""
        if self._plan is None:
            raise ToolFailed("a standing plan is followed by a run")
        try:
            if self.spec.name == READ_PLAN:
                return await self._plan.read()
            step, status, note = (arguments.get(name) for name in ("step", "status", "note"))
            if not isinstance(step, str) or status not in get_args(PlanStatus):
                raise InvalidArguments(
                    f"give the id of a step, and its status: {', '.join(get_args(PlanStatus))}"
                )
            if not isinstance(note, str | None):
                raise InvalidArguments("the note must be text")
            return await self._plan.update(context.tool_call_id, step, cast("PlanStatus", status), note)
        except PlanNotFound as error:
            raise ToolFailed(str(error)) from None


def _tool(
    name: str, description: str, effect: ToolEffect, properties: dict[str, Any], required: list[str]
) -> PlanTool:
    parameters = {"type": "object", "properties": properties, "required": required}
    return PlanTool(
        ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect=effect,
            lock=_SOURCE,  # a call sees what earlier calls of its step have changed
            exclusive=effect != "pure",
            source=_SOURCE,
        )
    )


PLAN_TOOLS = {
    tool.spec.name: tool
    for tool in (
        _tool(READ_PLAN, "Read the standing plan as it is now.", "pure", {}, []),
        _tool(
            UPDATE_STEP,
            "Set the status of a step of the standing plan; returns the plan as it is then.",
            "idempotent",
            {
                "step": {"type": "string", "description": "the id of the step"},
                "status": {"type": "string", "enum": [*get_args(PlanStatus)]},
                "note": {"type": "string", "description": "what came of it, or what it waits for"},
            },
            ["step", "status"],
        ),
    )
}


def with_plan(tools: Mapping[str, Tool], plan: FollowedPlan) -> dict[str, Tool]:
    """Return the tools of a run, with those of its standing plan bound to it."""
    return {name: tool.over(plan) if isinstance(tool, PlanTool) else tool for name, tool in tools.items()}
