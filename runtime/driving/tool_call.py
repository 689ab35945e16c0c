"""One attempt at a tool call: its context, its timeout, and its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from ...eventlog.events import Event, ToolSpec, ToolStatus
from ...projections.run_state import CallState
from ..agents.secrets import Veil
from ..core.approvals import answers_to, effective_arguments
from ..core.commands import CallbackIssued, MemoMade, ToolAsked, ToolEmitted, ToolReturned, ToolWaits
from ..core.content import Held
from ..core.effects import CallTool
from ..core.planning import NOT_AVAILABLE
from ..core.postconditions import verdict
from ..core.tool_calls import idempotency_key, spec_of
from ..core.waits import signals_of
from ..ports.evidence import of_result
from ..ports.files import Content, is_content
from ..ports.json_values import NotJson, as_json, bounded, seconds_of, sound
from ..ports.runnable import Runnable
from ..ports.tools import (
    Asked,
    ChildFailed,
    InvalidArguments,
    Retryable,
    Tool,
    ToolFailed,
    ToolTimedOut,
    in_a_line,
    unencodable,
)
from ..shared.breakers import Breaker, Refused, tool_breaker
from ..shared.resume_tokens import callback_digest, callback_token, new_secret
from ..tools.context import ArtifactRef, CallFacts, ChildOptions, ToolContext, Wait
from ..tools.decorator import PythonTool
from ..tools.functions import THREADS, Threads
from ..tools.run_context import facts_of
from .call_timeout import PausableTimeout
from .cancellation import is_being_cancelled
from .children import CallChildren, ParentDriver
from .files import held_result, store_files, without_secrets
from .late_calls import Late
from .repeated_events import count_others
from .verify_call import ToolDriver, doubted, verified

logger = logging.getLogger("foldlog.tool")


class CallingDriver(ToolDriver, ParentDriver, Protocol):
    """The driver of a run whose tools are called. `Driver` implements it."""

    @property
    def late(self) -> Late:
        """The calls that were abandoned while their thread goes on."""
        ...


async def call_tool(
    driver: CallingDriver, effect: CallTool, call: CallState
) -> ToolReturned | ToolAsked | ToolWaits:
    """Perform one attempt. Raises nothing but cancellation: every failure is a command."""
    clock, spec = driver.clock, spec_of(driver.state, call)
    veil = Veil(driver.host.registry.secrets, call.name)
    again: dict[int, Event] = {}
    context = _context(driver, effect, call, veil, again)
    arguments = effective_arguments(driver.state, call)
    started_at, cancelled = clock.now(), True
    limit, threads = PausableTimeout(spec.timeout_s, clock), Threads()
    THREADS.set(threads)
    driver.children.times[call.id] = limit
    try:
        end = await _end_of(_called(driver, call.name, arguments, context, veil), limit, spec, context, veil)
        cancelled = end.status == "timed_out"
    except asyncio.CancelledError:
        driver.late.outlives(effect, threads.at_work(), veil)
        raise
    finally:
        context.close(cancelled=cancelled)
        driver.children.leave(call.id)
    at_work = threads.at_work()
    THREADS.set(None)  # probes afterwards are not part of the attempt
    await driver.children.settle(call.id)
    context.differed = await count_others(driver, call.id, again)
    if context.question is not None and end.status != "timed_out":  # its end is not the call's result
        return ToolAsked(
            step=effect.step,
            call_id=call.id,
            attempt=effect.attempt,
            name=context.question.name,
            message=veil.hide(context.question.message),
            form=veil.hide(context.question.form),
        )
    if context.wait is not None and end.status != "timed_out":
        return _wait(effect, context.wait, veil)
    if isinstance(end.result, Held):
        await store_files(end.result, driver)
        end = end._replace(result=msgspec.to_builtins(end.result.parts), in_parts=True)
    returned = ToolReturned(
        step=effect.step,
        call_id=call.id,
        attempt=effect.attempt,
        status=end.status,
        result=veil.hide(end.result if end.status == "success" else _result(end.result)),
        in_parts=end.in_parts,
        error=None if end.message is None else bounded(veil.hide(end.message)),
        retryable=isinstance(end.failure, Retryable),
        retry_after_s=seconds_of(end.failure.after_s) if isinstance(end.failure, Retryable) else None,
        started_at=started_at,
        completed_at=clock.now(),
        evidence=tuple(msgspec.to_builtins(artifact) for artifact in context.evidence),
        misused=isinstance(end.failure, InvalidArguments),
        in_doubt=context.begun and not end.certain and spec.effect == "unsafe" and spec.on_error == "doubt",
    )
    if not returned.in_doubt:
        return await verified(driver, call, veil, of_result(end.result, context.observed), returned)
    driver.late.outlives(effect, at_work, veil)
    driver.late.report(effect)
    return await doubted(driver, call, veil, returned, at_work=at_work is not None)


def _wait(effect: CallTool, wait: Wait, veil: Veil) -> ToolWaits:
    return ToolWaits(
        step=effect.step,
        call_id=effect.call_id,
        attempt=effect.attempt,
        wait_id=wait.id,
        kind=wait.kind,
        name=wait.name,
        until=wait.until,
        form=veil.hide(wait.form),
    )


class _End(NamedTuple):
    """The end of an attempt. `certain`: the tool did all of its work, or reported that it did nothing."""

    status: ToolStatus
    result: Any = None
    message: str | None = None
    certain: bool = False
    failure: ToolFailed | None = None
    in_parts: bool = False


async def _end_of(
    calling: Coroutine[Any, Any, Any],
    limit: PausableTimeout,
    spec: ToolSpec,
    context: ToolContext,
    veil: Veil,
) -> _End:
    """Run the attempt to its end. Raises nothing but cancellation."""
    try:
        return _End("success", await limit.of(calling), certain=True)
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        return _End("aborted", message="the call was cancelled from within the tool")
    except TimeoutError as error:
        if limit.expired:
            return _End("timed_out", message=f"timed out after {spec.timeout_s:g} s")
        return _End("error", message=_describe(error))
    except ToolFailed as error:
        return _End(_status_of(error), error.result, str(error), not error.in_doubt, error)
    except (Asked, BaseExceptionGroup) as error:
        if (
            context.question is None
            and context.wait is None
            and not isinstance(error, (Asked, ExceptionGroup))
        ):
            raise
        return _End("error", message=_describe(error), certain=_is_certain(error))
    except (Exception, SystemExit) as error:
        logger.info("tool %s failed", spec.name, exc_info=not veil.used)
        return _End("error", message=_describe(error))


def _is_certain(error: BaseException) -> bool:
    """Return whether the error says that nothing was done."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_certain, error.exceptions))
    return isinstance(error, ToolFailed) and not error.in_doubt


