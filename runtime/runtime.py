"""The runtime as its users see it: start runs, watch them, and send commands to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, cast, overload

from typing_extensions import TypeVar

from ..eventlog.clock import SystemClock
from ..eventlog.commits import gone
from ..eventlog.errors import (
    CallbackExpired,
    ConfigError,
    FoldlogError,
    RunConflict,
    RunFinished,
    RunNotFound,
    SignalError,
    SignalMisfit,
)
from ..eventlog.events import (
    PROGRAM,
    Actor,
    DetailedEvent,
    ForkTools,
    Observable,
    StreamEvent,
    Submitted,
    Trigger,
)
from ..eventlog.names import (
    check_name,
    run_subject,
    shard_in,
    shard_of,
)
from ..eventlog.ports import Log, Subject
from ..eventlog.sealing.log import begin_family
from ..eventlog.sealing.wrapping import KeyWrapper
from ..projections.history import History
from ..projections.run_state import RunState
from .agents import budget_check, capabilities
from .agents.agent import Agent
from .agents.content import GivenContent, read_content
from .agents.kinds import runnable_of
from .agents.loop import RalphLoop
from .agents.overrides import overridden
from .agents.registry import Registry
from .burying.options import EraseOptions, erase
from .core.answers import given_arguments, given_json
from .core.commands import Resolve
from .core.rules import rules_of
from .core.shared_budgets import SharedBudget
from .core.submission import actor_of, submitted_event, with_actor
from .core.waits import given_answer
from .driving.host import Host, build_setting, public_url_setting
from .driving.namespace import NamespacePolicy, project_budgets, project_limits
from .executors.installed import executor_factory
from .follow import follow_runs
from .forks.check import ForkCheck
from .forks.fork import (
    ForkOptions,
    Origin,
    StoredRuns,
    opening,
    read_archived,
    read_origin,
    same_fork,
    submission,
    with_content,
)
from .forks.plan import ForkPlan, plan_of
from .forks.storage import store as store_fork
from .handle import CallOutcome, Decision, Namespace, OutputT, RunHandle, RunResult, SentSignal
from .journal.journal import Journal
from .journal.keys import agent_of, check_there, note_stored, place_of_run, refuse_other
from .journal.outages import is_last
from .journal.snapshots import snapshot_setting
from .opening import open_log
from .options import RunOptions, check_options, start_time
from .ports.executor import Executor, require
from .ports.files import Content
from .ports.memory import memory_use
from .ports.runnable import DepsT_co, Runnable, all_members, is_runnable
from .retrying import Retrying
from .shared.resume_tokens import callback_place, end_of_callback, place_of
from .shared.run_index import open_run_index
from .shared.sessions import drop_last_turns, session_history

if TYPE_CHECKING:
    from ..projections.approvals import ApprovalRow
    from ..projections.projector import RunIndex
    from ..projections.run_list import RunRow
    from .burying.erasure import Receipt
    from .catalog.agents import StoredAgents
    from .operating.operations import Operations
    from .operating.surroundings import Executors
    from .rollbacks.rollback import RollbackPlan
    from .shared.plans import StandingPlans
    from .triggers.schedules import Schedules

OpenedT = TypeVar("OpenedT", default=Any)
"""The dependencies of the registry that a runtime is opened with."""


class Runtime(Generic[DepsT_co]):
    """A namespace of a log, with a registry of agents and tools for this process. Open it with `Runtime.open`.

    Its type has the dependencies that the registry opens, so a type checker refuses an agent that takes others.
    """

    def __init__(
        self, log: Log, registry: Registry[DepsT_co], host: Host, policy: NamespacePolicy | None = None
    ) -> None:
        self.log, self.registry, self._host = log, registry, host
        self.policy = policy or NamespacePolicy(log, {})
        self._executors: dict[str, Executor] = {}
        self._closing = contextlib.AsyncExitStack()
        """Closes the executors that were created here, the last one first."""
        self._index: RunIndex | None = None
        self._agents: StoredAgents | None = None
        self._presence, self._appearing, self._present = contextlib.AsyncExitStack(), asyncio.Lock(), False
        self.command_locks = weakref.WeakValueDictionary[str, asyncio.Lock]()
        """One lock per run: callers of this process take turns, because all but one would only conflict."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(  # noqa: PLR0913 - the options
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        registry: Registry[OpenedT] | None = None,
        log: Log | None = None,
        lease_s: float | None = None,
        executors: Mapping[str, Executor] | None = None,
        policy: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        budgets: Mapping[str, Any] | tuple[SharedBudget, ...] | None = None,
        seal: KeyWrapper | None = None,
    ) -> AsyncIterator[Runtime[OpenedT]]:
        """Connect to the log at `url`: `nats://...`, `memory://`, or (None) `NATS_URL`, else the project's own server.

        Leaving stops driving and releases claims; it cancels nothing. `log` is a log that is already open, `lease_s`
        the time that this process' claims hold without a heartbeat (default `FOLDLOG_LEASE_S` or 10). `policy` is the
        table of rules for all runs that are started here, `limits` says how many calls run at once in the namespace,
        `budgets` what all its runs may spend (default: `[policy]`, `[limits]` and `[budgets]` of the project's
        configuration). With `seal` the content of runs is sealed, under keys that it wraps (default: `FOLDLOG_SEAL`, or
        `[seal]` of the project's configuration).
        Raises `ConfigError`, `LogUnavailable`.
        """
        check_name("the namespace", namespace)
        hold_s = lease_s if lease_s is not None else _seconds("FOLDLOG_LEASE_S", 10.0)
        if hold_s < 1:
            raise ConfigError(f"a lease of {hold_s:g} s is too short: it must be at least 1 s")
        registered: Registry[OpenedT] = registry or Registry()
        async with contextlib.AsyncExitStack() as stack:
            unique = (log.clock if log is not None else SystemClock()).new_id()[-6:]
            worker = f"{socket.gethostname().replace('.', '-')}-{os.getpid()}-{unique}"
            opened = await stack.enter_async_context(
                open_log(url, namespace, name=worker, lease_s=hold_s, given=log, seal=seal)
            )
            host = Host(
                log=opened,
                registry=registered,
                worker=worker,
                build=build_setting(),
                lease_s=hold_s,
                snapshot_events=snapshot_setting(),
                public_url=public_url_setting(),
                limits=project_limits(limits),
                budgets=project_budgets(registered, budgets),
            )
            runtime: Runtime[OpenedT] = Runtime(opened, registered, host, NamespacePolicy(opened, policy))
            runtime._executors.update(executors or {})
            await stack.enter_async_context(runtime._presence)
            stack.push_async_callback(registered.aclose)
            stack.push_async_callback(runtime.aclose)
            yield runtime

    async def aclose(self) -> None:
        """Stop driving and release claims."""
        await self._closing.aclose()
        if self._index is not None:
            await self._index.aclose()
            self._index = None

    def executor(self, name: str) -> Executor:
        """Return the executor of this name, given or installed (`foldlog.executors`). Raises `ConfigError`."""
        if name not in self._executors:
            made = self._executors[name] = executor_factory(name)(self._host)
            self._closing.push_async_callback(made.aclose)
        return self._executors[name]

    def known_executor(self, name: str) -> Executor | None:
        """Return the executor of this name; None if this process does not have it."""
        try:
            return self.executor(name)
        except ConfigError:
            return None

    def where_executors_run(self) -> Executors:
        """Return the names of the known executors that drive runs in their own process, and of those on workers."""
        known = {name: self.known_executor(name) for name in ("local", "durable", *self._executors)}
        places = {name: each.runs_in for name, each in known.items() if each is not None}
        return (
            frozenset(name for name, place in places.items() if place == "process"),
            frozenset(name for name, place in places.items() if place == "workers"),
        )

    async def _be_present(self, executor: Executor) -> None:
        """Announce this process before it drives a run, so that its death is noticed; readers need not be announced."""
        async with self._appearing:
            if not self._present and executor.runs_in == "process":
                await self._presence.enter_async_context(self.log.leases.presence(self._host.presence()))
                self._present = True

    # --- starting -----------------------------------------------------------------------------------------------------

    async def run(
        self,
        agent: Runnable[OutputT, DepsT_co],
        input: Content,  # noqa: A002 - the word of the field
        *,
        timeout_s: float | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Start a run and wait for its result; options as for `start`. Raises what `start` and `result` raise."""
        handle = await self.start(agent, input, **options)
        return await handle.result(timeout_s=timeout_s)

    @overload
    def stream(
        self,
        agent: Runnable[Any, DepsT_co],
        input: Content,
        *,
        detailed: Literal[False] = False,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[StreamEvent]: ...

    @overload
    def stream(
        self,
        agent: Runnable[Any, DepsT_co],
        input: Content,
        *,
        detailed: bool,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[DetailedEvent]: ...

    async def stream(
        self,
        agent: Runnable[Any, DepsT_co],
        input: Content,  # noqa: A002 - the word of the field
        *,
        detailed: bool = False,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[DetailedEvent]:
        """Start a run and yield its events until it is over; options as for `start`."""
        handle = await self.start(agent, input, **options)
        async with contextlib.aclosing(handle.stream(detailed=detailed)) as events:
            async for event in events:
                yield event

    async def start(
        self,
        agent: Runnable[OutputT, DepsT_co],
        input: Content,  # noqa: A002 - the word of the field
        **options: Unpack[RunOptions],
    ) -> RunHandle[OutputT]:
        """Store the run's first commit and get it driven; returns once it is stored. Options: see `RunOptions`.

        The input is a text, a `File`, or a list of both.

        Idempotent: the same `run_id` or `idempotency_key` with the same agent and input returns the same run, even if
        the agent's configuration has changed; the run is not driven twice, but driven on if its first submitter is
        gone. Raises `RunConflict` for another agent or input, `RunPurged` for a key whose run is no longer in the log,
        `UnsupportedByExecutor`, `NotRegistered`, `ConfigError`, `PayloadTooLarge`, `LogUnavailable`.
        """
        check_options(options)
        executor = options.get("executor", "local")
        chosen = self.executor(executor)
        asked, overrides = overridden(agent, options)
        self._check(
            asked, chosen, self.policy.capabilities() | ({"messages"} if options.get("messages") else set())
        )
        given = read_content(self.registry, asked, input, options.get("messages", ()))
        submitted = submitted_event(
            asked,
            given.text,
            executor=executor,
            parts=given.parts,
            messages=given.messages,
            session=options.get("session"),
            lane=options.get("lane"),
            user=options.get("user"),
            metadata=options.get("metadata"),
            idempotency_key=options.get("idempotency_key"),
            policy=await self._policy_of(asked),
            overrides=overrides,
            trigger=with_actor(options.get("trigger"), options.get("by", "")),
            start_at=start_time(options.get("at"), self.log.clock.now()),
            priority=options.get("priority"),
        )
        self._check_memory(submitted, chosen)
        return await self._submit(submitted, agent, options.get("run_id"), given)

    async def _resubmit(self, submitted: Submitted, agent: Runnable[Any] | None = None) -> RunHandle[Any]:
        """Start a run by a submission that is stored already, such as that of a run to retry.

        Its agent is `agent`, a registered one, or the stored one, if workers drive it. Raises as `start` does.
        """
        chosen, name = self.executor(submitted.executor), agent_of(submitted)
        known = agent or self._member(name)
        if known is None and chosen.runs_in == "process":
            known = self.registry.agent(name)  # which names those that there are
        runnable = known or runnable_of(submitted.kind, submitted.config)
        self._check(runnable, chosen, frozenset({"messages"} if submitted.messages else ()))
        self._check_memory(submitted, chosen)
        return await self._submit(submitted, runnable)

    async def _submit(
        self,
        submitted: Submitted,
        agent: Runnable[Any],
        run_id: str | None = None,
        given: GivenContent | None = None,
    ) -> RunHandle[Any]:
        chosen, place = self.executor(submitted.executor), await place_of_run(self.log, submitted, run_id)
        subject = place.subject
        if place.stored:
            await check_there(self.log, place)
        if given is not None:
            await begin_family(self.log, subject.root, submitted)
            await given.store(self.log, subject.root)
        await self._be_present(chosen)
        is_new = not place.stored and await chosen.submit(subject, place.submitted, agent)
        if not is_new:
            await self._same_run(subject, submitted)
            await chosen.drive(subject, agent)  # its first submitter may be gone
        await note_stored(self.log, place)
        return RunHandle(self, subject.id, agent, subject, is_new=is_new)

    async def retry(
        self,
        run_id: str,
        *,
        from_failure: bool = False,
        number: int | None = None,
        executor: str | None = None,
        agent: Runnable[OutputT, DepsT_co] | None = None,
        by: str | Actor = "",
    ) -> RunHandle[OutputT]:
        """Start a new run of the same job, with the configuration and the input that the run was submitted with.

        `from_failure` forks the run before the attempts that failed instead, with its recorded results
        (`tools="replay"`). The key of a retry is its `number`, from 1; null is the last one if that is open or
        completed, else the next. So a retry that is repeated after a crash is the same run. `executor` is that of the
        run by default. `agent`: one that is not registered.

        Raises `RunNotFound`, `ConfigError` for a run that is not over, belongs to another or is a fork,
        `NotRegistered`, `UnsupportedByExecutor`, `LogUnavailable`.
        """
        retrying = Retrying(self, self._resubmit, run_id, executor, agent, actor_of(by))
        return await retrying.retry(from_failure=from_failure, number=number)

    async def next_retry(self, run_id: str, *, from_failure: bool = False) -> int:
        """Return the number of the retry that `retry` without a number starts or finds now. Raises as it does.

        A caller that keeps the number before it retries can repeat the call after any crash, and gets the same run.
        """
        retrying = Retrying(self, self._resubmit, run_id, None, None, actor_of(""))
        return await retrying.next_number(from_failure=from_failure)

    async def plan_rollback(self, run_id: str, *, from_step: str | None = None) -> RollbackPlan:
        """Return what `rollback` would do, storing nothing. Raises as it does."""
        from .rollbacks.rollback import plan_rollback

        subject = await self.locate(run_id)
        return await plan_rollback(self.log, self.registry, subject, from_step=from_step)

    async def rollback(
        self, run_id: str, *, from_step: str | None = None, by: str | Actor = "", executor: str | None = None
    ) -> RunHandle[Any]:
        """Undo what the calls of a run that is over did: start a workflow of their compensations, or find it.

        The last result is undone first. Each compensation needs an approval (kind `compensation`) and the one before
        it; a call whose tool has none is done by hand. `from_step`: only this call, by its id or that of its step, and
        those after it. `by`: who wishes it. One rollback of a run at a time; a further one has what is not undone yet.
        `executor` is by default that of the run.

        Raises `RunNotFound`, `ConfigError` for a run that is open or has nothing to roll back, `NotRegistered`,
        `UnsupportedByExecutor`, `PayloadTooLarge`, `LogUnavailable`.
        """
        from .rollbacks.rollback import submission_of

        plan, actor = await self.plan_rollback(run_id, from_step=from_step), actor_of(by)
        if plan.rollback is not None:
            handle = self.get_run(plan.rollback)
            if not (await handle.state()).over:  # the process that started it may be gone
                await self.drive(plan.rollback, executor=executor or plan.submitted_executor)
            return handle
        assert plan.submitted is not None  # noqa: S101 - a plan to be carried out has it
        chosen = executor or plan.submitted.executor
        submitted, table = await submission_of(plan, self.registry, chosen, self._policy_of, actor)
        self._check(table, self.executor(chosen), self.policy.capabilities())
        return await self._submit(submitted, table)

    async def _policy_of(self, agent: Runnable[Any]) -> Mapping[str, Any]:
        return await self.policy.of_run(self.registry.reachable(agent))

    async def plan_fork(
        self,
        run_id: str,
        *,
        at: int,
        model: str | None = None,
        input: Content | None = None,  # noqa: A002 - the word of the field
        tools: ForkTools = "ask",
        archive: StoredRuns | None = None,
    ) -> ForkPlan:
        """Return what `fork` would do, storing nothing: what is shared, what happens first, and what happens to calls.

        Raises `RunNotFound`, `ConfigError` if the run cannot be forked there, `LogCorrupted`.
        """
        archive = archive or await self._copy_of(run_id)
        origin = await self._origin(run_id, at, archive)
        options, _ = with_content(ForkOptions(model=model, tools=tools), origin, self.registry, input)
        shared = opening(origin, options, submission(origin, options), "fork", self.log.clock.now())
        return plan_of(origin, options, shared)

    async def fork(  # noqa: PLR0913 - its options
        self,
        run_id: str,
        *,
        at: int,
        model: str | None = None,
        input: Content | None = None,  # noqa: A002 - the word of the field
        tools: ForkTools = "ask",
        executor: str = "local",
        agent: Runnable[OutputT, DepsT_co] | None = None,
        fork_id: str | None = None,
        archive: StoredRuns | None = None,
        trigger: Trigger | None = None,
        by: str | Actor = "",
    ) -> RunHandle[OutputT]:
        """Start a new root run that shares the history of a run up to revision `at` and goes on live from there.

        Any run can be forked, over or not, even a child or a fork, at any revision. Nodes of a swarm or loop that are
        over there are kept, others go on where they were; the code of a workflow runs again over the operations that
        were over. `input`, a text or content as for `start`, reaches the model with the next step, or replaces the
        run's input if no step, node or operation had begun. `model` is called from there on, by all agents of a swarm,
        loop or workflow.
        `tools` is the policy for tool calls: `run` runs them; `ask` requests an approval for those whose tool is not
        pure; `replay` uses the result that the run has after `at` for the same tool and arguments, each once, and
        requests an approval for the others. Approvals given after `at`, or to a call without its result there, do not
        count. `agent`: one that is not registered. The same `fork_id` with the same options is the same fork.
        `archive`: the source of the run (`foldlog.replay.read_archive`), if it is not in this log. `trigger` and
        `by` as for `start`.

        Raises `RunNotFound`, `ConfigError`, which names everything that is missing here, `RunConflict`,
        `UnsupportedByExecutor`, `NotRegistered`, `PayloadTooLarge`, `LogUnavailable`.
        """
        chosen = self.executor(executor)
        archive = archive or await self._copy_of(run_id)
        origin = await self._origin(run_id, at, archive)
        cause = with_actor(trigger, by) or PROGRAM
        options = ForkOptions(model=model, tools=tools, executor=executor, trigger=cause)
        options, content = with_content(options, origin, self.registry, input)
        submitted = submission(origin, options)
        given = agent or self._member(origin.run.path.rpartition("/")[2])
        now = self.log.clock.now()
        check = ForkCheck(self.registry, self.log, chosen, given)
        check.check(opening(origin, options, submitted, "fork", now))
        place = await place_of_run(self.log, submitted, fork_id)
        subject = place.subject
        if place.stored:
            await check_there(self.log, place)
        shared = opening(origin, options, submitted, subject.id, now)
        artifacts = archive.artifacts if archive is not None else None
        await begin_family(self.log, subject.root, submitted)
        if content is not None:
            await content.store(self.log, subject.root)
        lease_s = self._host.lease_s
        is_new = not place.stored and await store_fork(self.log, subject, shared, lease_s, artifacts)
        if not is_new:
            existing = await self._state_of(subject)
            if not same_fork(existing.submitted, place.submitted):
                raise RunConflict(
                    f"the run {subject.id} exists, but is not this fork; choose another id", run_id=subject.id
                )
        await self._be_present(chosen)
        await chosen.drive(subject, given)
        return RunHandle(self, subject.id, given, subject, is_new=is_new)

    async def _origin(self, run_id: str, at: int, archive: StoredRuns | None) -> Origin:
        if archive is not None:
            return await read_archived(archive, run_id, at, self.log)
        return await read_origin(self.log, await self.locate(run_id), at)

    async def _copy_of(self, run_id: str) -> StoredRuns | None:
        """Return the copy of a run that was archived; null for any other run."""
        from .archived import archived, read_copy

        subject = await self._subject_of(run_id) or await self._below_a_tombstone(run_id)
        tombstone = await archived(self.log, subject) if subject is not None else None
        return await read_copy(tombstone, run_id) if tombstone is not None else None

    def _member(self, name: str) -> Runnable[Any] | None:
        """Return the runnable of this name, registered or below a registered one."""
        found = (
            each for one in self.registry.agents.values() for each in all_members(one) if each.name == name
        )
        return self.registry.agents.get(name) or next(found, None)

    def _check(self, agent: Runnable[Any], executor: Executor, needed: frozenset[str]) -> None:
        if not is_runnable(agent):
            raise ConfigError(f"only agents, swarms, loops and workflows are started, not {agent!r:.60}")
        if executor.runs_in == "process" or agent.name in self.registry.agents:
            self.registry.check(agent)
        for each in self.registry.reachable(agent):
            require(executor, self.registry.capabilities(each) | needed)
            if isinstance(each, RalphLoop):
                each.check_prices(self.registry.price_known)
            if isinstance(each, Agent):
                config = each.config.to_config()
                rules = rules_of(config)
                capabilities.check(self.registry.provider, config, rules)
                budget_check.check(self.registry, rules)
                if each.config.mcp_servers:
                    self.registry.tool_sources().check(each.config.mcp_servers)

    def _check_memory(self, submitted: Submitted, executor: Executor) -> None:
        use = memory_use(submitted, "")
        if use is not None:
            require(executor, frozenset({"memory"}))
            self.registry.memory(use.backend, self.log)

    async def _state_of(self, subject: Subject) -> RunState:
        return await Journal(self.log, subject).load()

    async def _same_run(self, subject: Subject, submitted: Submitted) -> None:
        state = await self._state_of(subject)
        if state.submitted is not None:
            existing = state.submitted
            what = f"the run {subject.id} exists"
            refuse_other(agent_of(existing), existing.input_digest, submitted, subject.id, what)

    # --- erasing ------------------------------------------------------------------------------------------------------

    async def delete(
        self, *run_ids: str, with_copies: bool = False, dry_run: bool = False, **options: Unpack[EraseOptions]
    ) -> Receipt:
        """Erase root runs that are over, with all runs below them, from the log; return the receipt.

        Runs are given by their ids or selected by `user`, `session`, `agent` and `before`. What is erased is gone for
        good: a tombstone stays, so that it is known how and when, its key starts nothing, and the run list has its
        costs. `archive` is the URL of an archive that gets a copy first. `with_copies` erases forks and the runs that
        remember it, too; `dry_run` only lists. Raises `RunOpen`, `RunNotFound` for runs given by their ids,
        `ConfigError`, `ArchiveUnavailable`, `LogUnavailable`, `LogCorrupted`.
        """
        index, knowledge = await self.index(), self.registry.knowledge(self.log.namespace)
        return await erase(
            self.log, index, knowledge, run_ids, options, with_copies=with_copies, dry_run=dry_run
        )

    async def archive(self, *run_ids: str, to: str, **options: Unpack[EraseOptions]) -> Receipt:
        """Move families out of the log into the archive at a URL, as `delete(..., archive=to)` does."""
        chosen: EraseOptions = {**options, "archive": to}
        return await self.delete(*run_ids, **chosen)

    # --- finding ------------------------------------------------------------------------------------------------------

    @overload
    def get_run(self, run_id: str) -> RunHandle[str]: ...

    @overload
    def get_run(self, run_id: str, agent: Runnable[OutputT]) -> RunHandle[OutputT]: ...

    def get_run(self, run_id: str, agent: Runnable[Any] | None = None) -> RunHandle[Any]:
        """Return a handle on a run by its id; an unknown one raises `RunNotFound` on first use.

        With the run's `agent` its output has the agent's `output_type`, else it is text.
        """
        return RunHandle(self, run_id, agent, None)

    async def resolve_with_token(
        self,
        token: str,
        decision: Decision,
        note: str = "",
        arguments: Mapping[str, Any] | None = None,
        outcome: CallOutcome | None = None,
        result: Any = None,
        *,
        by: str | Actor = "",
    ) -> RunHandle[str]:
        """Answer the approval that a resume token names, as `RunHandle.resolve` does; returns its run.

        A token can be used only once. Raises `ApprovalError`, also for a token that is not valid, `RunNotFound`.
        """
        place = place_of(token)
        run = self.get_run(place.run_id)
        answer = Resolve(
            approval_id=place.approval_id,
            decision=decision,
            note=note,
            arguments=given_arguments(arguments),
            outcome=outcome,
            result=given_json(result),
            **actor_of(by).fields,
            token=place.sha256,
        )
        await run._answer(answer)  # noqa: SLF001
        return run

    async def answer_callback(self, token: str, data: Any = None, *, by: str = "") -> SentSignal:
        """Answer the callback that has this token, once: its call gets `data`, which is JSON.

        The same token again changes nothing. Raises `SignalError` for a token that is not valid, that is over, or
        whose callback was answered with another one; of these `CallbackExpired` once its time is over; `RunFinished`,
        `RunNotFound`.
        """
        place = callback_place(token)
        command = given_answer(place.sha256, data, by)
        run = self.get_run(place.run_id)
        try:
            return await run._signalled(command, "", place.sha256, cause=place.revision)  # noqa: SLF001
        except SignalMisfit:
            raise
        except (SignalError, RunFinished):
            ended_at = await end_of_callback(self.log, await self.locate(place.run_id), place)
            if ended_at is None or ended_at > self.log.clock.now():
                raise
        raise CallbackExpired(ended_at)

    async def drive(self, run_id: str, executor: str = "local") -> None:
        """Get a run that no process drives driven on. Raises `RunNotFound`, `NotRegistered`."""
        chosen, subject = self.executor(executor), await self.locate(run_id)
        await self._be_present(chosen)
        await chosen.drive(subject)

    def list_runs(
        self, status: str | None = None, session: str | None = None, user: str | None = None
    ) -> RunListing:
        """Return the runs of the namespace, newest first: `await` it for a list, or iterate with `async for`."""
        return RunListing(self, status, session, user)

    async def approvals(self, *, pending: bool | None = True, run_id: str | None = None) -> list[ApprovalRow]:
        """Return the approvals of the namespace, oldest first: pending ones, decided ones (False) or both (None).

        `run_id` selects those of one run. The projection is brought up to date first.
        """
        return await (await self.index()).approvals(pending, run_id)

    async def follow(self, *, after: str | None = None, detailed: bool = False) -> AsyncGenerator[Observable]:
        """Yield the stored events of all runs of the namespace, from the beginning or after the cursor `after`.

        Goes on with events still to come, until the iterator is closed. The events of a family come in log order; texts
        are complete, because drafts are not stored. The `cursor` of an event is its place here: pass it to `follow`,
        not to `RunHandle.stream`. `is_end` marks the terminal of each run. `detailed` as for `RunHandle.stream`.
        Raises `LogCorrupted`, and `ConfigError` for text that is not a cursor of this namespace.
        """
        async with contextlib.aclosing(follow_runs(self.log, after=after, detailed=detailed)) as events:
            async for event in events:
                yield cast("Observable", event)

    async def history(self, session: str, lane: str | None = None) -> History:
        """Return the messages of a session's finished runs; of one lane. Raises `LogCorrupted`, `LogUnavailable`."""
        return await session_history(self.log, session, lane)

    async def drop_last_user_turns(
        self, session: str, turns: int, lane: str | None = None, *, by: str | Actor = ""
    ) -> int:
        """Remove the last turns from a session's history; return how many. Raises `SessionBusy`, `ConfigError`."""
        return await drop_last_turns(self.log, session, turns, lane, actor_of(by))

    @property
    def schedules(self) -> Schedules:
        """The schedules of this namespace."""
        from .triggers.schedules import Schedules

        return Schedules(self.log, frozenset(self.registry.agents))

    @property
    def agents(self) -> StoredAgents:
        """The stored agents of this namespace."""
        if self._agents is None:
            from .catalog.agents import StoredAgents

            self._agents = StoredAgents(self.log, self.registry)
        return self._agents

    @property
    def plans(self) -> StandingPlans:
        """The standing plans of this namespace."""
        from .shared.plans import StandingPlans

        return StandingPlans(self.log)

    @property
    def budgets(self) -> tuple[SharedBudget, ...]:
        """The budgets of the namespace that this process knows."""
        return self._host.budgets

    @property
    def operations(self) -> Operations:
        """Answers for operators: why runs wait, and who has the lanes, slots and workers of this namespace."""
        from .operating.operations import Operations

        return Operations(self.log, self.index, self.where_executors_run(), self._host.limits)

    async def index(self) -> RunIndex:
        """Return the projections of this namespace: run list and approvals."""
        if self._index is None:
            self._index = await open_run_index(self.log)
        return self._index

    async def locate(self, run_id: str) -> Subject:
        """Return the subject of a run; that of an erased root run has its tombstone.

        Raises `RunNotFound`, `RunGone` for a run below an erased one, `ConfigError`.
        """
        found = await self._subject_of(run_id)
        if found is not None:
            return found
        below = await self._below_a_tombstone(run_id)
        if below is not None:
            await Journal(self.log, below).check_erased()
        raise RunNotFound(f"there is no run {run_id!r} in namespace {self.log.namespace!r}")

    async def _subject_of(self, run_id: str) -> Subject | None:
        check_name("the run", run_id)
        shards = self.log.events.shards
        carried = shard_in(run_id)
        likely = [carried] if carried is not None and carried < shards else []
        likely.append(shard_of(run_id, shards))
        for shard in dict.fromkeys([*likely, *range(shards)]):
            found = await self.log.events.find(shard, run_id)
            if found is not None:
                return found
        return None

    async def place(self, run_id: str) -> tuple[Namespace, Subject]:
        """Return where to read the run: here, or from the copy of an archived one. Raises `RunNotFound`, `RunGone`."""
        from .archived import opened_copy
        from .burying.family import tombstone_of

        found = await self._subject_of(run_id)
        run = found or await self._below_a_tombstone(run_id)
        root = None if run is None else run_subject(run.shard, run.root, run.root)
        tombstone = await tombstone_of(self.log, root) if root is not None else None
        if tombstone is None:
            return self, found or await self.locate(run_id)
        if not tombstone.event.url:
            raise gone(tombstone.recorded.commit, tombstone.event, run_id)
        return await (await opened_copy(self, tombstone, run_id)).place(run_id)

    async def _below_a_tombstone(self, run_id: str) -> Subject | None:
        """Return the subject of a run below a root that was erased: the id of a child begins with that of its root."""
        from .burying.family import tombstone_of

        begin, _, below = run_id.rpartition("_")
        for row in await (await self.index()).runs_named(begin) if begin and below else ():
            tombstone = await tombstone_of(self.log, run_subject(row.shard, row.root_id, row.root_id))
            if tombstone is not None and run_id in tombstone.event.members:
                return run_subject(row.shard, row.root_id, run_id)
        return None

    async def watch(self, run_id: str, news: Coroutine[Any, Any, object]) -> None:
        """Wait for news of a run; raise the error that stopped this process from driving it, if that comes first.

        A run that has ended since, elsewhere or by a cancel, has its end for news.
        """
        waiting, failing = asyncio.ensure_future(news), asyncio.ensure_future(self._failure(run_id))
        try:
            await asyncio.wait({waiting, failing}, return_when=asyncio.FIRST_COMPLETED)
            if (
                not waiting.done()
                and (error := await failing) is not None
                and not await self._is_over(run_id)
            ):
                raise error
            await waiting
        finally:
            waiting.cancel()
            failing.cancel()

    async def _is_over(self, run_id: str) -> bool:
        """Return whether the log has the end of a run; false if it cannot be read."""
        try:
            place, subject = await self.place(run_id)
            journal = Journal(place.log, subject)
            await journal.load()
            while not (journal.state.over or await is_last(place.log, subject, journal.state.head.position)):
                await journal.catch_up()
        except FoldlogError:
            return False
        return journal.state.over

    async def _failure(self, run_id: str) -> FoldlogError | None:
        """Wait until no executor of this process drives the run; return the error that stopped one."""
        for executor in tuple(self._executors.values()):
            error = await executor.failure(run_id)
            if error is not None:
                return error
        return None


class RunListing:
    """A query of the run list, executed when awaited or iterated; the projection is brought up to date first."""

    def __init__(self, runtime: Runtime, status: str | None, session: str | None, user: str | None) -> None:
        self._runtime, self._status, self._session, self._user = runtime, status, session, user

    def __await__(self) -> Generator[Any, None, list[RunRow]]:
        return self._rows().__await__()

    async def __aiter__(self) -> AsyncIterator[RunRow]:
        for row in await self._rows():
            yield row

    async def _rows(self) -> list[RunRow]:
        index = await self._runtime.index()
        return await index.runs(status=self._status, session=self._session, user=self._user)


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{variable} must be a number of seconds, not {text!r}") from None
