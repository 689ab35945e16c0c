"""The output of a watched run: pauses, retries and takeovers."""

import json
from pathlib import Path

import pytest
from foldlog.adapters.cli.exits import PAUSED, TIMED_OUT
from foldlog.adapters.cli.loops import Interruption
from foldlog.adapters.cli.output.terminal import Screen
from foldlog.adapters.cli.output.views import ReadableView
from foldlog.adapters.cli.output.watching import Watch, Watcher
from foldlog.adapters.cli.settings import Settings
from foldlog.eventlog.events import (
    ENGINE,
    Claimed,
    Event,
    LeftToOthers,
    MemoryHydrated,
    ModelFailed,
    OutputRejected,
    Parked,
    Released,
    Status,
    Submitted,
    SummaryMade,
    Text,
    TokenUsage,
    ToolAttemptFailed,
    ToolCall,
    Usage,
    WaitEnded,
    WaitStarted,
)
from foldlog.projections.run_state import RunState
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@tool(effect="pure")
def dig(metres: int) -> str:
    """Dig."""
    return f"{metres} m"


async def question(run: RunHandle[None], number: int) -> str:
    """The id of the run's n-th approval, once the run is paused for it."""
    async for event in run.stream():
        if event.type == "status" and event.status == "paused":
            approvals = [each.request.approval_id for each in (await run.state()).pending_approvals]
            if len((await run.state()).approvals) == number:
                return approvals[0]
    raise AssertionError("the run is over")


@pytest.mark.anyio
async def test_a_pause_that_is_over_is_not_taken_for_the_one_that_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [{"tool_calls": [{"id": f"c{n}", "name": "dig", "arguments": {"metres": n}}]} for n in (1, 2)]
    (tmp_path / "digger.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("digger", model=f"scripted:{tmp_path / 'digger.json'}", tools=[dig], hitl_tools=["dig"])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Dig")
        await run.resolve(await question(run, 1), "approved")
        second = await question(run, 2)
        settings = Settings(color=False)
        watcher = Watcher(runtime, run, Screen(settings), settings, Watch(wait=False))
        assert await watcher.watch(Interruption()) == PAUSED
    assert f"approvals approve {second}" in capsys.readouterr().err


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "told", "way_back"),
    [
        (Settings(), """--arguments '{"raise": 3}'""", "come back with: foldlog runs stream"),
        (Settings(server="memory://"), "it cannot be answered", "is lost"),
    ],
)
async def test_a_watched_run_without_budget_says_how_to_continue_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Settings, told: str, way_back: str
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 0}
    turn = {"tool_calls": [{"id": "c", "name": "dig", "arguments": {"metres": 1}}], "usage": usage}
    (tmp_path / "spender.json").write_text(json.dumps({"turns": [turn]}))
    agent = Agent(
        "spender", model=f"scripted:{tmp_path / 'spender.json'}", tools=[dig], budgets={"max_tokens": 2}
    )
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Dig")
        watcher = Watcher(runtime, run, Screen(settings), settings, Watch(wait=False))
        assert await watcher.watch(Interruption()) == PAUSED
    lines = capsys.readouterr().err
    assert told in lines
    assert lines.splitlines()[-1].startswith(way_back) or lines.splitlines()[-1].endswith(way_back)
    assert "runs resume" not in lines


def told(capsys: pytest.CaptureFixture[str], *events: Event, detailed: bool = False) -> list[str]:
    """Return the lines that a watcher of these events sees, after the line that names the run."""
    settings = Settings(color=False)
    view = ReadableView(Screen(settings), settings, detailed=detailed)
    view.begin(RunState())
    for event in events:
        view.show(event)
    return capsys.readouterr().err.splitlines()[1:]


HARD = (
    Claimed(worker="w1", epoch=1, lease_s=1),
    ModelFailed(at=10.0, attempt=1, error_type="transient", error="cut\noff", retry_at=12.5),
    ModelFailed(at=13.0, attempt=2, error_type="rate_limit", error="429", next_model="spare"),
    Claimed(worker="w2", epoch=2, lease_s=1),
    ToolCall(tool_call_id="c", tool_name="dig", arguments={}),
    ToolAttemptFailed(at=1.0, tool_call_id="c", attempt=1, error="no shovel", retry_at=2.0),
    OutputRejected(message="no number"),
    Parked(reason="timer", due_at=0.0),
    Claimed(worker="w1", epoch=3, lease_s=1),
    Released(reason="drain"),
    Claimed(worker="w3", epoch=4, lease_s=1),
    LeftToOthers(worker="w4", reason="it lacks the tool dig"),
    Parked(reason="child"),
)
WHY = [
    "↻ model attempt 1 failed: transient: cut off; retry in 2.5 s",
    "↻ model attempt 2 failed: rate_limit: 429; falling back to spare",
    "taken over by w2 from w1 (epoch 2)",
    "→ dig {}",
    "↻ dig attempt 1 failed: no shovel; retry in 1.0 s",
    "↻ the answer was rejected, and is requested again: no number",
    "waits until ",
    "released by w1 (drain); waits for a worker",
    "waits for a worker other than w4: it lacks the tool dig",
]


