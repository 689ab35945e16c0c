"""A simulation plays the same again, a process that died never goes on, and what fails is made smaller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from foldlog.eventlog.errors import ConfigError
from foldlog.replay import simulate
from foldlog.replay.simulation import (
    SCENARIOS,
    Picks,
    Played,
    Scenario,
    Schedule,
    SimulatedClock,
    Simulation,
    Stuck,
    TooLong,
    World,
    draw_schedule,
    run_simulated,
    search,
)
from foldlog.replay.simulation.cast import an_agent, calls, says
from foldlog.replay.simulation.world import Job
from foldlog.runtime import Agent, ToolContext, tool
from foldlog.runtime.executors.worker import Worker
from foldlog.runtime.tools.functions import call_function

SCRIPT: dict[str, Any] = {
    "input": "question",
    "turns": [
        {"tool_calls": [{"id": "1", "name": "pay", "arguments": {"amount": 3}}]},
        {"tool_calls": [{"id": "2", "name": "look", "arguments": {"at": "it"}}]},
        {"text": ["Final ", "answer"]},
    ],
    "inputs": [
        {"type": "message", "step": 2, "content": "hurry"},
        {"type": "pause", "step": 3},
        {"type": "answer", "call": "1.0", "arguments": {"amount": 2}},
    ],
}


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay."""
    await asyncio.sleep(0.2)
    return f"paid {amount}"


@tool(effect="pure")
def look(at: str, ctx: ToolContext) -> str:
    """Look, synchronously."""
    ctx.progress(1, 1)
    return f"saw {at}"


AGENT = Agent("payer", model="openai:any", tools=[pay, look], hitl_tools=["pay"])


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_time_passes_only_when_nothing_can_run() -> None:
    async def main() -> list[float]:
        clock = SimulatedClock()
        began = clock.monotonic()
        await asyncio.sleep(0)
        soon = clock.monotonic()
        await asyncio.gather(clock.sleep(3600.0), clock.sleep(7200.0))
        return [soon - began, clock.monotonic() - began]

    assert run_simulated(main) == [0.0, 7200.0]


def test_no_caller_waits_for_ever() -> None:
    with pytest.raises(Stuck):
        run_simulated(asyncio.Event().wait)


def test_no_deadlock_lasts() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - that is what it does
            await asyncio.sleep(0)

    with pytest.raises(TooLong):
        run_simulated(main, steps_max=1000)


def test_choices_that_were_taken_are_taken_again() -> None:
    async def main() -> str:
        order: list[str] = []

        async def say(name: str) -> None:
            for _ in range(3):
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*[say(name) for name in "abc"])
        return "".join(order)

    drawn = Picks(seed=3)
    order = run_simulated(main, picks=drawn)
    assert order != run_simulated(main) == "abcabcabc"
    assert run_simulated(main, picks=Picks(given=drawn.taken)) == order


def test_a_thread_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no threads"):
        run_simulated(lambda: asyncio.to_thread(print))


def test_a_function_that_is_not_async_runs_on_the_loop_whose_time_would_not_wait_for_a_thread() -> None:
    async def main() -> tuple[int, float]:
        return await call_function(threading.get_ident), asyncio.get_running_loop().time()

    assert run_simulated(main) == (threading.get_ident(), 0.0)


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_died_does_not_even_clean_up() -> None:
    async def main() -> list[str]:
        said: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(10.0)
                said.append("done")
            finally:
                said.append("cleaned up")

        process = World().process("w0")
        process.spawn(work())
        await asyncio.sleep(1.0)
        process.kill()
        await asyncio.sleep(100.0)
        return list(said)

    assert run_simulated(main) == []


def test_a_process_that_stood_still_does_not_know_that_time_has_passed() -> None:
    async def main() -> list[float]:
        world, seen = World(), list[float]()

        async def work() -> None:
            for _ in range(3):
                await asyncio.sleep(1.0)
                seen.append(world.clock.monotonic())

        process = world.process("w0")
        process.spawn(work())
        await asyncio.sleep(1.5)
        process.freeze(20.0)
        await asyncio.sleep(100.0)
        return seen

    assert run_simulated(main) == [1.0, 21.5, 22.5]


# --- schedules --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_schedule_that_was_played_is_written_out_and_plays_the_same_again(
    simulation: Simulation, name: str
) -> None:
    played = simulation.play(draw_schedule(name, 3), tells=True)
    again = simulation.play(played.schedule, tells=True)
    assert played.trace == again.trace
    assert played.faults == again.faults


PRINT = """
from foldlog.replay.simulation import SCENARIOS, Simulation, draw_schedule
simulation = Simulation(SCENARIOS)
for name in ("parallel", "waiting_child", "lane"):
    played = simulation.play(draw_schedule(name, 11), tells=True)
    print(*played.trace, *played.schedule.picks, sep="\\n")
"""


def test_a_seed_plays_the_same_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_all_that_can_go_wrong_goes_wrong() -> None:
    report = search(schedules=50)
    assert report.ok, report.render()
    assert set(report.faults) >= {"crash", "freeze", "lost-ack", "late-append", "stale-read", "duplicate"}
    assert ("tool_started", "crash-after") in report.coverage or ("claimed", "crash-after") in report.coverage


