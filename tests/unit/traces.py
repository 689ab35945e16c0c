"""Small legal traces, written by hand: a family is built commit by commit, as a log would hold it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from foldlog.eventlog.commits import Commit, Recorded, as_read, digest_of_bytes, encode
from foldlog.eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    ChildFinished,
    ChildStarted,
    Claimed,
    Event,
    McpProgress,
    MessageInjected,
    MessageQueued,
    ModelRequested,
    Parked,
    RalphIteration,
    RalphStop,
    SignalReceived,
    Status,
    Step,
    StoredEvent,
    Submitted,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    WaitStarted,
)
from foldlog.eventlog.ports import Stored, Subject

CONFIGS: dict[str, dict[str, Any]] = {
    "agent": {"name": "agent"},
    "ralph": {"name": "agent", "runnable": {"kind": "agent", "config": {"name": "inner"}}},
    "swarm": {"name": "agent", "mode": "handoff", "agents": [{"name": "inner"}]},
}
"""A minimal configuration of each kind of run."""


class Family:
    """A family in the making. Ids (runs, calls, approvals, appends) carry `salt`; a second is added for each commit."""

    def __init__(self, salt: str = "a", start: float = 1000.0) -> None:
        self.salt, self.now = salt, start
        self.root = f"root-{salt}"
        self.stored: list[Stored] = []
        self._heads: dict[str, tuple[int, str, str]] = {}

    def commit(
        self, *events: StoredEvent, run: str | None = None, path: str = "agent", epoch: int = 0
    ) -> None:
        """Append a commit to a run (default: the root)."""
        run = run or self.root
        revision, digest, path = self._heads.get(run, (0, "", path))
        self.now += 1.0
        commit = Commit(
            run=run,
            root=self.root,
            rev=revision + 1,
            append=f"append-{self.salt}-{len(self.stored)}",
            prev=digest,
            epoch=epoch,
            at=self.now,
            path=path,
            events=events,
        )
        data = encode(commit)
        subject = Subject(0, "run", self.root, run)
        self.stored.append(Stored(subject, len(self.stored) + 1, data))
        self._heads[run] = (revision + len(events), digest_of_bytes(data), path)

    def damage(self) -> None:
        """Change the last commit after it was made: its checksum no longer fits."""
        last = self.stored[-1]
        data = last.data.replace(b'"epoch"', b'"Epoch"').replace(b"status", b"sTatus")
        self.stored[-1] = msgspec.structs.replace(last, data=data)

    @property
    def events(self) -> list[Event]:
        """All events as read."""
        return [
            event
            for stored in self.stored
            for event in as_read(
                Recorded(
                    stored.subject,
                    stored.position,
                    msgspec.json.decode(stored.data, type=Commit),
                    digest_of_bytes(stored.data),
                )
            )
        ]

    def call(self, number: int) -> str:
        """The id of a call: the model's whim."""
        return f"call-{self.salt}-{number}"

    # --- the usual commits of a run ---

    def begin(
        self, *, run: str | None = None, path: str = "agent", text: str = "question", kind: str = "agent"
    ) -> None:
        self.commit(
            Submitted(kind=kind, config=CONFIGS[kind], config_digest="c", input=text, input_digest="i"),
            Status(status="starting"),
            run=run,
            path=path,
        )

    def claim(self, epoch: int = 1, *also: StoredEvent, run: str | None = None) -> None:
        self.commit(
            Claimed(worker=f"worker-{self.salt}-{epoch}", epoch=epoch, lease_s=10.0),
            *also,
            run=run,
            epoch=epoch,
        )


def step_started(step: int, digest: str | None = None) -> tuple[StoredEvent, ...]:
    return Step(step=step, status="started", started_at=1.5), ModelRequested(
        step=step, attempt=1, digest=digest or f"digest-{step}"
    )


def step_completed(step: int) -> StoredEvent:
    return Step(step=step, status="completed", completed_at=2.5)


def usage(step: int, tokens: int = 7) -> StoredEvent:
    return Usage(step=step, usage=TokenUsage(input_tokens=tokens, total_tokens=tokens), model="scripted:x")


