"""The plan of a rollback: which calls of a family are to be compensated, and the table of steps that does it.

Compensations are for calls that have changed something: those that succeeded, of tools that are not pure, and those
that had started when their run ended, whose outcome is unknown. They come in the reverse order of the results, each
after the one before it, each with an approval. What no tool can undo is a step that an operator does by hand.

The values of a call are data of models and strangers, so they are not written into the table, whose texts are
templates, but into the input of the rollback, which its steps refer to.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError, NotRegistered
from ...eventlog.events import (
    ApprovalResolved,
    ChildStarted,
    Event,
    Prepared,
    Submitted,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStarted,
)
from ..agents.registry import Registry
from ..ports.suggestions import nearest
from ..ports.tools import in_a_line
from ..tools.compensation import planned_by

METADATA = "rollback"
"""The key of a rollback's metadata: `run`, and `calls`, the call that each step compensates."""
UNKNOWN = "It had started, and it is unknown whether it succeeded."
DOUBTFUL = "Its compensation had started, and it is unknown whether it succeeded."
STEPS_MAX = 1_000
"""The most compensations of one rollback."""


class DoneCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has changed something, or may have. `is_known`: it succeeded."""

    run: str
    agent: str
    call: str
    tool: str
    arguments: dict[str, Any]
    result: Any = None
    is_known: bool = True

    @property
    def id(self) -> str:
        """The name of the call, unique among all runs."""
        return f"{self.run}:{self.call}"


class Compensation(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a rollback: the call that it compensates, and the tool that does it; empty for a step by hand.

    `note`: why it is done by hand, if its tool has a compensation.
    """

    step: str
    call: DoneCall
    tool: str = ""
    arguments: dict[str, Any] = {}
    hint: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The task of a person."""
        shown = msgspec.json.encode(self.call.arguments).decode()
        told = [
            f"Undo {self.call.tool} {shown} by hand.",
            self.note,
            _sentence(self.hint),
            "Approve when it is done by hand.",
        ]
        return " ".join(filter(None, told))


class _Run:
    """The calls of one run of a family, as its log has them."""

    def __init__(self, event: Submitted, agent: str) -> None:
        self.agent = agent
        self.shared = event.fork.shared if event.fork is not None else 0
        self.specs: dict[str, ToolSpec] = {}
        self.calls: dict[str, ToolCall] = {}
        self.edited: dict[str, dict[str, Any]] = {}
        self.started: set[str] = set()
        self.parents: set[str] = set()
        """Calls that have run children, whose own calls are compensated instead."""


def done_calls(events: Iterable[Event], of: str) -> list[DoneCall]:  # noqa: C901 - one case each
    """Return the calls of a run and those below it that have changed something, in the order of their results.

    Calls that had started when their run ended come first.
    """
    runs: dict[str, _Run] = {}
    found: list[DoneCall] = []
    for event in events:
        if isinstance(event, Submitted) and (
            event.run_id == of or (event.parent is not None and event.parent.run in runs)
        ):
            runs[event.run_id] = _Run(event, event.agent)
        run = runs.get(event.run_id)
        if run is None or event.inner_tool_call_id is not None:
            continue
        call = event.tool_call_id or ""
        match event:
            case Prepared():
                run.specs |= {spec.name: spec for spec in event.tools}
            case ToolCall() if not event.executed_by:
                run.calls[call] = event
            case ToolStarted():
                run.started.add(call)
            case ApprovalResolved() if event.arguments is not None and call:
                run.edited[call] = event.arguments
            case ChildStarted() if call:
                run.parents.add(call)
            case ToolResult() if not event.executed_by:
                run.started.discard(call)
                if event.success and _was_done(event, run):
                    found.append(_done(event.run_id, run, call, event.result))
            case _:
                pass
    unknown = [
        _done(run_id, run, call, None, is_known=False)
        for run_id, run in runs.items()
        for call in sorted(run.started)
        if call in run.calls
    ]
    return [each for each in (*unknown, *found) if _counts(runs[each.run], each)]


def _was_done(event: ToolResult, run: _Run) -> bool:
    """Return whether the run made the call itself: not a run that it is a fork of, or a twin elsewhere."""
    return (event.revision or 0) > run.shared and not event.metadata.get("deduplicated")


def _done(run_id: str, run: _Run, call: str, result: Any, *, is_known: bool = True) -> DoneCall:
    asked = run.calls[call] if call in run.calls else ToolCall(tool_name="")
    return DoneCall(
        run=run_id,
        agent=run.agent,
        call=call,
        tool=asked.tool_name,
        arguments=run.edited.get(call, asked.arguments),
        result=result,
        is_known=is_known,
    )


def _counts(run: _Run, done: DoneCall) -> bool:
    spec = run.specs.get(done.tool)
    if spec is None or spec.effect == "pure" or done.call in run.parents:
        return False
    return spec.source == "python" or spec.source.startswith("mcp:")


def compensations(
    calls: Sequence[DoneCall],
    done: Iterable[str],
    doubtful: Container[str],
    registry: Registry,
    from_call: str | None,
) -> list[Compensation]:
    """Return the steps for all calls that are not compensated yet, those with the last results first.

    `done` are the ids of compensated calls, `doubtful` of those whose compensation had started. `from_call`: only this
    call and those after it, by its id or that of its step. Raises `ConfigError` for an unknown one, and `NotRegistered`
    for a tool that the registry lacks.
    """
    wanted = list(calls)
    if from_call is not None:
        wanted = wanted[_index_of(calls, from_call) :]
    passed = set(done)
    left = [each for each in reversed(wanted) if each.id not in passed]
    if len(left) > STEPS_MAX:
        raise ConfigError(
            f"a rollback has at most {STEPS_MAX:,} steps, not {len(left):,}: roll back in parts (--from)"
        )
    return [
        _by_hand(f"undo_{number}", each, registry, DOUBTFUL)
        if each.id in doubtful
        else _compensation(f"undo_{number}", each, registry)
        for number, each in enumerate(left, 1)
    ]


def _index_of(calls: Sequence[DoneCall], wanted: str) -> int:
    """Return where to begin: at a call by its id in its run, its whole id, or the id of a table's step."""
    for index, each in enumerate(calls):
        if wanted in {each.id, each.call, each.call.partition("/")[0]}:
            return index
    known = [each.call for each in calls]
    raise ConfigError(f"there is no call {wanted!r} that can be rolled back{nearest(wanted, known)}")


