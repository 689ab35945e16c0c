"""Features of a running call: parts that are done once, artifacts, and distinct attempts (R21)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from hashlib import sha256

import pytest
from foldlog.eventlog import ChildStarted, Clock, Custom, Log, McpProgress, Text, ToolResult
from foldlog.replay import canonical, compare, load_trace, rerun
from foldlog.runtime import Agent, ArtifactRef, Registry, Retryable, Runtime, ToolContext, ToolFailed, tool
from foldlog.runtime.driving.call_timeout import PausableTimeout

from tests.runtime.conftest import Place, call, calls, names, says

Script = Callable[..., str]
FAST = {"base_s": 0.01}


async def test_a_named_part_of_a_call_is_done_once_on_whatever_worker(place: Place, script: Script) -> None:
    done, entered = list[str](), asyncio.Event()

    async def part(name: str) -> list[str]:
        done.append(name)
        return [name]

    @tool(effect="idempotent")
    async def build(context: ToolContext) -> list[str]:
        first = await context.memo("first", lambda: part("first"))
        entered.set()
        if done == ["first"]:
            done.append("crash")
            await asyncio.Event().wait()
        again = await context.memo("first", lambda: part("never"))
        both = await asyncio.gather(*(context.memo("second", lambda: part("second")) for _ in range(2)))
        return [*first, *again, *both[0], *both[1], str(await context.memo("plain", lambda: 3))]

    agent = Agent("builder", model=script(calls(call("build")), says("built")), tools=[build])
    await place.open(agent)
    run = await place.start(agent)
    await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "built"
    (result,) = [e for e in await place.events(run) if isinstance(e, ToolResult)]
    assert result.result == ["first", "first", "second", "second", "3"]
    assert done == ["first", "crash", "second"]


async def test_a_part_that_fails_is_not_stored_and_the_next_attempt_makes_it(
    log: Log, script: Script
) -> None:
    tries: list[int] = []

    def fragile() -> str:
        tries.append(len(tries))
        if len(tries) == 1:
            raise Retryable("not yet", after_s=0.01)
        return "made"

    @tool(effect="pure")
    async def build(context: ToolContext) -> str:
        return str(await context.memo("fragile", fragile))

    agent = Agent("builder", model=script(calls(call("build")), says("built")), tools=[build])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "go")
        await run.result()
        (result,) = [e async for e in run.stream(detailed=True) if isinstance(e, ToolResult)]
    assert (result.result, tries) == ("made", [0, 1])


async def test_a_tool_may_try_a_part_again_that_failed(cheap: Place, script: Script) -> None:
    tries: list[int] = []

    async def fragile() -> str:
        tries.append(len(tries))
        if len(tries) == 2:
            await asyncio.Event().wait()
        if len(tries) < 3:
            raise ValueError("not yet")
        return "made"

    @tool(effect="pure")
    async def build(context: ToolContext) -> str:
        both = await asyncio.gather(*[context.memo("part", fragile) for _ in "ab"], return_exceptions=True)
        assert [str(each) for each in both] == ["not yet"] * 2
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(context.memo("part", fragile), 0.01)
        return str(await context.memo("part", fragile))

    agent = Agent("builder", model=script(calls(call("build")), says("built")), tools=[build])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    (result,) = [e for e in await cheap.events(run) if isinstance(e, ToolResult)]
    assert (result.result, tries) == ("made", [0, 1, 2])


async def test_a_part_that_json_cannot_hold_fails_the_call_and_names_the_part(
    log: Log, script: Script
) -> None:
    @tool(effect="pure")
    async def build(context: ToolContext) -> str:
        return str(await context.memo("strange", object))

    agent = Agent("builder", model=script(calls(call("build")), says("built")), tools=[build])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "go")
        await run.result()
        (result,) = [e async for e in run.stream(detailed=True) if isinstance(e, ToolResult)]
    assert "memo 'strange' cannot be stored as JSON" in str(result.error)


async def test_artifacts_are_stored_by_content_and_named_in_the_result(place: Place, script: Script) -> None:
    data = b"a picture" * 10_000

    @tool(effect="pure")
    async def photograph(context: ToolContext) -> str:
        one = await context.artifact(data, "image/png")
        assert one == await context.artifact(data, "image/png")
        await context.artifact(b"a note")
        return one.id

    agent = Agent("camera", model=script(calls(call("photograph")), says("done")), tools=[photograph])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    (result,) = [e for e in await place.events(run) if isinstance(e, ToolResult)]
    picture = ArtifactRef(id=sha256(data).hexdigest(), media_type="image/png", size_bytes=len(data))
    assert result.result == picture.id
    assert [ref["id"] for ref in result.metadata["evidence"]] == [picture.id, sha256(b"a note").hexdigest()]
    assert result.metadata["evidence"][0] == {
        "id": picture.id,
        "media_type": "image/png",
        "size_bytes": 90_000,
    }
    assert await place.log.artifacts.find(picture.id) == data


async def test_who_takes_a_call_over_leaves_out_all_that_a_part_did_which_is_done(
    place: Place, script: Script
) -> None:
    """Events, children and artifacts of a part belong to it: what comes behind it takes none of their places."""
    entered, proceed = asyncio.Event(), asyncio.Event()
    first = Agent("first", model=script(says("one")))
    second = Agent("second", model=script(says("two")))

    @tool(effect="pure")
    async def research(context: ToolContext) -> str:
        async def part() -> str:
            context.emit(Custom("in the part"))
            await context.artifact(b"a source", "text/plain")
            return await context.run(first, "look")

        one = await context.memo("part", part)
        entered.set()
        await proceed.wait()
        context.emit(Custom("behind it"))
        await context.artifact(b"a note", "text/plain")
        return f"{one}, {await context.run(second, 'write')}"

    agent = Agent("researcher", model=script(calls(call("research")), says("done")), tools=[research])
    await place.open(agent)
    run = await place.start(agent)
    await entered.wait()
    entered.clear()
    await place.hand_over(run)
    await entered.wait()
    proceed.set()
    await run.result()
    events = [e for e in await place.events(run) if e.run_id == run.run_id]
    (result,) = [e for e in events if isinstance(e, ToolResult)]
    assert result.result == "one, two"
    assert [e.name for e in events if isinstance(e, Custom)] == ["in the part", "behind it"]
    assert [e.name for e in events if isinstance(e, ChildStarted)] == ["first", "second"]
    stored = [sha256(data).hexdigest() for data in (b"a source", b"a note")]
    assert [ref["id"] for ref in result.metadata["evidence"]] == stored


async def test_what_a_call_tells_otherwise_when_it_runs_again_is_counted_and_the_first_telling_stands(
    place: Place, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    contexts: list[ToolContext] = []

    @tool(effect="pure", max_attempts=2)
    async def tells(context: ToolContext) -> str:
        contexts.append(context)
        context.progress(1, 3)
        context.emit(Custom("attempt", len(contexts)))
        context.emit(Text(text="hm", agent="inner"))
        if len(contexts) == 1:
            raise ToolFailed("again")
        context.progress(3, 3)
        return "told"

    agent = Agent("teller", model=script(calls(call("tells")), says("done")), tools=[tells], retry=FAST)
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    told = [e for e in await place.events(run) if e.tool_call_id == "c1"]
    assert [e.data for e in told if isinstance(e, Custom)] == [1]
    assert [e.progress for e in told if isinstance(e, McpProgress)] == [1, 3]
    assert [context.differed for context in contexts] == [0, 1]
    (said,) = [r.getMessage() for r in caplog.records if "differ from the stored ones" in r.getMessage()]
    assert said.startswith(f"run {run.run_id}, call c1: 1 event(s)")
    assert said.endswith("the first is number 1")


async def test_what_is_too_large_for_the_log_fails_the_call_and_not_the_run(
    place: Place, script: Script
) -> None:
    huge = "é" * 600_000

    @tool(effect="pure")
    async def says_much(context: ToolContext, how: str) -> str:
        """Say much."""
        match how:
            case "progress":
                context.progress(1, 2, huge)
            case "name":
                context.emit(Custom(huge, 1))
            case "event":
                context.emit(Text(text=huge, agent="inner"))
            case "question":
                await context.ask(huge)
            case "error":
                raise ValueError(huge)
            case "data":
                context.emit(Custom("data", {"much": huge}))
            case "memo":
                return str(len(await context.memo("much", lambda: huge)))
        return how

    ways = ["progress", "name", "event", "question", "error", "data", "memo", "nothing"]
    turn = calls(*(call("says_much", way, how=way) for way in ways))
    agent = Agent("helper", model=script(turn, says("done")), tools=[says_much])
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    results = {e.tool_call_id: e for e in await place.events(run) if isinstance(e, ToolResult)}
    for way in ways[:4]:
        assert "has 1,200," in (results[way].error or ""), way
        assert "more than the 905,216 that the log accepts" in (results[way].error or "")
    told = results["error"].error or ""
    assert told.startswith("ValueError: ééé")
    assert "\n[584012 characters are left out]\n" in told
    assert len(told) < 16_100
    assert [results[way].result for way in ways[5:]] == ["data", "600000", "nothing"]
    (custom,) = [e for e in await place.events(run) if isinstance(e, Custom)]
    assert custom.data == {"much": huge}


async def test_runs_of_one_agent_at_once_never_mix_and_store_the_same_whether_anybody_looks_on(
    place: Place, script: Script
) -> None:
    both, met = set[str](), asyncio.Event()
    inner = Agent("inner", model=script(says("inside")))

    @tool(effect="pure")
    async def work(context: ToolContext) -> str:
        context.emit(Custom("began", {"run": context.run_id}))
        both.add(context.run_id)
        if len(both) == 2:
            met.set()
        await met.wait()
        context.progress(1, 1, context.run_id)
        said = await context.run(inner, f"for {context.run_id}")
        context.emit(Text(text=context.run_id, agent="guest"))
        kept = await context.memo("whose", lambda: context.run_id)
        return f"{said} {kept} {context.idempotency_key} {context.agent_path} {context.cancelled}"

    @tool(effect="pure")
    async def plain(context: str = "nothing") -> str:
        """A tool that declares no ToolContext may call a parameter as it likes."""
        return f"told {context}"

    turns = (calls(call("work"), call("plain", "c2", context="all")), says("done"))
    agent = Agent("outer", model=script(*turns), tools=[work, plain])
    await place.open(agent)
    watched, unwatched = await asyncio.gather(place.start(agent), place.start(agent))
    seen = [event async for event in watched.stream(detailed=True)]
    await unwatched.result()
    for run in (watched, unwatched):
        events = await place.events(run)
        assert {e.root_id for e in events} == {run.run_id}
        results = {e.tool_call_id: e.result for e in events if isinstance(e, ToolResult)}
        assert results == {
            "c1": f"inside {run.run_id} {run.run_id}:1:0 outer False",
            "c2": "told all",
        }
        told = [(e.agent_path, e.data) for e in events if isinstance(e, Custom)]
        assert told == [("outer", {"run": run.run_id})]
        assert [e.text for e in events if e.agent_path == "outer/guest" and isinstance(e, Text)] == [
            run.run_id
        ]
    shown = [
        e.cursor for e in seen if e.revision is not None and not isinstance(e, Text)
    ]  # texts came as drafts
    assert shown == [e.cursor for e in await place.events(watched) if not isinstance(e, Text)]
    traces = [await load_trace(place.log, run.run_id) for run in (watched, unwatched)]
    left, right = ([[each.type for each in level] for level in canonical(trace).levels] for trace in traces)
    assert left == right


async def test_what_another_runtime_shows_can_be_passed_on_as_it_comes(place: Place, script: Script) -> None:
    """Live, with drafts among it, which are left out; the texts of the other agent are none of the run's."""
    seen = asyncio.Event()

    @tool(effect="pure")
    async def look(context: ToolContext) -> str:
        context.progress(1, 2, "looking")
        await seen.wait()
        return "sky"

    turns = [
        {"text": ["let ", "me see"], "reasoning": ["hm"], **calls(call("look", "within"))},
        says("it is ", "blue"),
    ]
    inner = Agent("inner", model=script(*turns), tools=[look])

    @tool(effect="pure")
    async def delegate(context: ToolContext) -> str:
        async with Runtime.open("memory://", registry=Registry(agents=[inner])) as other:
            async for event in other.stream(inner, "what is up?", detailed=True):
                context.emit(event)
        return "blue"

    agent = Agent("outer", model=script(calls(call("delegate")), says("it is blue")), tools=[delegate])
    await place.open(agent)
    run = await place.start(agent)
    async with asyncio.timeout(120):
        async for event in run.stream():
            if event.type == "mcp_progress":
                assert (event.agent, event.agent_path, event.tool_call_id) == ("inner", "outer/inner", "c1")
                seen.set()
    assert (await run.result()).output == "it is blue"
    events = await place.events(run)
    passed = [event for event in events if event.agent == "inner"]
    kinds = ["status(starting)", "step(started)", "reasoning", "text", "text", "usage", "tool_call"]
    kinds += ["mcp_progress", "tool_result", "step(completed)", "step(started)", "text", "text", "usage"]
    assert names(passed) == [*kinds, "step(completed)", "status(completed)"]
    assert "".join(event.text for event in passed if isinstance(event, Text)) == "let me seeit is blue"
    of_a_call = {"tool_call", "mcp_progress", "tool_result"}
    for event in passed:
        assert (event.step, event.tool_call_id) == (1, "c1")
        assert event.inner_tool_call_id == ("within" if event.type in of_a_call else None)
    assert [e.inner_step for e in passed] == [None, *[1] * 9, *[2] * 5, None]
    own = [event.type for event in events if event.agent == "outer"]
    assert own[own.index("tool_call") :][:2] == ["tool_call", "tool_result"]
    trace = await load_trace(place.log, run.run_id)
    assert compare(trace, await rerun(trace)).equal