def _status_of(failure: ToolFailed) -> ToolStatus:
    """Return the status of a failure: a call whose child was cancelled was aborted, it did not fail."""
    if isinstance(failure, ToolTimedOut):
        return "timed_out"
    aborted = isinstance(failure, ChildFailed) and failure.status == "cancelled"
    return "aborted" if aborted else "error"


async def _called(
    driver: CallingDriver, name: str, arguments: Mapping[str, Any], context: ToolContext, veil: Veil
) -> Any:
    tool = (driver.tools_at_hand or await driver.tools()).get(name)
    if tool is None:
        raise ToolFailed(f"the tool {name!r} is not available in the process that runs the agent now")
    try:
        lifted = await veil.lift(arguments)
        context.begun = True
        result = await tool.call(lifted, context)
        return held_result(driver, result, veil) if is_content(result) else _sound_result(tool, result)
    except ExceptionGroup as group:
        raise _only(group) from None


def _sound_result(tool: Tool, result: Any) -> Any:
    """Return a tool's result as JSON; functions return nothing else. Raises `ToolFailed` if JSON cannot hold it."""
    if isinstance(tool, PythonTool):
        return result
    try:
        return as_json(result)
    except NotJson as error:
        raise unencodable(error) from None


def _result(result: Any) -> Any:
    """Return the content that a failed call returned with its error, as JSON or as text."""
    try:
        return as_json(result)
    except NotJson:
        return sound(repr(result))


def tool_breaker_of(driver: CallingDriver, call: CallState) -> Breaker | None:
    """Return the circuit breaker of the call's tool; null for an agent without breakers."""
    rules = driver.journal.rules.breaker
    if rules is None:
        return None
    return Breaker(driver.host.log, tool_breaker(driver.state.agent, call.name), rules)


def refused_call(effect: CallTool, refused: Refused, now: float) -> ToolReturned:
    """Return the outcome of a call that an open breaker prevented."""
    return ToolReturned(
        step=effect.step,
        call_id=effect.call_id,
        attempt=effect.attempt,
        status="error",
        error=f"not called: {refused}; it lets a call through again in {refused.wait_s:.0f} s",
        started_at=now,
        completed_at=now,
        breaker=refused.breaker,
    )


async def update_breaker(breaker: Breaker, returned: ToolReturned | ToolAsked | ToolWaits, run: str) -> None:
    """Count the outcome of a call; wrong arguments and aborted calls say nothing about the tool."""
    if isinstance(returned, (ToolAsked, ToolWaits)) or returned.status == "success":
        await breaker.worked()
    elif verdict(returned.postcondition) == "unverifiable":
        return  # which says nothing about the tool, either
    elif not returned.misused and returned.status != "aborted":
        await breaker.failed(returned.status, run)