def _by_hand(step: str, call: DoneCall, registry: Registry, note: str = "") -> Compensation:
    hint = getattr(registry.tool_of(call.agent, call.tool), "rollback_hint", "")
    return Compensation(step=step, call=call, hint=hint, note=note)


def _compensation(step: str, call: DoneCall, registry: Registry) -> Compensation:
    if not call.is_known:
        return _by_hand(step, call, registry, UNKNOWN)
    tool = registry.tool_of(call.agent, call.tool)
    if tool is None:
        if _is_of_server(call.tool):
            return Compensation(step=step, call=call)
        raise NotRegistered(
            f"call {call.call} of run {call.run}: this process has no tool {call.tool!r}, which knows its compensation"
        )
    hint = getattr(tool, "rollback_hint", "")
    compensate = getattr(tool, "compensate", None)
    if compensate is None:
        return Compensation(step=step, call=call, hint=hint)
    try:
        planned = planned_by(compensate, call.arguments, call.result)
    except Exception as error:  # noqa: BLE001 - the code of users; the other calls can be undone all the same
        note = _sentence(f"Its compensation could not be named: {in_a_line(error)}")
        return Compensation(step=step, call=call, hint=hint, note=note)
    if planned is None:
        return Compensation(step=step, call=call, hint=hint)
    if registry.tool_of(call.agent, planned.tool) is None:
        raise NotRegistered(
            f"the compensation of {call.tool!r} is {planned.tool!r}, which is not in the registry: "
            "add it with Registry(tools=[...])"
        )
    return Compensation(step=step, call=call, tool=planned.tool, arguments=planned.arguments, hint=hint)


def _is_of_server(tool: str) -> bool:
    return tool.startswith("mcp__")


def table_of(name: str, run: str, steps: Sequence[Compensation]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the table of a rollback, and the input with the values that its steps refer to."""
    values: dict[str, Any] = {}
    made: list[dict[str, Any]] = []
    before: list[str] = []
    for each in steps:
        step: dict[str, Any] = {"id": each.step, "needs": before}
        if each.tool:
            values[each.step] = each.arguments
            arguments = {key: f"${{input.{each.step}.{key}}}" for key in each.arguments}
            step |= {"tool": each.tool, "arguments": arguments, "approval": "compensation"}
        else:
            values[each.step] = each.text
            step |= {"ask": f"${{input.{each.step}}}", "approval": "required"}
        made.append(step)
        before = [each.step]
    table = {"kind": "workflow", "name": name, "description": f"Roll back run {run}.", "steps": made}
    return table, values


def _sentence(text: str) -> str:
    """Return a text as a sentence, with a full stop at its end."""
    return f"{text}." if text and not text.endswith((".", "!", "?", ":")) else text