def tool_call(step: int, call: str, name: str = "search", **arguments: Any) -> StoredEvent:
    return ToolCall(step=step, tool_call_id=call, tool_name=name, arguments=arguments)


def progress(step: int, call: str, done: int, name: str = "search") -> StoredEvent:
    return McpProgress(step=step, tool_call_id=call, tool_name=name, progress=done, total=2)


def tool_result(
    step: int, call: str, at: float = 1.0, result: str = "found", name: str = "search", **metadata: Any
) -> StoredEvent:
    return ToolResult(
        step=step,
        tool_call_id=call,
        tool_name=name,
        success=True,
        result=result,
        duration_ms=at,
        metadata={"status": "success", "completed_at": at, "idempotency_key": call, "attempt": 1, **metadata},
    )


def asked(step: int, call: str, approval: str, kind: str = "tool") -> StoredEvent:
    return ApprovalRequested(
        step=step, tool_call_id=call, approval_id=approval, kind=kind, tool_name="search", expires_at=9.0
    )


def answered(step: int, call: str, approval: str, **fields: Any) -> StoredEvent:
    return ApprovalResolved(step=step, tool_call_id=call, approval_id=approval, decision="approved", **fields)


def final_step(step: int) -> tuple[StoredEvent, ...]:
    return Text(step=step, text="Final answer"), usage(step), step_completed(step), Status(status="completed")


# --- whole traces ---


def canonical_trace(salt: str = "a", *, takeover: bool = False) -> Family:
    """The canonical trace of contract.md; with a takeover in the middle of the tool call."""
    family, name = Family(salt), "mcp__srv__search"
    call = family.call(0)
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), tool_call(1, call, name), epoch=1)
    family.commit(progress(1, call, 1, name), epoch=1)
    epoch = 1
    if takeover:
        epoch = 2
        family.claim(2)
    family.commit(progress(1, call, 2, name), epoch=epoch)
    family.commit(
        tool_result(1, call, family.now, name=name), step_completed(1), *step_started(2), epoch=epoch
    )
    family.commit(*final_step(2), epoch=epoch)
    return family


def parallel_trace(salt: str = "a", *, slow_first: bool = False) -> Family:
    """Three parallel calls, the first of which needs an approval; the results come in one order or the other."""
    family = Family(salt)
    a, b, c = (family.call(n) for n in range(3))
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(
        Text(step=1, text="let me see"),
        usage(1),
        tool_call(1, a, n=0),
        tool_call(1, b, n=1),
        tool_call(1, c, n=2),
        asked(1, a, f"ap-{salt}"),
        Status(status="paused", reason="approval"),
        epoch=1,
    )
    family.commit(progress(1, b, 1), epoch=1)
    rest = [tool_result(1, b, 3.0, "b"), progress(1, c, 1), tool_result(1, c, 4.0, "c")]
    approval = (answered(1, a, f"ap-{salt}", by=salt), Status(status="resumed", reason="approval"))
    epoch = 1 if slow_first else 2
    if slow_first:
        family.commit(*approval)
        family.commit(*rest, epoch=1)
    else:
        family.commit(*rest, Parked(reason="approval"), epoch=1)
        family.commit(*approval)
        family.claim(2)
    family.commit(
        tool_result(1, a, 5.0, "a", approval_id=f"ap-{salt}"),
        step_completed(1),
        *step_started(2),
        epoch=epoch,
    )
    family.commit(*final_step(2), epoch=epoch)
    return family


