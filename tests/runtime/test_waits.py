"""Waits of running tools: the attempt ends, and the call is run again once the time is over or the signal is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from foldlog.eventlog import (
    CallbackExpired,
    ConfigError,
    MemoryLog,
    RunFinished,
    SignalError,
    TooManySignals,
    WaitEnded,
    WaitStarted,
)
from foldlog.eventlog.faults import FaultyLog, StaleRead
from foldlog.replay import compare, load_trace, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, Signal, ToolContext, tool
from foldlog.runtime.core import waits as core_waits

from tests.replay.scenarios import ShiftedClock
from tests.runtime.conftest import JumpingClock, Place, call, calls, names, says
from tests.runtime.test_approvals import parked, results

Script = Callable[..., str]
DAY_S = 24 * 3600.0
EUR = {"type": "object", "properties": {"eur": {"type": "integer"}}, "required": ["eur"]}


class Chase:
    """A tool that waits for a payment; `done` is what its body did, each time it ran."""

    def __init__(self, script: Script, *, timeout_s: float | None = None, effect: Any = "pure") -> None:
        self.done: list[str] = []
        done = self.done

        @tool(effect=effect)
        async def chase(context: ToolContext) -> Any:
            """Chase a payment."""
            done.append("ran")
            await context.memo("mail", lambda: done.append("sent a mail"))
            context.progress(len(done))
            paid = await context.wait_for("paid", schema=EUR, timeout_s=timeout_s)
            return "nobody paid" if paid is None else [paid.data, paid.key, paid.by, paid.at > 0]

        @tool
        async def other() -> str:
            """Do something else."""
            done.append("other")
            return "other"

        turn = calls(call("chase", "c"), call("other", "o"))
        self.agent = Agent("chaser", model=script(turn, says("done")), tools=[chase, other])


async def waiting(run: RunHandle[Any]) -> None:
    await parked(run)
    assert (await run.state()).waiting_calls


@pytest.mark.parametrize("effect", ["pure", "unsafe"])
async def test_a_call_waits_for_a_signal_without_a_worker(place: Place, script: Script, effect: str) -> None:
    chase = Chase(script, effect=effect)
    await place.open(chase.agent)
    run = await place.start(chase.agent)
    await waiting(run)
    state = await run.state()
    assert (state.owner, state.status, state.paused) == (None, "paused", "wait")
    with pytest.raises(SignalError, match="'eur' is a required property"):
        await run.signal("paid", {"usd": 40})
    await run.signal("shipped", {"by": "sea"})
    sent = await run.signal("paid", {"eur": 40}, key="evt_17", by="bank")
    assert (sent.number, sent.is_new) == (2, True)
    assert (await run.result()).output == "done"
    again = await run.signal("paid", {"eur": 40}, key="evt_17", by="bank")
    assert (again.number, again.is_new) == (2, False)
    with pytest.raises(RunFinished):
        await run.signal("paid", {"eur": 40}, key="evt_18")
    found = (await results(place, run))["c"]
    assert (found.result, found.metadata["attempt"]) == ([{"eur": 40}, "evt_17", "bank", True], 2)
    assert sorted(chase.done) == ["other", "ran", "ran", "sent a mail"]
    seen = names(await place.events(run))
    assert [n for n in seen if "paused" in n or "resumed" in n] == ["status(paused)", "status(resumed)"]
    assert [n for n in seen if n.startswith(("wait", "mcp"))] == [
        "mcp_progress",
        "wait_started",
        "wait_ended",
    ]


async def test_a_signal_that_comes_before_its_wait_is_kept(place: Place, script: Script) -> None:
    """Signals are taken in the order in which they came; one that does not fit is dropped, and the log says so."""
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def slow(context: ToolContext) -> Any:
        """Wait twice."""
        entered.set()
        await go.wait()
        first = await context.wait_for("paid", schema=EUR)
        second = await context.wait_for("paid")
        return [first and first.data, second and second.data]

    agent = Agent("chaser", model=script(calls(call("slow", "s")), says("done")), tools=[slow])
    await place.open(agent)
    run = await place.start(agent)
    await entered.wait()
    for number, data in enumerate([{"usd": 1}, {"eur": 2}, {"eur": 3}]):
        await run.signal("paid", data, key=f"evt_{number}")
        await run.signal("paid", data, key=f"evt_{number}")
    go.set()
    await run.result()
    assert (await results(place, run))["s"].result == [{"eur": 2}, {"eur": 3}]
    trace = await load_trace(place.log, run.run_id)
    dropped = [(event.key, event.problem) for event in trace.events if event.type == "signal_dropped"]
    assert dropped == [("evt_0", "'eur' is a required property (at $)")]
    assert sum(event.type == "signal_received" for event in trace.events) == 3
    assert "status(paused)" not in names(await place.events(run))


async def test_a_call_sleeps_for_days_without_a_worker(script: Script) -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)

    @tool(effect="pure")
    async def dream(context: ToolContext) -> str:
        """Sleep."""
        await context.sleep(until=until)  # it is over
        await context.sleep(0.001)
        await context.sleep(days=3)
        return "slept"

    clock, agent = (
        ShiftedClock(),
        Agent("sleeper", model=script(calls(call("dream")), says("done")), tools=[dream]),
    )
    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question")
        await waiting(run)
        (pending,) = (await run.pending()).waits
        assert (pending.kind, round((pending.until or 0.0) - clock.now(), -1)) == ("sleep", 3 * DAY_S)
    clock.ahead_s = 3 * DAY_S + 1
    async with Runtime.open(log=log, registry=registry) as later:
        await later.drive(run.run_id)
        await later.get_run(run.run_id).result()
        trace = await load_trace(log, run.run_id)
    waits = [event for event in trace.events if isinstance(event, WaitStarted | WaitEnded)]
    assert [(each.type, each.wait_id) for each in waits] == [
        ("wait_started", "sleep-0"),
        ("wait_ended", "sleep-0"),
        ("wait_started", "sleep-1"),
        ("wait_ended", "sleep-1"),
    ]
    assert compare(trace, await rerun(trace)).equal


async def test_a_wait_that_nobody_ends_in_time_is_over(script: Script) -> None:
    """Its timer fires in the process that drives the run, and beside a call that still runs."""
    entered, go, clock = asyncio.Event(), asyncio.Event(), JumpingClock()

    @tool(effect="pure")
    async def slow() -> str:
        """Take a while."""
        entered.set()
        await go.wait()
        return "slow"

    @tool(effect="pure")
    async def patient(context: ToolContext) -> str:
        """Wait for an hour."""
        return "paid" if await context.wait_for("paid", timeout_s=3600) else "not paid"

    turn = calls(call("slow", "s"), call("patient", "p"))
    agent = Agent("chaser", model=script(turn, says("done")), tools=[slow, patient])
    log = MemoryLog(clock=clock)
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await entered.wait()
        async for event in run.stream(detailed=True):
            if event.type == "wait_started":
                clock.jump(3601)
            if event.type == "tool_result":
                assert (event.tool_call_id, event.result) == ("p", "not paid")
                break
        go.set()
        await run.result()


async def test_the_oldest_wait_takes_the_signal(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def patient(context: ToolContext) -> Any:
        """Wait."""
        signal = await context.wait_for("go")
        return None if signal is None else signal.data

    turn = calls(call("patient", "a"), call("patient", "b"))
    agent = Agent("chaser", model=script(turn, says("done")), tools=[patient])
    await place.open(agent)
    run = await place.start(agent)
    await waiting(run)
    first = [each.id for each in (await run.state()).waiting_calls]
    await run.signal("go", 1)
    await run.signal("go", 2)
    await run.result()
    found = await results(place, run)
    assert [found[call_id].result for call_id in first] == [1, 2]


async def test_a_run_keeps_only_so_many_unread_signals(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_waits, "UNREAD_MAX", 2)
    chase = Chase(script)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[chase.agent])) as runtime:
        run = await runtime.start(chase.agent, "question")
        await waiting(run)
        await run.signal("other")
        await run.signal("other", key="k")
        with pytest.raises(TooManySignals, match="takes no more"):
            await run.signal("other")
        await run.signal("other", key="k")
        with pytest.raises(SignalError, match="262,144"):
            await run.signal("paid", "x" * (256 * 1024))
        with pytest.raises(SignalError, match="is named by letters"):
            await run.signal("no name")
        await run.cancel()
        with pytest.raises(RunFinished):
            await run.signal("paid", {"eur": 1})


@pytest.mark.parametrize(
    ("wait", "problem"),
    [
        (lambda context: context.sleep(-1), "not negative"),
        (lambda context: context.sleep(until=datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001 - refused
        (lambda context: context.wait_for("a b"), "is named by letters"),
        (lambda context: context.wait_for("a", schema={"type": "nonsense"}), "must be a JSON Schema"),
        (lambda context: context.wait_for("a", timeout_s=float("inf")), "not negative"),
    ],
    ids=["a negative time", "no time zone", "a wrong name", "a wrong schema", "an infinite time"],
)
async def test_a_wait_that_is_none_fails_the_call(script: Script, wait: Any, problem: str) -> None:
    @tool(effect="pure")
    async def clumsy(context: ToolContext) -> None:
        """Wait badly."""
        await wait(context)

    agent = Agent("chaser", model=script(calls(call("clumsy")), says("done")), tools=[clumsy])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        assert problem in (await run.history())[2].content


async def test_a_fork_waits_again_and_finds_the_signals_that_the_open_call_had_read(script: Script) -> None:
    seen: list[Signal | None] = []

    @tool(effect="pure")
    async def patient(context: ToolContext) -> str:
        """Wait twice."""
        seen.append(await context.wait_for("one"))
        seen.append(await context.wait_for("two"))
        return "both"

    agent = Agent("chaser", model=script(calls(call("patient")), says("done")), tools=[patient])
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await waiting(run)
        await run.signal("one", 1)
        async with asyncio.timeout(120):
            async for event in run.stream():
                if event.type == "wait_started" and event.name == "two":
                    break
        await parked(run)
        revision = (await run.state()).head.rev
        fork = await runtime.fork(run.run_id, at=revision)
        await waiting(fork)
        await fork.signal("two", 2)
        await fork.result()
        await run.cancel()
        assert [each.data for each in seen[-2:] if each is not None] == [1, 2]
        trace = await load_trace(log, fork.run_id)
        assert compare(trace, await rerun(trace)).equal


class Ring:
    """A tool that tells a token and waits for the answer; `told` are the tokens of its attempts."""

    def __init__(self, script: Script, *, timeout_s: float | None = None, hold: bool = False) -> None:
        self.told, self.go, self.rang = list[str](), asyncio.Event(), asyncio.Event()
        told, go, rang = self.told, self.go, self.rang

        @tool(effect="idempotent")
        async def ring(context: ToolContext) -> Any:
            """Have something scanned."""
            callback = await context.callback("scan", timeout_s=timeout_s)
            told.append(callback.token)
            assert callback.token not in repr(callback)
            rang.set()
            if hold:
                await go.wait()
            answer = await callback.outcome()
            return None if answer is None else [answer.data, answer.key, answer.by]

        self.agent = Agent("ringer", model=script(calls(call("ring", "r")), says("done")), tools=[ring])


async def test_a_callback_is_answered_once_with_its_token(place: Place, script: Script) -> None:
    ring = Ring(script)
    await place.open(ring.agent)
    run = await place.start(ring.agent)
    await waiting(run)
    (token,) = ring.told
    (pending,) = (await run.pending()).waits
    assert (pending.kind, pending.name) == ("callback", "scan")
    runtime = place.runtime
    with pytest.raises(SignalError, match="never issued"):
        await runtime.answer_callback(token[:-4] + "AAAA", 1)
    with pytest.raises(SignalError, match="262,144") as refused:
        await runtime.answer_callback(token, "x" * (256 * 1024))
    assert token not in str(refused.value)
    assert (await runtime.answer_callback(token, {"page": 1}, by="scanner")).is_new
    await run.result()
    assert not (await runtime.answer_callback(token, {"page": 2})).is_new
    assert (await results(place, run))["r"].result == [{"page": 1}, "", "scanner"]
    trace = await load_trace(place.log, run.run_id)
    assert token not in str(trace.commits)
    with pytest.raises(RunFinished):
        await runtime.answer_callback(ring.told[-1], 1)


async def test_of_several_who_answer_a_callback_or_send_one_key_at_once_one_hears_that_it_is_new(
    place: Place, script: Script
) -> None:
    ring = Ring(script)
    await place.open(ring.agent)
    run = await place.start(ring.agent)
    await waiting(run)
    sent = await asyncio.gather(*(run.signal("note", 1, key="k") for _ in range(4)))
    assert ([each.number for each in sent], sum(each.is_new for each in sent)) == ([1] * 4, 1)
    answers = await asyncio.gather(*(place.runtime.answer_callback(ring.told[0], n) for n in range(4)))
    assert ([each.number for each in answers], sum(each.is_new for each in answers)) == ([2] * 4, 1)
    await run.result()
    answered = next(number for number, each in enumerate(answers) if each.is_new)
    assert (await results(place, run))["r"].result == [answered, "", ""]


async def test_a_callback_may_be_answered_before_its_call_waits(script: Script) -> None:
    ring = Ring(script, hold=True)
    log, registry = MemoryLog(), Registry(agents=[ring.agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(ring.agent, "question")
        await asyncio.wait_for(ring.rang.wait(), 120)
        await run.signal("callback-scan-0", "not for the callback")
        await runtime.answer_callback(ring.told[0], "early")
        ring.go.set()
        await run.result()
        trace = await load_trace(log, run.run_id)
    assert not [event for event in trace.events if event.type == "status" and event.status == "paused"]
    (ended,) = [event for event in trace.events if isinstance(event, WaitEnded)]
    assert (ended.outcome, ended.data, ended.key) == ("received", "early", "")
    assert compare(trace, await rerun(trace)).equal


async def test_every_token_of_a_callback_is_valid_until_one_is_used(script: Script) -> None:
    """The process dies after its call has told a token; the next one, in another process, tells a further one."""
    ring = Ring(script, hold=True)
    log, registry = MemoryLog(), Registry(agents=[ring.agent])
    async with Runtime.open(log=log, registry=registry, lease_s=1) as first:
        run_id = (await first.start(ring.agent, "question")).run_id
        await asyncio.wait_for(ring.rang.wait(), 120)
    ring.go.set()
    async with Runtime.open(log=log, registry=registry) as second:
        await second.drive(run_id)
        await waiting(run := second.get_run(run_id))
        old, new = ring.told
        await second.answer_callback(old, "by the first")
        with pytest.raises((SignalError, RunFinished)):
            await second.answer_callback(new, "by the second")
        await run.result()
        assert "by the first" in (await run.history())[2].content


async def test_a_token_waits_for_a_replica_that_lags_and_is_not_valid_beyond_the_end_of_the_log(
    script: Script,
) -> None:
    ring = Ring(script)
    log, registry = MemoryLog(), Registry(agents=[ring.agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        await waiting(run := await runtime.start(ring.agent, "question"))
        first, *_ = [stored.position async for stored in log.events.read(await runtime.locate(run.run_id))]
    behind = FaultyLog(log, [StaleRead(1, "events.read", first)])
    async with Runtime.open(log=behind, registry=registry) as later:
        asked = behind.operations["events.last_position"]
        answering = asyncio.create_task(later.answer_callback(ring.told[0], "scanned"))
        while behind.operations["events.last_position"] == asked and not answering.done():  # noqa: ASYNC110 - the log counts it
            await asyncio.sleep(0)
        assert not answering.done()
        await behind.release()
        assert (await answering).is_new
        begin, run_id, revision, secret = ring.told[0].split(".")
        beyond = ".".join([begin, run_id, str(int(revision) + 1_000), secret])
        with pytest.raises(SignalError, match="a revision that its run does not have"):
            await later.answer_callback(beyond, "scanned")


async def test_a_callback_that_nobody_answers_is_over_and_its_token_void(script: Script) -> None:
    clock = ShiftedClock()
    ring = Ring(script, timeout_s=3600)
    log, registry = MemoryLog(clock=clock), Registry(agents=[ring.agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        await waiting(await runtime.start(ring.agent, "question", run_id="ringing"))
    clock.ahead_s = 3601
    async with Runtime.open(log=log, registry=registry) as later:
        with pytest.raises(
            CallbackExpired, match=r"time is over since .* UTC: it takes no answer; ask for a new"
        ):
            await later.answer_callback(ring.told[0], "late")
        await later.drive("ringing")
        await later.get_run("ringing").result()
        with pytest.raises(CallbackExpired) as expired:
            await later.answer_callback(ring.told[0], "late")
        assert clock.now() - 3601 < expired.value.ended_at < clock.now()
        with pytest.raises(RunFinished):
            await later.answer_callback(f"{ring.told[0][:-4]}AAAA", "late")
        with pytest.raises(SignalError, match="not the token of a callback: it is incomplete"):
            await later.answer_callback(ring.told[0][:-1], "late")


async def test_the_url_of_a_callback_needs_the_address_of_the_door(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @tool(effect="pure")
    async def link(context: ToolContext) -> str:
        """Return where to answer."""
        callback = await context.callback("scan")
        seen.append(callback.token)
        return callback.url

    agent = Agent("linker", model=script(calls(call("link")), says("done")), tools=[link])
    for address, found in (("", "FOLDLOG_PUBLIC_URL"), ("https://door.example/", "https://door.example/v1/")):
        monkeypatch.setenv("FOLDLOG_PUBLIC_URL", address)
        async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
            run = await runtime.start(agent, "question")
            await run.result()
            assert found in (await run.history())[2].content
    monkeypatch.setenv("FOLDLOG_PUBLIC_URL", "door.example")
    with pytest.raises(ConfigError, match="must be a URL of http or https"):
        async with Runtime.open(log=MemoryLog()):
            pass