def test_retries_takeovers_and_waits_are_told_with_their_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *HARD)
    assert len(lines) == len(WHY)
    assert all(line.startswith(why) for line, why in zip(lines, WHY, strict=True))
    lines = told(capsys, *HARD, detailed=True)
    assert [line for line in lines if line in WHY] == [why for why in WHY if not why.endswith(" ")]
    assert "driven by w1 (epoch 3)" in lines
    assert "waits: child" in lines


def test_a_wait_is_told_with_its_name_and_what_it_came_to(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(
        capsys,
        WaitStarted(tool_call_id="c", wait_id="signal-paid-0", kind="signal", name="paid", until=0.0),
        WaitEnded(
            tool_call_id="c", wait_id="signal-paid-0", outcome="received", data={"eur": 3}, by="bank\x1b[2J"
        ),
        WaitStarted(tool_call_id="c", wait_id="sleep-1", kind="sleep", name="", until=0.0),
        WaitEnded(tool_call_id="c", wait_id="sleep-1", outcome="timed_out"),
    )
    assert lines[0].startswith("waits for signal paid until ")
    assert lines[1].startswith("received by bank")
    assert lines[1].endswith('signal-paid-0  {"eur":3}')
    assert "\x1b" not in lines[1]
    assert lines[2].startswith("waits for a time until ")
    assert lines[3] == "timed out  sleep-1"


def test_summaries_and_memory_are_rows_to_read_and_other_bookkeeping_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = SummaryMade(text="they met", usage=TokenUsage(input_tokens=9, total_tokens=9), model="m")
    remembered = MemoryHydrated(scope="session", backend="log", messages=[{}, {}])
    submitted = Submitted(
        kind="agent", config={}, config_digest="", input="x", input_digest="", executor="local"
    )
    assert told(capsys, submitted, made, remembered) == []
    assert told(capsys, submitted, made, remembered, detailed=True) == [
        "summary  m: 9 tokens (9 in, 0 out): they met",
        "memory  2 messages of earlier runs (session)",
    ]
    assert {type(event) for event in (submitted, made, remembered)} < set(ENGINE)


@pytest.mark.anyio
async def test_a_watcher_sees_why_a_model_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = {"text": "fine", "error": {"type": "transient", "times": 1}}
    (tmp_path / "shaky.json").write_text(json.dumps({"turns": [turn]}))
    agent = Agent("shaky", model=f"scripted:{tmp_path / 'shaky.json'}", retry={"base_s": 0.0})
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        for json_ in (False, True):
            run = await runtime.start(agent, "Go", run_id="shaky")
            watcher = Watcher(runtime, run, Screen(Settings(color=False)), Settings(), Watch(json=json_))
            assert await watcher.watch(Interruption()) == 0
            found = capsys.readouterr()
            assert ("↻ model attempt 1 failed: transient: " in found.err) is not json_
            assert "model_failed" not in found.out  # the contract with programs is as it was


@pytest.mark.anyio
async def test_a_run_that_stands_in_line_says_for_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = {"tool_calls": [{"id": "c", "name": "dig", "arguments": {"metres": 1}}]}
    (tmp_path / "one.json").write_text(json.dumps({"turns": [turn]}))
    agent = Agent("one", model=f"scripted:{tmp_path / 'one.json'}", tools=[dig], hitl_tools=["dig"])
    monkeypatch.setattr("foldlog.adapters.cli.output.watching.SILENCE_S", 0.0)
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        first = await runtime.start(agent, "Dig", session="s")
        await question(first, 1)
        second = await runtime.start(agent, "Dig", session="s")
        settings = Settings(color=False)
        watcher = Watcher(runtime, second, Screen(settings), settings, Watch(timeout_s=0.5))
        assert await watcher.watch(Interruption()) == TIMED_OUT
    assert f"waiting for run {first.run_id} of its session" in capsys.readouterr().err


@pytest.mark.anyio
@pytest.mark.parametrize("quiet", [False, True])
async def test_an_answer_that_goes_on_where_it_was_cut_is_one_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    turns = [{"text": ["It is fort"], "finish_reason": "length"}, {"text": ["y-two."]}]
    (tmp_path / "cut.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("helper", model=f"scripted:{tmp_path / 'cut.json'}", on_length="continue")
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "Go")
        settings = Settings(color=False, quiet=quiet)
        watcher = Watcher(runtime, run, Screen(settings), settings, Watch())
        assert await watcher.watch(Interruption()) == 0
    assert capsys.readouterr().out == "It is forty-two.\n"


def test_an_answer_that_was_cut_and_does_not_go_on_keeps_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    cut = (
        Text(step=1, text="It is fort"),
        Usage(step=1, usage=TokenUsage(), model="m", finish_reason="length"),
    )
    settings = Settings(color=False)
    view = ReadableView(Screen(settings), settings, detailed=False)
    view.begin(RunState())
    for event in (
        *cut,
        Text(step=2, text="Hello."),
        Usage(step=2, usage=TokenUsage(), model="m"),
        Status(status="completed"),
    ):
        view.show(event)
    view.end(RunState())
    assert capsys.readouterr().out == "It is fort\nHello.\n"
