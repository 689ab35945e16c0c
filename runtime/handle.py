"""A run as its callers use it: watch it, wait for its end, answer its approvals, send it messages."""

from __future__ import annotations

import asyncio
import contextlib
import math
import weakref
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

import msgspec

from ..eventlog.errors import (
    ConfigError,
    LogUnavailable,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    SignalError,
)
from ..eventlog.events import Actor, ApprovalResolved, DetailedEvent, StreamEvent, TokenUsage
from ..eventlog.names import check_name
from ..eventlog.ports import Log, Subject, WakeWrite
from ..projections.call_texts import conversation
from ..projections.messages import Message
from ..projections.money import plus_cost
from ..projections.operating.board import Board, Waiter, waiter_of_state
from ..projections.operating.why import why
from ..projections.outcome import Outcome, fold_stored
from ..projections.pending import Pending, pending_of
from ..projections.run_state import RunState
from .agents.content import read_message
from .agents.registry import Registry
from .core.answers import check_answer, check_answered, check_pending, given_arguments, given_json
from .core.commands import (
    AnswerCallback,
    Command,
    Inject,
    IssueToken,
    Pause,
    RefreshTools,
    Resolve,
    Resume,
    RevokeTokens,
    SendSignal,
)
from .core.decide import take
from .core.submission import actor_of
from .core.tool_refresh import check_removal
from .core.turn import Turn
from .core.waits import check_callback, check_signal, given_signal
from .journal.cancel import cancel_family
from .journal.family import ancestors, family_of
from .journal.journal import Journal, following
from .journal.outages import Decisions, is_last
from .journal.timers import wakeup_for
from .operating.surroundings import Executors, below_of_state, board_for, standing_of_state
from .ports.executor import Executor, require
from .ports.files import Content
from .ports.json_values import NotJson, as_stored
from .ports.runnable import Runnable
from .shared.approved_calls import ApprovedCalls
from .shared.resume_tokens import new_token, place_of
from .shared.run_slots import waiting_for
from .shared.sessions import runs_before
from .shared.slots import calls_in_line
from .stream import stream_run
from .usage import Used, used_by

OutputT = TypeVar("OutputT")
Decision = Literal["approved", "rejected"]
CallOutcome = Literal["retry", "succeeded", "failed"]
TOKEN_EXPIRY_S = 24 * 3600.0
LAGGING_READS_MAX = 20
"""The number of reads that a caller waits for a replica that lags."""


class RunResult(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True):
    """The result of a completed run. `reason` is empty, `budget_limit`, or `length`: cut output that was accepted.

    `usage` and `cost_usd` (a decimal, null if a price is unknown) are those of the run and all runs below it.
    """

    run_id: str
    output: OutputT
    usage: TokenUsage
    steps: int
    reason: str = ""
    cost_usd: str | None = None


class SentSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A stored signal: the run's first has the `number` 1. `is_new`: it was not sent with this key before."""

    number: int
    is_new: bool


class Namespace(Protocol):
    """A namespace of a log, for its handles. `Runtime` implements it."""

    @property
    def log(self) -> Log:
        """The log."""
        ...

    @property
    def registry(self) -> Registry:
        """The agents and tools that this process can run."""
        ...

    @property
    def command_locks(self) -> weakref.WeakValueDictionary[str, asyncio.Lock]:
        """One lock per run: callers of this process take turns, because all but one would only conflict."""
        ...

    def known_executor(self, name: str) -> Executor | None:
        """Return the executor of this name; None if this process does not have it."""
        ...

    def where_executors_run(self) -> Executors:
        """Return the names of the known executors that drive runs in their own process, and of those on workers."""
        ...

    async def locate(self, run_id: str) -> Subject:
        """Return the subject of the run in the log. Raises `RunNotFound`."""
        ...

    async def place(self, run_id: str) -> tuple[Namespace, Subject]:
        """Return where to read the run: here, or from the copy of an archived one. Raises `RunNotFound`, `RunGone`."""
        ...

    async def watch(self, run_id: str, news: Coroutine[Any, Any, object]) -> None:
        """Await the news of a run; raise the error that stopped this process from driving it, if any."""
        ...