def child_trace(salt: str = "a", *, swapped: bool = False) -> Family:
    """Two calls, each of which starts a child run; the children run in turn, the one first or the other."""
    family = Family(salt)
    calls = [family.call(0), family.call(1)]
    children = [f"child-{salt}-{n}" for n in range(2)]
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), *[tool_call(1, call, "ask", n=n) for n, call in enumerate(calls)], epoch=1)
    order = (1, 0) if swapped else (0, 1)
    for n in order:
        family.commit(
            ChildStarted(step=1, tool_call_id=calls[n], child_run=children[n], name="helper", kind="agent"),
            epoch=1,
        )
        family.begin(run=children[n], path="agent/helper", text=f"question {n}")
    for n in order:
        family.claim(1, *step_started(1), run=children[n])
        family.commit(*final_step(1), run=children[n], epoch=1)
        family.commit(
            ChildFinished(step=1, tool_call_id=calls[n], child_run=children[n], status="completed"), epoch=1
        )
    family.commit(
        *[tool_result(1, calls[n], family.now, f"answer {n}", name="ask") for n in order],
        step_completed(1),
        *step_started(2),
        epoch=1,
    )
    family.commit(*final_step(2), epoch=1)
    return family


def recovery_trace(salt: str = "a", *, crash: bool = True) -> Family:
    """An unsafe call; with a crash behind its start, after which an operator says how it ended."""
    family = Family(salt)
    call, epoch = family.call(0), 1
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), tool_call(1, call), epoch=1)
    family.commit(ToolStarted(step=1, tool_call_id=call, attempt=1), epoch=1)
    if crash:
        family.claim(
            2,
            asked(1, call, f"un-{salt}", "unverifiable"),
            Status(status="paused", reason="unverifiable"),
            Parked(reason="unverifiable"),
        )
        family.commit(
            answered(1, call, f"un-{salt}", outcome="succeeded", result="found"),
            Status(status="resumed", reason="unverifiable"),
        )
        epoch = 3
        family.claim(3)
    family.commit(tool_result(1, call, family.now), step_completed(1), *step_started(2), epoch=epoch)
    family.commit(*final_step(2), epoch=epoch)
    return family


def message_trace(salt: str = "a") -> Family:
    """A message that arrives during the last step, and a manual pause before the next."""
    family = Family(salt)
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(MessageQueued(content="and in French"))
    family.commit(Text(step=1, text="Hello"), usage(1), step_completed(1), epoch=1)
    family.commit(Status(status="paused", reason="manual"), Parked(reason="manual"), epoch=1)
    family.commit(Status(status="resumed", reason="manual"))
    family.claim(2, MessageInjected(content="and in French"), *step_started(2))
    family.commit(*final_step(2), epoch=2)
    return family


def waiting_trace(salt: str = "a") -> Family:
    """A call that sleeps, and then waits for a signal: one was there before, the next comes while the run is parked."""
    family = Family(salt)
    call = family.call(0)

    def started(wait_id: str, **fields: Any) -> WaitStarted:
        return WaitStarted(step=1, tool_call_id=call, wait_id=wait_id, **fields)

    def ended(wait_id: str, outcome: Any, key: str = "") -> WaitEnded:
        return WaitEnded(step=1, tool_call_id=call, wait_id=wait_id, outcome=outcome, key=key)

    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), tool_call(1, call, n=0), epoch=1)
    family.commit(SignalReceived(name="paid", key="1"))
    sleep = started("sleep-0", kind="sleep", until=2.0)
    family.commit(sleep, Status(status="paused", reason="wait"), Parked(reason="wait"), epoch=1)
    family.claim(2, ended("sleep-0", "elapsed"), Status(status="resumed", reason="wait"))
    paid = started("signal-paid-0", kind="signal", name="paid")
    family.commit(paid, ended("signal-paid-0", "received", "1"), epoch=2)
    again = started("signal-paid-1", kind="signal", name="paid")
    family.commit(again, Status(status="paused", reason="wait"), Parked(reason="wait"), epoch=2)
    received = ended("signal-paid-1", "received", "2")
    family.commit(SignalReceived(name="paid", key="2"), received, Status(status="resumed", reason="wait"))
    family.claim(3)
    family.commit(tool_result(1, call, 5.0, "paid"), step_completed(1), *step_started(2), epoch=3)
    family.commit(*final_step(2), epoch=3)
    return family


