"""Verifying whether a call achieved its purpose: within the call's timeout, and the evidence is stored as artifacts.

This happens after a call that returned, and instead of running one again whose outcome is lost or in doubt (W20). If
the check itself fails, the call is unverifiable, never done and never failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, cast

import msgspec

from ...eventlog.events import Event
from ...projections.messages import canonical_json, sha256_hex
from ...projections.run_state import CallState
from ..agents.secrets import Veil
from ..core.approvals import effective_arguments
from ..core.commands import ToolReturned
from ..core.effects import VerifyCall
from ..core.postconditions import (
    MISSING,
    PROBE_FAILED,
    Report,
    filled,
    finding_text,
    problem,
    unjudged,
    verdict,
)
from ..core.tool_calls import idempotency_key, spec_of
from ..journal.outages import through_outages
from ..ports.evidence import Evidence, FileSeen
from ..ports.json_values import bounded
from ..ports.runnable import Runnable
from ..ports.tools import Tool, ToolFailed, in_a_line
from ..tools.context import CallFacts, ToolContext
from ..tools.run_context import facts_of
from ..tools.verified import Verifiable, with_defaults, with_step
from .call_timeout import PausableTimeout
from .cancellation import is_being_cancelled
from .host import Outbox

logger = logging.getLogger("foldlog.tool")
PROBING = "not available to a probe"


class ToolDriver(Outbox, Protocol):
    """The driver of a run that has tools. `Driver` implements it."""

    @property
    def deps(self) -> Any:
        """The dependencies of the run's code, once they are open."""
        ...

    @property
    def tools_at_hand(self) -> Mapping[str, Tool] | None:
        """The run's tools, if they are available without waiting."""
        ...

    async def tools(self) -> Mapping[str, Tool]:
        """Return the run's tools by name, including those of its servers. Raises `FoldlogError`."""
        ...


async def verified(
    driver: ToolDriver, call: CallState, veil: Veil, own: Evidence, returned: ToolReturned
) -> ToolReturned:
    """Return the outcome of an attempt that returned, checked with its own evidence. Raises nothing but cancellation.

    A failed attempt, and one of a tool without a postcondition, is returned unchanged.
    """
    if returned.status != "success" or not spec_of(driver.state, call).postcondition:
        return returned
    context = _probing(driver, call, veil)
    report, _ = await _check(driver, call, veil, context, own)
    wrong, evidence = problem(report), tuple(map(msgspec.to_builtins, context.evidence))
    return msgspec.structs.replace(
        returned,
        status="success" if wrong is None else "error",
        error=None if wrong is None else bounded(wrong),
        completed_at=driver.clock.now(),
        evidence=(*returned.evidence, *(each for each in evidence if each not in returned.evidence)),
        postcondition=tuple(map(dict, report)),
    )


async def verify_call(driver: ToolDriver, effect: VerifyCall, call: CallState) -> ToolReturned:
    """Return the verified outcome of an attempt whose own outcome is lost. Raises nothing but cancellation."""
    veil, begun = Veil(driver.host.registry.secrets, call.name), driver.clock.now()
    report, seen, evidence = await _looked_at(driver, call, veil)
    wrong = problem(report)
    return ToolReturned(
        step=effect.step,
        call_id=effect.call_id,
        attempt=effect.attempt,
        status="success" if wrong is None else "error",
        result=veil.hide(_result(report, seen)),
        error=None if wrong is None else bounded(wrong),
        started_at=begun,
        completed_at=driver.clock.now(),
        evidence=evidence,
        postcondition=tuple(map(dict, report)),
        settles=True,
    )


async def doubted(
    driver: ToolDriver, call: CallState, veil: Veil, returned: ToolReturned, *, at_work: bool
) -> ToolReturned:
    """Return the outcome of an attempt that ended in doubt: that of its postcondition, else it stays in doubt.

    `at_work`: its thread goes on, so a failed postcondition may still come to hold.
    """
    if not spec_of(driver.state, call).postcondition:
        return returned
    report, seen, evidence = await _looked_at(driver, call, veil)
    found, wrong = verdict(report), problem(report)
    return msgspec.structs.replace(
        returned,
        status="success" if wrong is None else returned.status,
        result=veil.hide(_result(report, seen)),
        error=None if wrong is None else bounded(f"{returned.error}; {wrong}"),
        completed_at=driver.clock.now(),
        evidence=(*returned.evidence, *(each for each in evidence if each not in returned.evidence)),
        postcondition=tuple(map(dict, report)),
        in_doubt=found == "unverifiable" or (found == "failed" and at_work),
    )