class RunHandle(Generic[OutputT]):
    """A run, for any process. Every method reads the log; none needs the run's executor.

    `is_new`: the `start` that returned this handle stored the run, and did not find it.
    """

    def __init__(
        self,
        runtime: Namespace,
        run_id: str,
        agent: Runnable[OutputT] | None,
        subject: Subject | None,
        *,
        is_new: bool = False,
    ) -> None:
        self.run_id, self.is_new = run_id, is_new
        self._runtime, self._agent, self._subject = runtime, agent, subject

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"

    @overload
    def stream(
        self, detailed: Literal[False] = False, after: str | None = None, family: bool = True
    ) -> AsyncGenerator[StreamEvent]: ...

    @overload
    def stream(
        self, detailed: bool, after: str | None = None, family: bool = True
    ) -> AsyncGenerator[DetailedEvent]: ...

    async def stream(
        self, detailed: bool = False, after: str | None = None, family: bool = True
    ) -> AsyncGenerator[DetailedEvent]:
        """Yield the run's observable events from the beginning, or after the cursor `after`, until it is over.

        Every stream of a run shows the same, whenever and by whichever process it is opened. `detailed` adds steps,
        usage, reasoning, tool call deltas, tool results and child events; `family` includes the runs below. Raises
        `RunNotFound`, `LogCorrupted`, `UnsupportedByExecutor`.
        """
        async with contextlib.aclosing(self._events(detailed, after, family, to_pause=False)) as events:
            async for event in events:
                yield event

    @overload
    def until_waiting(
        self, after: str | None = None, *, detailed: Literal[False] = False, family: bool = True
    ) -> AsyncGenerator[StreamEvent]: ...

    @overload
    def until_waiting(
        self, after: str | None = None, *, detailed: bool, family: bool = True
    ) -> AsyncGenerator[DetailedEvent]: ...

    async def until_waiting(
        self, after: str | None = None, *, detailed: bool = False, family: bool = True
    ) -> AsyncGenerator[DetailedEvent]:
        """Yield as `stream` does, but only up to a pause that is still open, of the run or of one below it.

        A pause that is over by now does not end it, and neither does one that a time ends (`ctx.sleep`): it takes an
        answer, a signal or a resume. The last event of a run that is over has `is_end`.
        """
        async with contextlib.aclosing(self._events(detailed, after, family, to_pause=True)) as events:
            async for event in events:
                yield event

    async def _events(
        self, detailed: bool, after: str | None, family: bool, *, to_pause: bool
    ) -> AsyncGenerator[DetailedEvent]:
        subject = await self._located()
        if detailed:
            self._require("detailed_events", await self.state())
        events = stream_run(
            self._runtime.log, subject, detailed=detailed, after=after, family=family, to_pause=to_pause
        )
        async with contextlib.aclosing(events):
            async for event in events:
                yield cast("DetailedEvent", event)

    async def result(self, timeout_s: float | None = None) -> RunResult[OutputT]:
        """Wait for the end of the run and return its result; a paused run keeps waiting.

        Raises `RunFailed`, `RunCancelled`, `TimeoutError` (the run goes on), `LogCorrupted`, the error that stopped
        this process from driving the run, and `ConfigError` for an output that its type rejects, or for a run of
        another agent than the handle's.
        """
        outcome = Outcome()
        async with asyncio.timeout(timeout_s):
            subject = await self._located()
            await self._runtime.watch(self.run_id, _until_over(self._runtime.log, subject, outcome))
            if outcome.aside:
                state = await self.state()
                outcome.output, outcome.error = state.output, state.error
        return self._as_result(outcome)

    def _as_result(self, outcome: Outcome) -> RunResult[OutputT]:
        terminal, error = outcome.terminal, outcome.error
        if terminal is not None and terminal.status == "cancelled":
            raise RunCancelled(terminal.reason, run_id=self.run_id)
        if terminal is None or terminal.status == "error":
            raise RunFailed(
                error.error_type if error else "unknown",
                error.error if error else "",
                run_id=self.run_id,
                usage=outcome.usage + outcome.inner_usage,
                steps=outcome.steps_completed,
                output=outcome.output,
            )
        self._check_agent(outcome.agent_path.rpartition("/")[2])
        output: Any = outcome.output
        stopped = terminal.reason == "budget_limit"  # the text is ours, not an answer
        if self._agent is not None and self._agent.output_type is not None and not stopped:
            output = self._parsed(outcome.output)
        return RunResult(
            run_id=self.run_id,
            output=output,
            usage=outcome.usage + outcome.inner_usage,
            steps=outcome.steps_completed,
            reason=terminal.reason,
            cost_usd=plus_cost(outcome.cost_usd, outcome.inner_cost_usd),
        )

    def _check_agent(self, name: str) -> None:
        if self._agent is not None and self._agent.name != name:
            raise ConfigError(f"run {self.run_id} belongs to agent {name!r}, not to {self._agent.name!r}")

    def _parsed(self, output: str) -> Any:
        """Return the output, which matches the schema of its type, as that type."""
        assert self._agent is not None  # noqa: S101 - checked by the caller
        try:
            return self._agent.parse_output(msgspec.json.decode(output))
        except ValueError as error:  # a check that JSON Schema cannot express
            raise ConfigError(
                f"run {self.run_id} completed, but its output is not a valid {self._agent.output_type!r}: {error}"
            ) from None

    async def cancel(self, reason: str = "", *, by: str | Actor = "") -> str:
        """Cancel the run and all runs below it; return cancelled, or already_completed, already_error, ..."""
        subject = await self._located()
        return await cancel_family(self._runtime.log, subject, reason, by)

    async def inject(self, content: Content, *, request_key: str = "", by: str | Actor = "") -> None:
        """Queue a message for the run's next step: a text, a `File`, or a list of both; one with a key only once.

        Raises `RunFinished`, `UnsupportedByExecutor`, `ConfigError` for a run that has no steps of its own, and for a
        file that is over a limit of its agent, or that its model is known not to take.
        """
        journal = await self._journal()
        message = await _message(self._runtime, journal, content)
        command = msgspec.structs.replace(message, request_key=request_key, **actor_of(by).fields)
        await self._send(command, journal=journal, refuse_finished=True, feature="inject")

    async def refresh_tools(
        self,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        remove: Sequence[str] = (),
        by: str = "",
    ) -> None:
        """List the run's tools again before its next step, with those of further MCP servers, without those to remove.

        The servers are given as in an agent's configuration. If they cannot be listed, the run goes on with the tools
        it has. `remove` are names of tools, which the run does not get back. The model is told which tools are gone.
        Raises `RunFinished`, and `ConfigError` for an invalid entry, an unknown tool or a run that is not an agent's.
        """
        if not isinstance(mcp_servers, Mapping | None):
            raise ConfigError(f"mcp_servers must be a table of servers, not {mcp_servers!r:.60}")
        for name in mcp_servers or ():
            check_name("the MCP server", name)
        if mcp_servers:
            self._runtime.registry.tool_sources().check(mcp_servers)
        servers = {name: dict(entry) for name, entry in (mcp_servers or {}).items()}
        journal = await self._journal()
        check_removal(journal.state, remove)
        await self._send(RefreshTools(servers, tuple(remove), by), journal=journal, refuse_finished=True)

    async def pending(self) -> Pending:
        """Return what the run waits for, and its open work, as of the log. Raises `RunNotFound`."""
        state, log = await self.state(), self._runtime.log
        found, in_line = pending_of(state), await calls_in_line(log, state)
        calls = tuple(
            msgspec.structs.replace(call, slot=in_line.get(call.tool_call_id)) for call in found.calls
        )
        slot, behind = await waiting_for(log, state), await runs_before(log, state)
        unclaimed = state.runnable and state.owner is None and slot is None and not behind
        waiter = waiter_of_state(state)
        board = None if state.over else await self._board(waiter, state)
        unserved = unclaimed and board is not None and self._needs_worker(state, board)
        return msgspec.structs.replace(
            found,
            calls=calls,
            slot=slot,
            behind=behind,
            unclaimed=unclaimed,
            unserved=unserved,
            why=None if board is None else why(waiter, board),
        )

    async def _board(self, waiter: Waiter, state: RunState) -> Board:
        log, shard = self._runtime.log, (await self._located()).shard
        below = {state.run: await below_of_state(log, state, shard)}
        standing = partial(standing_of_state, log, shard)
        return await board_for(log, [waiter], below, standing, self._runtime.where_executors_run())

    async def pause(self, *, by: str | Actor = "") -> None:
        """Pause at the next step boundary. Raises `RunFinished`, `UnsupportedByExecutor`."""
        await self._send(Pause(**actor_of(by).fields), refuse_finished=True, feature="pause")

    async def resume(self, *, by: str | Actor = "") -> None:
        """Continue after a manual pause, or one of reason policy (all models failed). Raises `RunFinished`.

        A run that a restore from a backup holds goes on with all runs below it.
        """
        state = await self.state()
        for child in state.open_children if state.held_at is not None else ():
            with contextlib.suppress(RunNotFound, RunFinished):  # it was announced only, or is over
                await RunHandle(self._runtime, child, None, None).resume(by=by)
        await self._send(Resume(**actor_of(by).fields), refuse_finished=True)

    async def resolve(
        self,
        approval_id: str,
        decision: Decision,
        note: str = "",
        arguments: Mapping[str, Any] | None = None,
        outcome: CallOutcome | None = None,
        result: Any = None,
        *,
        by: str | Actor = "",
        always: bool = False,
    ) -> ApprovalResolved:
        """Answer an approval of the run or of one below it; return the stored answer. Raises `ApprovalError`.

        Idempotent: the same answer again changes nothing, and returns the first one, whose `by` names its author. A
        different answer is an error.

        `arguments` replaces the call's arguments (kinds tool and policy). `outcome` states the outcome of a call that
        does not run any more: it succeeded (with `result`) or failed, because a dead worker had started it (kind
        unverifiable), or because a person carried it out by hand (kinds tool and policy); `retry` runs an unverifiable
        call again. With `always`, exactly the same call needs no approval again, in this run and in all later ones.
        """
        answer = Resolve(
            approval_id=approval_id,
            decision=decision,
            note=note,
            arguments=given_arguments(arguments),
            outcome=outcome,
            result=given_json(result),
            always=always,
            **actor_of(by).fields,
        )
        return await self._answer(answer)

    async def signal(self, name: str, data: Any = None, *, key: str = "", by: str = "") -> SentSignal:
        """Send a signal to this run: a wait for its name takes it, whether it is open already or comes later.

        `data` is JSON. A signal with a `key` is stored once for its name, however often it is sent; one without is
        another signal each time. Raises `SignalError`, `RunFinished`, `RunNotFound`.
        """
        return await self._signalled(given_signal(name, data, key, by), name, key)

    async def _signalled(
        self, command: SendSignal | AnswerCallback, name: str, key: str, *, cause: int = 0
    ) -> SentSignal:
        """Store a signal, or the answer to a callback, whose `key` is the SHA-256 of its token and `name` is empty.

        An older read than the revision `cause` decides nothing (W10): it lacks the token. If the log ends before it,
        the token is not valid.
        """
        journal = await self._journal()
        await _caught_up(journal, cause)
        is_new = False
        try:
            if journal.state.signal_number(name, key) is None:
                is_new = await self._store(command, journal, refuse_finished=True)
        except RunFinished:
            if journal.state.signal_number(name, key) is None:  # else another sender was first
                raise
        state = journal.state
        return SentSignal(number=state.signal_number(name, key) or state.signal_count, is_new=is_new)

    async def issue_token(self, approval_id: str, *, expires_s: float = TOKEN_EXPIRY_S, by: str = "") -> str:
        """Return a resume token: its holder may answer the approval, once, within `expires_s` (default: a day).

        It cannot be shown again: the log has only its SHA-256. Raises `ApprovalError` for an approval that is decided,
        `ConfigError`.
        """
        given: object = expires_s
        if not isinstance(given, int | float) or not 0 < given < math.inf:
            raise ConfigError(f"expires_s must be a positive number of seconds, not {given!r}")
        journal = await self._journal_with(approval_id)
        check_pending(journal.state, approval_id)
        token = new_token(journal.subject.id, approval_id)
        digest, now = place_of(token).sha256, self._runtime.log.clock.now()
        command = IssueToken(approval_id=approval_id, sha256=digest, expires_at=now + expires_s, by=by)
        await self._send(command, journal=journal)
        check_pending(journal.state, approval_id)
        return token

    async def revoke_tokens(self, approval_id: str, *, by: str = "") -> int:
        """Revoke all resume tokens of an approval; return their number. Raises `ApprovalError`."""
        journal = await self._journal_with(approval_id)
        tokens = len(check_pending(journal.state, approval_id).tokens)
        await self._send(RevokeTokens(approval_id=approval_id, by=by), journal=journal)
        return tokens

    async def _answer(self, answer: Resolve) -> ApprovalResolved:
        journal = await self._journal_with(answer.approval_id)
        await self._send(answer, journal=journal)
        stored = check_answered(journal.state, answer)
        if answer.always:
            approved = journal.state.always[answer.approval_id]
            await ApprovedCalls(self._runtime.log).add(approved, answer.by)
        return stored

    async def state(self) -> RunState:
        """Return the run's state as the log has it now."""
        return (await self._journal()).state

    async def status(self) -> str:
        """Return queued, running, paused, completed, error or cancelled. Raises `RunNotFound`."""
        return (await self.state()).status

    async def usage(self) -> Used:
        """Return the tokens and cost of the run and all runs below it so far. Raises `RunNotFound`."""
        subject = (await self._journal()).subject
        return await used_by(self._runtime.log, subject)

    async def history(self) -> list[Message]:
        """Return the messages of all complete steps, as sent to and received from the model, in order.

        Once the run is over, those of a step that was left open too; its calls without a result read `aborted`.
        """
        return conversation(await self.state())

    async def _located(self) -> Subject:
        if self._subject is None:
            self._runtime, self._subject = await self._runtime.place(self.run_id)
        return self._subject

    async def _journal(self) -> Journal:
        subject = await self._located()
        journal = Journal(self._runtime.log, subject)
        await journal.load()
        if not journal.state.exists:
            raise RunNotFound(f"there is no run {self.run_id!r} in namespace {self._runtime.log.namespace!r}")
        return journal

    async def _journal_with(self, approval_id: str) -> Journal:
        """Return the journal of this run, or of the run below it that has the approval."""
        journal = await self._journal()
        if approval_id in journal.state.approvals:
            return journal
        family = await family_of(journal)
        below = [each for run, each in family.items() if self.run_id in ancestors(family, run)]
        return next((each for each in below if approval_id in each.state.approvals), journal)

    def _require(self, feature: str, state: RunState) -> None:
        """Raise `UnsupportedByExecutor` if the run's executor is known here and lacks the feature."""
        executor = self._executor_of(state)
        if executor is not None:  # otherwise the process that drives it checks
            require(executor, frozenset({feature}))

    def _executor_of(self, state: RunState) -> Executor | None:
        """Return the executor of the run, if it is known here."""
        return None if state.submitted is None else self._runtime.known_executor(state.submitted.executor)

    def _needs_worker(self, state: RunState, board: Board) -> bool:
        """Return whether the run is for workers, but no running worker serves its agent."""
        executor = self._executor_of(state)
        return executor is not None and executor.runs_in == "workers" and state.agent not in board.served

    async def _send(
        self,
        command: Command,
        *,
        journal: Journal | None = None,
        refuse_finished: bool = False,
        feature: str | None = None,
    ) -> Journal:
        """Store a command of a caller: load, decide, append, and on a conflict decide again (W1).

        A command that makes a parked run runnable stores its wake-up in the same batch (W5).
        """
        journal = journal or await self._journal()
        await self._store(command, journal, refuse_finished=refuse_finished, feature=feature)
        return journal

    async def _store(
        self, command: Command, journal: Journal, *, refuse_finished: bool = False, feature: str | None = None
    ) -> bool:
        """Store a command, and return whether it was this one that did so: the run may know it already."""
        command = _checked(command)
        lock = self._runtime.command_locks.setdefault(journal.subject.id, asyncio.Lock())
        waited = lock.locked()
        async with lock:
            if waited:
                await journal.catch_up()
            return await self._decide_and_store(command, journal, refuse_finished, feature)

    async def _decide_and_store(
        self, command: Command, journal: Journal, refuse_finished: bool, feature: str | None
    ) -> bool:
        if feature is not None and not journal.state.over:
            self._require(feature, journal.state)
        append = self._runtime.log.clock.new_id()
        async for _ in Decisions(self._runtime.log.clock):
            state = journal.state
            _check(command, journal, self._runtime.log.clock.now())
            if state.closed:
                if refuse_finished:
                    raise self._finished(state)
                return False
            if isinstance(command, (Inject, RefreshTools)) and state.kind != "agent":
                raise ConfigError(
                    f"run {self.run_id} is a {state.kind}: it has no steps; use the run of an agent in it"
                )
            was_parked = not state.runnable
            turn = Turn(state, journal.rules, self._runtime.log.clock.now())
            take(turn, command)
            if not turn.events:
                if await is_last(journal.log, journal.subject, journal.state.head.position):
                    return False
                await journal.catch_up()
                continue
            wakes = was_parked and state.runnable
            extra = [WakeWrite(wakeup_for(journal, cause=state.head.rev + len(turn.events)))] if wakes else []
            if await journal.store(turn.events, epoch=0, extra=extra, append=append):
                return True
        raise LogUnavailable(f"run {self.run_id} changes faster than a command can be stored; try again")

    def _finished(self, state: RunState) -> RunFinished:
        how = f"over ({state.status})" if state.over else "being cancelled"
        return RunFinished(f"run {self.run_id} is {how}: start a new one")


