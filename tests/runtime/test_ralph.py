"""Ralph loops: iterations that are scored, fed back and stopped, on every executor and across takeovers."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError, RalphIteration, RalphStop, RunFailed, RunNotFound
from foldlog.runtime import Agent, Swarm, tool
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.core.loop.config import Reflection, Scored

from tests.runtime.conftest import Place, call, calls, says, when

Script = Callable[..., str]
NEVER = Stop(max_iterations=0, max_consecutive_failures=0)


def quality(scored: Scored) -> float:
    """The last word of the output as a number."""
    return float(scored.output.split()[-1])


async def brevity(scored: Scored) -> float:
    return 1.0 if len(scored.output) < 20 else 0.0


def ralph_events(events: list[Any]) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case RalphIteration():
                told.append((event.iteration, event.status, event.scores))
            case RalphStop():
                told.append((event.stop_type, event.iterations, event.final_scores))
            case _:
                pass
    return told


async def test_a_loop_feeds_scores_back_until_they_are_good_enough(place: Place, script: Script) -> None:
    writer = Agent(
        "writer",
        model=script(
            says("draft 0.25"), scenes=[when("scored", says("better 0.75")), when("draft", says("x 0"))]
        ),
    )
    loop = RalphLoop(writer, scorers={"quality": quality, "brevity": brevity}, stop=Stop(score_threshold=0.8))
    await place.open(loop)
    run = await place.start(loop, "write")
    assert (await run.result()).output == "better 0.75"
    events = await place.events(run)
    assert ralph_events(events) == [
        (1, "started", {}),
        (1, "completed", {"quality": 0.25, "brevity": 1.0}),
        (2, "started", {}),
        (2, "completed", {"quality": 0.75, "brevity": 1.0}),
        ("score_threshold", 2, {"quality": 0.75, "brevity": 1.0}),
    ]
    second = (await run.state()).nodes[1]
    child = await place.runtime.get_run(second.child_run).state()
    assert child.messages[0].content == (
        "write\n\nIteration 1 scored quality 0.25, brevity 1; do better. Its answer was:\ndraft 0.25"
    )
    own = [e.type for e in events if e.agent_path == "loop"]
    assert own[:4] == ["status", "ralph_iteration", "child_started", "child_finished"]
    assert own[-2:] == ["ralph_stop", "status"]


async def test_a_reflection_is_asked_once_and_becomes_the_feedback(place: Place, script: Script) -> None:
    asked: list[Reflection] = []

    async def reflect(reflection: Reflection) -> str:
        asked.append(reflection)
        return f"lesson {reflection.iteration}"

    writer = Agent("writer", model=script(says("one 1"), scenes=[when("lesson 1", says("two 2"))]))
    loop = RalphLoop(writer, scorers={"quality": quality}, reflect=reflect, stop=Stop(max_iterations=2))
    await place.open(loop)
    run = await place.start(loop, "write")
    assert (await run.result()).output == "two 2"
    assert asked == [Reflection(input="write", iteration=1, output="one 1", scores={"quality": 1.0})]
    assert ralph_events(await place.events(run))[-1] == ("max_iterations", 2, {"quality": 2.0})


async def test_a_failed_iteration_counts_and_the_loop_goes_on(place: Place, script: Script) -> None:
    failing = {"text": ["x"], "error": {"type": "auth"}}
    writer = Agent("writer", model=script(failing, scenes=[when("failed", says("saved 1"))]))
    loop = RalphLoop(writer, scorers={"quality": quality}, stop=Stop(max_iterations=2))
    await place.open(loop)
    run = await place.start(loop, "write")
    assert (await run.result()).output == "saved 1"
    assert ralph_events(await place.events(run)) == [
        (1, "started", {}),
        (1, "failed", {}),
        (2, "started", {}),
        (2, "completed", {"quality": 1.0}),
        ("max_iterations", 2, {"quality": 1.0}),
    ]


async def test_a_failed_iteration_has_its_error_for_output_and_the_final_scores_are_of_the_last_that_did_not(
    place: Place, script: Script
) -> None:
    told: list[Reflection] = []

    def reflect(reflection: Reflection) -> str:
        told.append(reflection)
        return f"lesson {reflection.iteration}"

    failing = {"text": ["x"], "error": {"type": "auth"}}
    model = script(says("one 1"), scenes=[when("lesson 1", failing), when("lesson 2", failing)])
    loop = RalphLoop(
        Agent("writer", model=model), {"quality": quality}, Stop(max_iterations=3), reflect=reflect
    )
    await place.open(loop)
    run = await place.start(loop, "write")
    assert (await run.result()).output == "one 1"
    (_, failed) = told
    assert "auth error" in failed.error
    assert failed == Reflection(input="write", iteration=2, output=failed.error, error=failed.error)
    assert ralph_events(await place.events(run))[-1] == ("max_iterations", 3, {"quality": 1.0})


async def test_a_loop_that_never_completes_an_iteration_fails(place: Place, script: Script) -> None:
    writer = Agent("writer", model=script({"text": ["x"], "error": {"type": "auth"}}))
    loop = RalphLoop(writer, stop=Stop(max_consecutive_failures=2))
    await place.open(loop)
    run = await place.start(loop, "write")
    with pytest.raises(RunFailed, match="no iteration completed") as failed:
        await run.result()
    assert failed.value.error_type == "ralph_failed"
    assert ralph_events(await place.events(run))[-1] == ("max_consecutive_failures", 2, {})


async def test_a_scorer_that_fails_is_a_system_error_that_names_it(place: Place, script: Script) -> None:
    writer = Agent("writer", model=script(says("no number")))
    loop = RalphLoop(writer, scorers={"quality": quality})
    await place.open(loop)
    run = await place.start(loop, "write")
    with pytest.raises(RunFailed, match="scorer quality: ValueError"):
        await run.result()
    assert ralph_events(await place.events(run))[-2:] == [(1, "failed", {}), ("system_error", 1, {})]


async def test_synchronous_functions_block_nothing_else(cheap: Place, script: Script) -> None:
    loop_is_free = threading.Event()

    def score(scored: Scored) -> float:
        return float(loop_is_free.wait(20))

    def reflect(reflection: Reflection) -> str:
        return f"more, {loop_is_free.wait(20)}"

    def enough(output: str) -> bool:
        return loop_is_free.wait(20)

    writer = Agent("writer", model=script(says("text")))
    loop = RalphLoop(writer, scorers={"free": score}, reflect=reflect, stop=Stop(max_iterations=2))
    swarm = Swarm([loop], "loop*until enough", predicates={"enough": enough})
    await cheap.open(swarm)
    run = await cheap.start(swarm, "write")
    async for event in run.stream(detailed=True):
        if event.type == "child_finished":
            loop_is_free.set()  # as the event loop does, which a function would block that waits in it
    assert [event.final_scores for event in await cheap.events(run) if isinstance(event, RalphStop)] == [
        {"free": 1.0}
    ]


@pytest.mark.parametrize("value", [math.nan, -math.inf, 10**400, "0.5", None])
async def test_what_is_not_a_finite_number_is_not_a_score(cheap: Place, script: Script, value: Any) -> None:
    loop = RalphLoop(Agent("writer", model=script(says("text"))), scorers={"quality": lambda _: value})
    await cheap.open(loop)
    run = await cheap.start(loop, "write")
    with pytest.raises(RunFailed, match=r"scorer 'quality' of loop 'loop' returned .+, not a finite number"):
        await run.result()


async def test_a_score_may_be_any_real_number_or_a_truth_value(cheap: Place, script: Script) -> None:
    scorers = {"yes": lambda _: True, "large": lambda _: 2**70, "exact": lambda _: Decimal("0.5")}
    loop = RalphLoop(Agent("writer", model=script(says("text"))), scorers, Stop(max_iterations=1))
    await cheap.open(loop)
    run = await cheap.start(loop, "write")
    await run.result()
    assert ralph_events(await cheap.events(run))[-1] == (
        "max_iterations",
        1,
        {"yes": 1.0, "large": 2.0**70, "exact": 0.5},
    )


async def test_an_iteration_that_a_person_cancels_ends_the_loop(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    model = script(says("one"), scenes=[when("do better", calls(call("wait")))])
    loop = RalphLoop(Agent("writer", model=model, tools=[wait]))
    await place.open(loop)
    run = await place.start(loop, "write")
    await entered.wait()
    second = (await run.state()).nodes[1]
    assert await place.runtime.get_run(second.child_run).cancel() == "cancelled"
    assert (await run.result()).output == "one"
    assert ralph_events(await place.events(run))[-1] == ("user_interrupted", 2, {})


async def test_a_takeover_repeats_no_finished_iteration_and_no_stored_score(
    place: Place, script: Script
) -> None:
    entered, ran, scored = asyncio.Event(), list[str](), list[int]()

    @tool(effect="pure")
    async def wait(stage: str) -> str:
        ran.append(stage)
        entered.set()
        if ran.count("second") == 1 and stage == "second":
            await asyncio.Event().wait()
        return "waited"

    def count(score: Scored) -> float:
        scored.append(score.iteration)
        return 0.5

    model = script(
        calls(call("wait", stage="first")),
        says("one"),
        scenes=[when("do better", calls(call("wait", stage="second")), says("two"))],
    )
    loop = RalphLoop(
        Agent("writer", model=model, tools=[wait]), scorers={"count": count}, stop=Stop(max_iterations=2)
    )
    await place.open(loop)
    run = await place.start(loop, "write")
    while "second" not in ran:
        entered.clear()
        await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "two"
    assert (ran, scored) == (["first", "second", "second"], [1, 2])


async def test_a_loop_in_a_loop_shows_all_levels(place: Place, script: Script) -> None:
    writer = Agent("writer", model=script(says("text")))
    inner = RalphLoop(writer, name="inner", stop=Stop(max_iterations=2))
    outer = RalphLoop(inner, name="outer", stop=Stop(max_iterations=2))
    await place.open(outer)
    run = await place.start(outer, "write")
    assert (await run.result()).output == "text"
    paths = [e.agent_path for e in await place.events(run) if isinstance(e, RalphStop)]
    assert paths == ["outer/inner", "outer/inner", "outer"]


def test_a_configuration_comes_back_as_it_was() -> None:
    loop = RalphLoop(
        Agent("writer", model="scripted:x"),
        name="polish",
        scorers=[quality],
        reflect=lambda _: "again",
        stop=Stop(completion="DONE", timeout_s=60.0, score_threshold=0.9),
    )
    again = RalphLoop.from_config(loop.to_config())
    assert again.to_config() == loop.to_config()
    assert again.digest == loop.digest


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: RalphLoop(Agent("a"), stop={"max_iteration": 3}),
            "'loop': stop: .*'max_iteration'.*'max_iterations'",
        ),
        (lambda: RalphLoop(Agent("a"), stop=3), "'loop': stop: must be a table, not 3"),  # type: ignore[arg-type]
        (lambda: Stop(max_iterations=-3), "stop: max_iterations: .*not -3"),
        (lambda: Stop(completion="\ud800"), "stop: completion: .*not valid Unicode"),
        (lambda: RalphLoop(Agent("a"), scorers={"quality": 3}), "scorers.quality: 3 is not a function"),  # type: ignore[dict-item]
        (lambda: RalphLoop(Agent("a"), scorers=3), "scorers: must be functions, by name or in a list"),  # type: ignore[arg-type]
        (lambda: RalphLoop(Agent("a"), [lambda _: 1.0]), "scorers.0: .*lambda.* has no name of its own"),
        (lambda: RalphLoop(Agent("a"), [quality, quality]), "scorers.1: another one is named 'quality'"),
        (lambda: RalphLoop(Agent("a"), [3]), "scorers.0: 3 has no name of its own"),  # type: ignore[list-item]
        (lambda: RalphLoop(Agent("a"), reflect="more"), "reflect: 'more' is not a function"),  # type: ignore[arg-type]
        (lambda: RalphLoop.from_config({"name": "a"}), "'runnable' is required"),
        (lambda: RalphLoop(Agent("a"), name="a b"), "name"),
        (lambda: RalphLoop(Agent("a"), stop=Stop(score_threshold=0.5)), "there are no scorers"),
        (lambda: RalphLoop(Agent("a"), stop=NEVER), "every condition is off, so the loop never ends"),
        (lambda: RalphLoop(Agent("a"), scorers={"reflect": quality}), "'reflect' is the name"),
        (lambda: RalphLoop("a"), "not an agent, swarm, loop or workflow"),  # type: ignore[arg-type] # what it is about
    ],
)
def test_a_wrong_loop_is_refused_by_the_key(make: Callable[[], RalphLoop], why: str) -> None:
    with pytest.raises(AgentConfigError, match=why):
        make()


async def test_a_ceiling_of_cost_without_prices_is_refused_before_the_first_event(
    place: Place, script: Script
) -> None:
    writer = Agent("writer", model=script(says("x")))
    loop = RalphLoop(Swarm([writer], "writer"), stop=Stop(max_cost_usd="0.5"))
    await place.open(loop)
    with pytest.raises(AgentConfigError, match=r"stop\.max_cost_usd needs the price of 'scripted:.*'writer'"):
        await place.start(loop, run_id="costly")
    with pytest.raises(RunNotFound):
        await place.runtime.get_run("costly").state()
