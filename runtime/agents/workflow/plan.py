"""The plan of a table, for people who look before it runs: its steps in order, and what each may do."""

from __future__ import annotations

import msgspec

from ...core.workflow.table import in_order
from .table import WorkflowTable
from .table_config import StepConfig

_KINDS = {"agent": "run", "tool": "call", "ask": "ask", "wait": "wait for", "sleep": "sleep"}


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step. `effect` is that of its tool (pure, idempotent, unsafe), `child` for an agent, empty for a wait.

    `approval` is what asks a person: `required`, `tool` (of `hitl_tools`), `policy` (a rule may ask, or deny) or
    `compensation`; empty for nothing. `on_error` is fail or continue.
    """

    id: str
    does: str
    effect: str = ""
    needs: tuple[str, ...] = ()
    approval: str = ""
    when: str = ""
    on_error: str = ""


def plan_of(table: WorkflowTable) -> list[PlannedStep]:
    """Return the steps of a table whose tools are known here, each after all that it needs."""
    steps = {step.id: step for step in table.config.steps}
    return [
        PlannedStep(
            id=step.id,
            does=_does(steps[step.id]),
            effect=_effect(table, steps[step.id]),
            needs=step.needs,
            approval=_approval(table, steps[step.id]),
            when=steps[step.id].when or "",
            on_error=step.on_error,
        )
        for step in in_order(table.plan)
    ]


def _does(step: StepConfig) -> str:
    value = getattr(step, step.kind)
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{_KINDS[step.kind]} {shown}"


def _effect(table: WorkflowTable, step: StepConfig) -> str:
    if step.tool is not None:
        return str(table.known_tools[step.tool].spec.effect)
    return "child" if step.agent is not None else ""


def _approval(table: WorkflowTable, step: StepConfig) -> str:
    if step.approval is not None:
        return step.approval
    if step.tool is None:
        return ""
    if step.tool in table.config.hitl_tools:
        return "tool"
    return "policy" if table.config.policy is not None else ""