def native_trace(salt: str = "a") -> Family:
    """A reply in which the provider searched twice, and then asked for a call of the run."""
    family = Family(salt)
    call = family.call(0)
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(usage(1), *searched(1, "ws-1"), *searched(1, "ws-2"), tool_call(1, call, n=0), epoch=1)
    family.commit(tool_result(1, call), step_completed(1), *step_started(2), epoch=1)
    family.commit(Text(step=2, text="Final answer"), usage(2), *searched(2, "ws-3"), epoch=1)
    family.commit(step_completed(2), Status(status="completed"), epoch=1)
    return family


def searched(step: int, call: str) -> tuple[StoredEvent, StoredEvent]:
    """A search of the provider and its result."""
    return (
        ToolCall(step=step, tool_call_id=call, tool_name="web_search", executed_by="provider"),
        ToolResult(
            step=step,
            tool_call_id=call,
            tool_name="web_search",
            success=True,
            metadata={"status": "success", "executed_by": "provider"},
            executed_by="provider",
        ),
    )


def cancelled_trace(salt: str = "a", *, commits: int = 5) -> Family:
    """The parallel trace, cancelled behind its n-th commit."""
    family = parallel_trace(salt)
    del family.stored[commits:]
    return cancel(family)


def cancel(family: Family) -> Family:
    """Cancel whatever is open in the family."""
    heads: dict[str, tuple[int, str, str]] = {}
    for stored in family.stored:
        commit = msgspec.json.decode(stored.data, type=Commit)
        heads[commit.run] = (commit.rev + len(commit.events) - 1, digest_of_bytes(stored.data), commit.path)
    family._heads = heads
    ended = {
        event.run_id for event in family.events if isinstance(event, Status) and event.status == "completed"
    }
    for run in reversed([run for run in heads if run not in ended]):
        family.commit(CancelRequested(reason="enough"), Status(status="cancelled", reason="enough"), run=run)
    return family


def ralph_trace(salt: str = "a") -> Family:
    """A loop of two iterations."""
    family = Family(salt)
    family.begin(kind="ralph", path="loop")
    family.claim(1)
    for number in (1, 2):
        child = f"child-{salt}-{number}"
        family.commit(
            RalphIteration(iteration=number, status="started"),
            ChildStarted(child_run=child, name="agent", kind="agent"),
            epoch=1,
        )
        family.begin(run=child, path="loop/agent", text=f"try {number}")
        family.claim(1, *step_started(1), run=child)
        family.commit(*final_step(1), run=child, epoch=1)
        family.commit(
            ChildFinished(child_run=child, status="completed"),
            RalphIteration(iteration=number, status="completed", scores={"good": 0.5}),
            epoch=1,
        )
    family.commit(RalphStop(stop_type="completion", iterations=2), Status(status="completed"), epoch=1)
    return family


LEGAL = {
    "canonical": canonical_trace,
    "takeover": lambda: canonical_trace(takeover=True),
    "parallel": parallel_trace,
    "parallel, slow call first": lambda: parallel_trace(slow_first=True),
    "children": child_trace,
    "children swapped": lambda: child_trace(swapped=True),
    "recovery": recovery_trace,
    "message and pause": message_trace,
    "native tools": native_trace,
    "waits": waiting_trace,
    "ralph": ralph_trace,
    "cancelled before the claim": lambda: cancelled_trace(commits=1),
    "cancelled in a step": lambda: cancelled_trace(commits=2),
    "cancelled while paused": lambda: cancelled_trace(commits=3),
    "cancelled in a call": lambda: cancelled_trace(commits=4),
}


def renumbered(events: Iterable[Event]) -> list[Event]:
    """The events in this order, with dense revisions for each run, as a log would have given them."""
    revisions: dict[str, int] = {}
    result = []
    for event in events:
        revisions[event.run_id] = revisions.get(event.run_id, 0) + 1
        result.append(msgspec.structs.replace(event, revision=revisions[event.run_id]))
    return result


def find(events: Sequence[Event], cls: type[Event], number: int = 0, **fields: Any) -> int:
    """The index of the n-th event of this kind with these fields."""
    found = [
        index
        for index, event in enumerate(events)
        if isinstance(event, cls) and all(getattr(event, name) == value for name, value in fields.items())
    ]
    return found[number]