async def _until_over(log: Log, subject: Subject, outcome: Outcome) -> None:
    async with following(log, subject, outcome.head.position, to_end=True) as commits:
        async for stored in commits:
            fold_stored(outcome, stored)
            if outcome.terminal is not None:
                return


async def _caught_up(journal: Journal, cause: int) -> None:
    """Wait until the read shows the revision `cause` of a callback's token.

    Raises `SignalError` if the run has no such revision, `LogUnavailable` if the read still lags.
    """
    for _ in range(LAGGING_READS_MAX):
        if journal.state.head.rev >= cause:
            return
        if await is_last(journal.log, journal.subject, journal.state.head.position):
            raise SignalError(
                "the callback's token is not valid: it is of a revision that its run does not have"
            )
        await journal.catch_up()
    raise LogUnavailable(f"the log does not show revision {cause} of run {journal.subject.id} yet; try again")


def _check(command: Command, journal: Journal, now: float) -> None:
    """Raise the error of a caller that sends what the run cannot take as it is now."""
    state = journal.state
    match command:
        case SendSignal() if not state.closed:
            check_signal(state, command)
        case AnswerCallback() if not state.closed:
            check_callback(state, command, now)
        case Resolve():
            check_answer(state, journal.rules, command, now)
        case _:
            pass


def _checked(command: Command) -> Command:
    """Return the command as the log stores it. Raises `ConfigError` for one that it cannot store."""
    try:
        return as_stored(command)
    except NotJson as error:
        raise ConfigError(f"{type(command).__name__.lower()}: {error}") from None


async def _message(runtime: Namespace, journal: Journal, content: Content) -> Inject:
    """Return the message to queue, with its files stored. Raises `ConfigError`."""
    if journal.state.closed or journal.state.kind != "agent":
        return Inject("")  # which is refused when it is sent
    if isinstance(content, str):
        return Inject(_text("an injected message", content))
    given = read_message(runtime.registry, journal.rules, content)
    await given.store(runtime.log, journal.subject.root)
    return Inject(given.text, given.parts)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{what} must be a non-empty text, not {value!r:.60}")
    return value