def _only(error: Exception) -> Exception:
    """Return the error inside of groups of one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


def _describe(error: BaseException) -> str:
    text = in_a_line(error)
    if not isinstance(error, BaseExceptionGroup):
        return text
    return f"{text}: {'; '.join(_describe(each) for each in error.exceptions)}"


def _context(
    driver: CallingDriver, effect: CallTool, call: CallState, veil: Veil, again: dict[int, Event]
) -> ToolContext:
    """Return the context of an attempt. `again` collects the events it emits that are already stored, by ordinal."""
    state, attempt = driver.state, _Attempt(driver, effect, call, veil, again)
    facts = CallFacts(
        run=facts_of(state),
        tool_call_id=call.id,
        tool_name=call.name,
        idempotency_key=idempotency_key(state, call),
        memos=call.memos,
        memo_evidence=call.memo_evidence,
        answers=answers_to(state, call),
        waits=signals_of(call),
        marks=call.marks,
        may_ask=bool(effect.step) or state.flow is not None,
        emit_progress=driver.journal.rules.emit_mcp_progress,
    )
    planning = not effect.step and state.flow is None  # readers do not see the planner's calls
    return ToolContext(
        facts,
        deps=driver.deps,
        emit=_drop if planning else attempt.emit,
        run_child=_refuse_child if planning else attempt.run_child,
        remember=attempt.remember,
        issue=attempt.issue,
        public_url=driver.host.public_url,
        artifacts=veil.over(driver.host.log.artifacts.of(driver.journal.subject.root)),
        hide=veil.hide_text,
        skip=attempt.skip,
        clock=driver.clock,
    )


class _Attempt:
    """The effects of a call's context: for most calls, none."""

    __slots__ = (
        "_again",
        "_call_id",
        "_children",
        "_driver",
        "_loop",
        "_ordinal",
        "_step",
        "_stored",
        "_veil",
    )

    def __init__(
        self, driver: CallingDriver, effect: CallTool, call: CallState, veil: Veil, again: dict[int, Event]
    ) -> None:
        self._driver, self._step, self._call_id, self._veil = driver, effect.step, call.id, veil
        self._loop = asyncio.get_running_loop()
        self._ordinal, self._stored, self._again = 0, call.emitted, again
        self._children: CallChildren | None = None

    def emit(self, event: Event) -> None:
        try:
            at_home = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a synchronous tool, in a thread of its own
            at_home = False
        if at_home:
            self._post(event)
        else:
            self._loop.call_soon_threadsafe(self._post, event)

    def _post(self, event: Event) -> None:
        hidden, ordinal = self._veil.hide_event(event), self._ordinal
        if ordinal < self._stored:
            self._again[ordinal] = hidden
        self._driver.post(ToolEmitted(step=self._step, call_id=self._call_id, ordinal=ordinal, event=hidden))
        self._ordinal += 1

    def skip(self, events: int, started: int) -> None:
        self._ordinal = max(self._ordinal, events)
        self._runs().skip(started)

    async def remember(self, name: str, value: Any, stored: Sequence[ArtifactRef]) -> None:
        evidence = tuple(msgspec.to_builtins(artifact) for artifact in stored)
        made = self._veil.hide(value)
        await self._driver.submit(
            MemoMade(step=self._step, call_id=self._call_id, name=name, value=made, evidence=evidence)
        )

    async def issue(self, wait_id: str, until: float | None) -> str:
        """Return a token of a callback, once it is stored: an answer may come as soon as the call tells it."""
        issued = CallbackIssued(
            step=self._step, call_id=self._call_id, wait_id=wait_id, sha256="", until=until
        )
        return await issue_token(self._driver, issued)

    def run_child(self, runnable: Runnable[Any], content: Content, options: ChildOptions) -> Awaitable[str]:
        hidden = ChildOptions(self._veil.hide(options.user), self._veil.hide(options.metadata))
        return self._runs().run(runnable, without_secrets(content, self._veil), hidden)

    def _runs(self) -> CallChildren:
        if self._children is None:
            self._children = self._driver.children.of_call(self._call_id)
        return self._children


async def issue_token(driver: CallingDriver, issued: CallbackIssued) -> str:
    """Return a new token of a callback, once its SHA-256 is stored with `issued`, which lacks it."""
    run, secret = driver.state.run, new_secret()
    await driver.submit(msgspec.structs.replace(issued, sha256=callback_digest(run, secret)))
    return callback_token(run, driver.state.head.rev, secret)


def _drop(_: Event) -> None:
    """Drop an event."""


async def _refuse_child(runnable: Runnable[Any], *_: Any) -> str:
    raise ToolFailed(f"the agent {runnable.name!r} is {NOT_AVAILABLE}")