def test_the_search_goes_on_in_several_processes() -> None:
    report = search(scenario="pure", schedules=40, processes=2)
    assert (report.ok, report.schedules) == (True, 40)


def test_an_unknown_scenario_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"there is no scenario 'nothing'; known: .*pure"):
        search(scenario="nothing")


async def test_a_simulation_needs_a_thread_without_an_event_loop() -> None:
    with pytest.raises(ConfigError, match="its own event loop"):
        simulate(AGENT, script=SCRIPT)


def test_a_scenario_that_breaks_by_itself_is_named() -> None:
    def endless(world: World) -> list[Job]:
        return [Job(an_agent(world, "endless", says("done", fails=1, retry_after_s=1e5)), "question")]

    with pytest.raises(ConfigError, match="endless fails even without faults: P3 lost run"):
        Simulation({"endless": Scenario("endless", endless)}).draw("endless", 1)


def test_a_scenario_that_goes_round_in_circles_by_itself_is_named() -> None:
    async def circle() -> None:
        while True:  # noqa: ASYNC110 - that is what it does
            await asyncio.sleep(0)

    def endless(world: World) -> list[Job]:
        world.outside(circle())
        return [Job(an_agent(world, "endless", says("done", fails=1, retry_after_s=60.0)), "question")]

    with pytest.raises(ConfigError, match=r"endless does not end even without faults: .* steps"):
        Simulation({"endless": Scenario("endless", endless)}).draw("endless", 1)


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fenced_workers_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Worker._drive

    async def drive_and_ack(self: Worker, delivery: Any, journal: Any, cause: Any) -> Any:
        ending = await real(self, delivery, journal, cause)
        return "parked" if ending in {"fenced", None} else ending

    monkeypatch.setattr(Worker, "_drive", drive_and_ack)


def test_a_defect_is_found_and_its_schedule_made_smaller(
    simulation: Simulation, fenced_workers_acknowledge: None
) -> None:
    report = search(scenario="pure", schedules=2000)
    (failure,) = report.failures
    assert failure.shrunk is not None
    drawn, small = failure.played, failure.shrunk.played
    assert drawn.broken & small.broken
    assert size(small) < size(drawn)
    assert size(small)[0] <= 3
    assert again(simulation, small.schedule).problems == small.problems
    assert search(scenario="pure", first=failure.seed, schedules=1).failures == report.failures
    assert "P3 lost run" in report.render()
    assert "pure (" in report.render()


def size(played: Played) -> tuple[int, int, int]:
    schedule = played.schedule
    return len(played.faults), len(schedule.acts), sum(map(bool, schedule.picks or ()))


def again(simulation: Simulation, schedule: Schedule) -> Played:
    return simulation.play(schedule)


# --- somebody's own agent ---------------------------------------------------------------------------------------------


def test_an_agent_is_simulated_with_its_script_and_its_people() -> None:
    report = simulate(AGENT, script=SCRIPT, schedules=60)
    assert report.ok, report.render()
    assert report.schedules == 60


def test_a_tool_that_answers_differently_each_time_is_found() -> None:
    numbers = iter(range(10_000))

    @tool(effect="pure")
    async def draw() -> int:
        """Draw a number."""
        return next(numbers)

    turns = [{"tool_calls": [{"id": "1", "name": "draw", "arguments": {}}]}, {"text": "done"}]
    report = simulate(Agent("drawer", tools=[draw]), "question", script=turns, schedules=5, shrinks=False)
    assert [
        problem.partition(" ")[0] for failure in report.failures for problem in failure.played.problems
    ] == ["PARITY"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([{"type": "message", "step": 1, "content": "hello"}], "an input at step 1"),
        ([{"type": "answer", "call": "1.0", "decision": "timed_out"}], "times out"),
    ],
)
def test_inputs_that_cannot_be_simulated_are_refused(inputs: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(AGENT, script={**SCRIPT, "inputs": inputs})


def test_an_agent_with_tool_servers_is_refused() -> None:
    agent = Agent("server", mcp_servers={"it": {"command": "it"}})
    with pytest.raises(ConfigError, match="tool servers, which need real time"):
        simulate(agent, "question", script=[{"text": "done"}])


def test_an_agent_that_follows_a_standing_plan_is_simulated_with_the_plan_of_its_script() -> None:
    update = {"id": "1", "name": "update_plan_step", "arguments": {"step": "1", "status": "completed"}}
    turns, agent = [{"tool_calls": [update]}, {"text": "done"}], Agent("mover", standing_plan="move")
    with pytest.raises(ConfigError, match="follows the standing plan 'move'"):
        simulate(agent, "question", script=turns)
    report = simulate(agent, "question", script={"turns": turns, "plans": {"move": ["Pack."]}}, schedules=30)
    assert report.ok, report.render()


def test_a_script_without_a_question_is_refused() -> None:
    with pytest.raises(ConfigError, match="no other one is given"):
        simulate(AGENT, script=[{"text": "done"}])


def test_messages_to_an_undisturbed_run_are_delivered() -> None:
    def talk(world: World) -> list[Job]:
        return [Job(an_agent(world, "talk", calls(("poke", {"text": "hello"})), says("done")), "question")]

    played = Simulation({"talk": Scenario("talk", talk)}).play(Schedule(scenario="talk", seed=1), tells=True)
    assert played.problems == ()
    assert any("message_injected" in line.text for line in played.trace)