async def test_progress_of_another_tool_can_be_passed_on_and_is_left_out_where_progress_is(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def relay(context: ToolContext) -> str:
        context.emit(McpProgress(tool_name="far away", progress=1))
        context.emit(McpProgress(tool_name="farther", progress=2, agent="inner"))
        return ""

    shown: list[list[str]] = []
    agents = [
        Agent(name, model=script(calls(call("relay")), says("done")), tools=[relay], emit_mcp_progress=tells)
        for name, tells in (("tells", True), ("silent", False))
    ]
    await cheap.open(*agents)
    for agent in agents:
        run = await cheap.start(agent)
        await run.result()
        shown.append([e.tool_name for e in await cheap.events(run) if isinstance(e, McpProgress)])
        trace = await load_trace(cheap.log, run.run_id)
        assert compare(trace, await rerun(trace)).equal
    assert shown == [["far away", "farther"], ["farther"]]


async def test_an_attempt_that_is_over_can_do_nothing_more_and_says_so(cheap: Place, script: Script) -> None:
    kept: list[ToolContext] = []

    @tool(effect="pure")
    async def leak(context: ToolContext) -> str:
        kept.append(context)
        return ""

    agent = Agent("leaky", model=script(calls(call("leak")), says("done")), tools=[leak])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    (context,) = kept
    context.emit(Custom("late"))
    context.progress(1)
    assert context.dropped == 2
    for late in (
        lambda: context.memo("late", list),
        lambda: context.ask("Late?"),
        lambda: context.run(agent, ""),
    ):
        with pytest.raises(ToolFailed, match="the attempt at the call 'c1' is over"):
            await late()


@pytest.mark.parametrize("timeout_s", [None, 3600.0])
async def test_a_sync_tool_can_see_that_nobody_waits_for_it_any_more(
    place: Place, script: Script, timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()
    contexts: list[ToolContext] = []
    limits: list[PausableTimeout] = []

    class Limit(PausableTimeout):
        """Can be made to end once the tool has begun: a call that is out of time before has no thread."""

        def __init__(self, seconds: float | None, clock: Clock) -> None:
            super().__init__(seconds, clock)
            limits.append(self)

    monkeypatch.setattr("foldlog.runtime.driving.tool_call.PausableTimeout", Limit)

    @tool(effect="pure", timeout_s=timeout_s)
    def stubborn(context: ToolContext) -> str:
        contexts.append(context)
        began.set()
        while not context.cancelled:
            ended.wait(0.01)
        context.progress(1, 1, "too late")
        ended.set()
        return "nobody reads this"

    agent = Agent("helper", model=script(calls(call("stubborn")), says("done")), tools=[stubborn])
    await place.open(agent)
    run = await place.start(agent)
    assert await asyncio.to_thread(began.wait, 30)
    if timeout_s is None:
        assert await run.cancel() == "cancelled"
    else:
        limits[0].move(asyncio.get_running_loop().time())
        assert (await run.result()).output == "done"
    assert await asyncio.to_thread(ended.wait, 30)
    assert contexts[0].dropped == 1
    assert "mcp_progress" not in [event.type for event in await place.events(run)]