async def _looked_at(
    driver: ToolDriver, call: CallState, veil: Veil
) -> tuple[Report, Evidence | None, tuple[dict[str, Any], ...]]:
    """Return the report on an attempt without a result, the evidence, and the artifacts that hold it."""
    context = _probing(driver, call, veil)
    report, seen = await _check(driver, call, veil, context, None)
    if not report:
        report = unjudged(spec_of(driver.state, call).postcondition, MISSING, "nothing is recorded")
    return report, seen, tuple(map(msgspec.to_builtins, context.evidence))


def _result(report: Report, seen: Evidence | None) -> Any:
    """Return the result shown to the model in place of the lost one."""
    found = verdict(report)
    if found != "failed" and seen is not None and seen.result is not msgspec.UNSET:
        return seen.result
    if found != "passed":
        return None
    held = "; ".join(map(finding_text, report))
    return f"The call was interrupted, but it has achieved its purpose. Its postcondition holds: {held}"


async def _check(
    driver: ToolDriver, call: CallState, veil: Veil, context: ToolContext, own: Evidence | None
) -> tuple[Report, Evidence | None]:
    """Return the report on an attempt, without secrets, and the evidence, which `context` stores."""
    spec = spec_of(driver.state, call)
    limit = PausableTimeout(spec.timeout_s, driver.clock)
    try:
        tool = (driver.tools_at_hand or await driver.tools()).get(call.name)
        if tool is not None and call.rules is not None and call.rules.postcondition:
            tool = with_step(tool, call.rules.postcondition)
        if not hasattr(tool, "verify"):
            raise ToolFailed("the tool has no postcondition in the process that runs the agent now")
        arguments = await veil.lift(effective_arguments(driver.state, call))
        verification = await limit.of(cast("Verifiable", tool).verify(arguments, context, own))
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        return _unseen(driver, call, "the probe was cancelled from within", veil), None
    except (Exception, SystemExit) as error:
        logger.info("the postcondition of %s cannot be checked", call.name, exc_info=not veil.used)
        why = f"timed out after {spec.timeout_s:g} s" if limit.expired else _described(error)
        return _unseen(driver, call, why, veil), None
    seen = verification.seen
    if seen is not None:
        await through_outages(driver.clock, _keep, context, seen)
    return cast("Report", veil.hide([dict(finding) for finding in verification.report])), seen


def _unseen(driver: ToolDriver, call: CallState, why: str, veil: Veil) -> Report:
    spec = spec_of(driver.state, call)
    arguments = with_defaults(spec, effective_arguments(driver.state, call))
    return unjudged(
        [filled(each, arguments) for each in spec.postcondition], PROBE_FAILED, veil.hide_text(why)
    )


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, ToolFailed) else in_a_line(error)


async def _keep(context: ToolContext, seen: Evidence) -> None:
    """Store the evidence: a text and each file separately, all else as one JSON object."""
    if seen.text is not None:
        await context.artifact(seen.text.encode(errors="replace"), seen.text_type)
    for file in seen.files.values():
        if file.content is not None:
            await context.artifact(file.content)
    facts = {"http_status": seen.http_status, "exit_code": seen.exit_code}
    rest: dict[str, Any] = {name: value for name, value in facts.items() if value is not None}
    if seen.data is not msgspec.UNSET:
        rest["data"] = seen.data
    if seen.files:
        rest["files"] = {path: _file(file) for path, file in seen.files.items()}
    if rest:
        await context.artifact(canonical_json(rest), "application/json")


def _file(file: FileSeen) -> Mapping[str, Any]:
    facts: dict[str, Any] = {"kind": file.kind}
    if file.content is not None:
        facts |= {"sha256": sha256_hex(file.content), "size_bytes": len(file.content)}
    return facts | ({"problem": file.problem} if file.problem else {})


def _probing(driver: ToolDriver, call: CallState, veil: Veil) -> ToolContext:
    """Return the context of a probe, which may look, but leaves no events."""
    state = driver.state
    facts = CallFacts(
        run=facts_of(state),
        tool_call_id=call.id,
        tool_name=call.name,
        idempotency_key=idempotency_key(state, call),
        may_ask=False,
        emit_progress=False,
    )
    return ToolContext(
        facts,
        deps=driver.deps,
        emit=_drop,
        run_child=_refuse,
        remember=_forget,
        issue=_forget,
        artifacts=veil.over(driver.host.log.artifacts.of(driver.journal.subject.root)),
        hide=veil.hide_text,
        skip=_drop,
        clock=driver.clock,
    )


def _drop(*_: Event | int) -> None:
    """Drop an event."""


async def _forget(*_: Any) -> Any:
    """Forget the value: a probe looks again each time."""


def _refuse(runnable: Runnable[Any], *_: Any) -> Awaitable[str]:
    raise ToolFailed(f"the agent {runnable.name!r} is {PROBING}")
