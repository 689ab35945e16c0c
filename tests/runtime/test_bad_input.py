"""Bad input of callers and code to waits, signals, callbacks, workflows and schedules: one clear error.

Nothing hangs, nothing is stored that cannot be read, and the same is refused in a tool and in a workflow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from foldlog.eventlog import (
    ConfigError,
    FoldlogError,
    MemoryLog,
    RunFailed,
    RunFinished,
    RunNotFound,
    SignalError,
)
from foldlog.runtime import (
    Agent,
    Registry,
    RunHandle,
    Runtime,
    Schedule,
    ToolContext,
    WorkflowRun,
    tool,
    workflow,
)

from tests.runtime.conftest import call, calls, says
from tests.runtime.test_approvals import parked

NAN, INF = float("nan"), float("inf")
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - refused
LAST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
TOO_LARGE = "x" * 1_000_000


class Odd:
    """Nothing that JSON has."""


NOT_STORABLE: dict[str, tuple[Any, str]] = {
    "an object": (Odd(), "a Odd"),
    "no number": ({"a": [NAN]}, "the number nan at a[0]"),
    "a cycle": (CYCLE, "it contains itself, or is nested too deeply"),
    "half a character": ("\ud800", "text that is not valid Unicode"),
    "a large integer": (10**400, "an integer of more than 64 bits"),
}
LENGTH = "a wait takes a number of seconds that is not negative and at most a century"
A_ZONE = "a wait ends at a datetime with a time zone"
A_NAME = "is named by letters, digits, '.', '_' and '-'"
Wait = Callable[[Any], Any]
WAITS: dict[str, tuple[Wait, str]] = {
    **{
        f"a sleep of {number!r:.12} s": (lambda run, n=number: run.sleep(n), LENGTH)
        for number in (-1, NAN, INF, 1e300, 10**400, "1", None, True)
    },
    "a sleep of ever so many days": (lambda run: run.sleep(days=1e12), LENGTH),
    "a sleep until a time without zone": (lambda run: run.sleep(until=NAIVE), A_ZONE),
    "a sleep until a text": (lambda run: run.sleep(until="2030-01-01"), A_ZONE),
    "a sleep until a number": (lambda run: run.sleep(until=1e9), A_ZONE),
    "a sleep until the end of time": (lambda run: run.sleep(until=LAST), "at most a century"),
    "a sleep with two ends": (lambda run: run.sleep(5, until=datetime.now(UTC)), "not both"),
    **{
        f"a signal named {name!r:.12}": (lambda run, n=name: run.wait_for(n), A_NAME)
        for name in ("", "a b", "a\n", "a\0", "\ud800", "a" * 129, TOO_LARGE, None, 7, ["a"])
    },
    **{
        f"a timeout of {number!r:.12} s": (lambda run, n=number: run.wait_for("a", timeout_s=n), LENGTH)
        for number in (-1, NAN, 1e300, "3")
    },
    "a schema that is a text": (lambda run: run.wait_for("a", schema="x"), "must be a JSON Schema, not 'x'"),
    "a schema that is none": (lambda run: run.wait_for("a", schema={"type": "x"}), "not a valid JSON Schema"),
    "a schema with an object": (lambda run: run.wait_for("a", schema={"const": Odd()}), "a Odd at const"),
    "a schema of a megabyte": (
        lambda run: run.wait_for("a", schema={"description": TOO_LARGE}),
        "at most 262,144 bytes",
    ),
    "a question that is not text": (lambda run: run.ask(7), "a question must be text, not 7"),
    "a form that is a list": (lambda run: run.ask("x", {"type": "array"}), "a JSON Schema of an object"),
    "a memo without a function": (lambda run: run.memo("a", 3), "memo 'a' takes a function"),
    **{
        f"a memo of {what}": (lambda run, v=value: run.memo("a", lambda: v), told)
        for what, (value, told) in NOT_STORABLE.items()
    },
}
ONLY_CODE: dict[str, tuple[Wait, str]] = {
    **{
        f"a callback named {name!r:.12}": (lambda run, n=name: run.callback(n, print), A_NAME)
        for name in ("a b", None, 7, "\ud800", TOO_LARGE)
    },
    "a callback that tells nobody": (lambda run: run.callback("a", None), "takes a function that tells"),
    "a callback of nan seconds": (lambda run: run.callback("a", print, timeout_s=NAN), LENGTH),
    **{
        f"a {what} named {name!r:.12}": (lambda run, d=do, n=name: d(run, n), "the name of a")
        for what, do in {
            "memo": lambda run, name: run.memo(name, lambda: 1),
            "question": lambda run, name: run.ask("x", name=name),
            "change": lambda run, name: run.changed(name),
        }.items()
        for name in ("a/b", "\ud800", "a\n", TOO_LARGE, None, 7, ["a"])
    },
    "a step without a name": (lambda run: run.step(None), "a step is named by"),
    "no tool": (lambda run: run.call(None), "None is not a tool"),
    "no agent": (lambda run: run.agent(None, "x"), "only agents, swarms, loops and workflows"),
    "no branch": (lambda run: run.first(), "at least one branch"),
    "a branch that is none": (lambda run: run.gather(3), "gather takes functions of a run"),
    **{
        f"a call with {what}": (lambda run, v=value: run.call(echo, value=v), f"as JSON: {told}")
        for what, (value, told) in NOT_STORABLE.items()
        if what != "no number"
    },
}
ONLY_TOOLS: dict[str, tuple[Wait, str]] = {
    "a callback without a name": (lambda context: context.callback(None), A_NAME),
    "a callback with an odd name": (lambda context: context.callback("a b"), A_NAME),
    "a callback of nan seconds": (lambda context: context.callback("a", timeout_s=NAN), LENGTH),
}


@tool(effect="pure")
async def echo(value: Any) -> Any:
    """Return it."""
    return value


def rows(table: dict[str, Any]) -> Any:
    return pytest.mark.parametrize(("wait", "told"), table.values(), ids=table)


@rows(WAITS | ONLY_CODE)
async def test_a_workflow_that_asks_for_what_is_none_fails_and_says_why(wait: Wait, told: str) -> None:
    @workflow(name="clumsy", tools=[echo])
    async def clumsy(run: WorkflowRun, text: str) -> Any:
        return await wait(run)

    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[clumsy])) as runtime:
        run = await runtime.start(clumsy, "x")
        with pytest.raises(RunFailed) as failed:
            await run.result()
    assert told in str(failed.value)
    assert "workflow_failed" in str(failed.value)


@rows(WAITS | ONLY_TOOLS)
async def test_a_tool_that_asks_for_what_is_none_fails_and_says_why(
    script: Callable[..., str], wait: Wait, told: str
) -> None:
    @tool(effect="pure")
    async def clumsy(context: ToolContext) -> Any:
        """Wait badly."""
        return await wait(context)

    agent = Agent("chaser", model=script(calls(call("clumsy")), says("done")), tools=[clumsy])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        assert told in (await run.history())[2].content


# --- callers ----------------------------------------------------------------------------------------------------------


@workflow(name="waits")
async def waits(run: WorkflowRun, text: str) -> Any:
    """Wait for a signal."""
    signal = await run.wait_for("go")
    return signal and signal.data


@workflow(name="ends")
async def ends(run: WorkflowRun, text: str) -> str:
    """End at once."""
    return text


SENT: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"the name {name!r:.12}": ({"name": name}, A_NAME)
        for name in (None, 7, "", "a b", "a\0", "\ud800", TOO_LARGE)
    },
    **{
        f"data: {what}": ({"data": value}, f"the data of signal 'go' cannot be stored as JSON: {told}")
        for what, (value, told) in NOT_STORABLE.items()
    },
    "data of a megabyte": ({"data": TOO_LARGE}, "has 1,000,002 bytes, more than 262,144"),
    **{
        f"{what} {text!r:.12}": ({what: text}, told)
        for what in ("key", "by")
        for text, told in ((7, "must be text"), (None, "must be text"), ("\ud800", "must be text"))
    },
    "a key of a megabyte": ({"key": TOO_LARGE}, "the key of a signal has 1,000,000 bytes"),
    "a sender of a megabyte": ({"by": TOO_LARGE}, "at most 1,024"),
}
TOKENS = (None, 7, "", "a b", "\ud800", TOO_LARGE, "foldlog-callback.", "foldlog-callback.a.b.c")


@pytest.fixture
async def waiting_run() -> AsyncIterator[RunHandle[Any]]:
    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[waits, ends])) as runtime:
        run = await runtime.start(waits, "x")
        await parked(run)
        yield run


@pytest.mark.parametrize(("given", "told"), SENT.values(), ids=SENT)
async def test_a_signal_that_is_none_is_refused_and_the_run_waits_on(
    waiting_run: RunHandle[Any], given: dict[str, Any], told: str
) -> None:
    sent = {"name": "go"} | given
    with pytest.raises(SignalError) as refused:
        await waiting_run.signal(sent.pop("name"), **sent)
    assert told in str(refused.value)
    await waiting_run.signal("go", "at last")
    assert (await waiting_run.result()).output == "at last"


async def test_a_signal_to_a_run_that_is_not_there_or_over_says_so(waiting_run: RunHandle[Any]) -> None:
    runtime = waiting_run._runtime
    over = await runtime.start(ends, "x")
    await over.result()
    with pytest.raises(RunFinished, match="start a new one"):
        await over.signal("go")
    for unknown, error in (
        ("nobody", RunNotFound),
        ("00-06h1ko5r2i1vic45a0dil5lib8", RunNotFound),
        ("a b/c", ConfigError),
        (None, ConfigError),
    ):
        with pytest.raises(error, match="run"):
            await runtime.get_run(unknown).signal("go")  # type: ignore[arg-type] # that is what is tried
    for token in TOKENS:
        with pytest.raises(SignalError, match="token of a callback"):
            await runtime.answer_callback(token, 1)  # type: ignore[arg-type] # as above


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (NAIVE, "an aware datetime"),
        ("2030-01-01", "an aware datetime"),
        (NAN, "an aware datetime"),
        (LAST, "within a century"),
        (datetime(2300, 1, 1, tzinfo=UTC), "within a century"),
    ],
    ids=["no zone", "a text", "a number", "the end of time", "another age"],
)
async def test_a_start_at_a_time_that_is_none_is_refused(
    waiting_run: RunHandle[Any], at: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        await waiting_run._runtime.start(ends, "x", at=at)


SCHEDULES: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"the name {name!r:.12}": ({"name": name}, "must be 1 to 64 letters")
        for name in (None, 7, "", "a/b", "a\n", "\ud800", TOO_LARGE)
    },
    "no agent": ({"agent": None}, "its agent must be one"),
    **{
        f"every {every!r:.12}": ({"every": every}, told)
        for every, told in (
            ("-1h", "every is written"),
            ("\N{ARABIC-INDIC DIGIT ONE}h", "every is written"),
            (3600, "Expected `str | null`"),
            ("36600d", "at most a century"),
            ("999999999d", "at most a century"),
        )
    },
    **{
        f"the zone {tz!r:.12}": ({"cron": "@daily", "every": None, "tz": tz}, told)
        for tz, told in (
            ("", "is not a time zone"),
            ("../../etc/passwd", "is not a time zone"),
            (7, "Expected `str | null`"),
            ("\ud800", "text that is not valid Unicode"),
        )
    },
    "a cron with a zero byte": ({"cron": "0 7 * * *\0", "every": None, "tz": "UTC"}, "bad day-of-week"),
    **{
        f"{what} {number!r}": ({what: number}, f"{what} must be a number from 0 to")
        for what in ("catchup_s", "jitter_s")
        for number in (-1, NAN, INF, 1e18, "1", None, True)
    },
    **{
        f"input: {what}": ({"input": {"a": value}}, "schedule 's': ")
        for what, (value, _) in NOT_STORABLE.items()
    },
    "an input of a megabyte": ({"input": TOO_LARGE}, "at most 65536 bytes"),
    "an input that is a number": ({"input": 7}, "Expected `str | object`"),
    "metadata with a number as key": ({"metadata": {1: 2}}, "only JSON values"),
    "a user that is none": ({"user": 7}, "Expected `str | null`"),
}


@pytest.mark.parametrize(("given", "told"), SCHEDULES.values(), ids=SCHEDULES)
async def test_a_schedule_that_is_none_is_refused(given: dict[str, Any], told: str) -> None:
    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[ends])) as runtime:
        fields: dict[str, Any] = {"name": "s", "agent": "ends", "input": "x", "every": "1h"}
        with pytest.raises(ConfigError) as refused:
            await runtime.schedules.apply(Schedule(**(fields | given)))
        assert told in str(refused.value)
        assert len(str(refused.value)) < 500
        assert await runtime.schedules.list() == []


async def test_commands_to_schedules_with_what_is_none_are_refused() -> None:
    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[ends])) as runtime:
        schedules: Any = runtime.schedules
        await schedules.apply(Schedule("s", "ends", every="1h"))
        for given in (None, {"name": "s"}, "s"):
            with pytest.raises(ConfigError, match="a schedule is a Schedule"):
                await schedules.apply(given)
        for name in (None, 7, "", "a b", "\ud800", TOO_LARGE):
            for command in (
                schedules.get,
                schedules.pause,
                schedules.resume,
                schedules.trigger,
                schedules.delete,
            ):
                with pytest.raises(ConfigError, match="must be 1 to 64"):
                    await command(name)
        for start, end in ((None, None), (NAIVE, NAIVE), (datetime.now(UTC), LAST), ("a", "b")):
            with pytest.raises(ConfigError, match="backfill"):
                await schedules.backfill("s", start, end)
        for by in (7, None, "\ud800", TOO_LARGE):
            with pytest.raises(FoldlogError):
                await schedules.pause("s", by=by)
        assert not (await schedules.get("s")).paused
