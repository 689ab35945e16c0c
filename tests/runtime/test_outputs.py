"""Final outputs: of any type that pydantic knows, told to the model once if they do not fit; and rounds that repeat."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import pydantic
import pytest
from foldlog.eventlog import ConfigError, RunFailed
from foldlog.eventlog.events import Error, Status
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime import Agent, tool
from typing_extensions import TypedDict

from .conftest import Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Node(pydantic.BaseModel):
    """A model that holds itself."""

    name: str
    below: list[Node] = []


@dataclasses.dataclass
class Point:
    """A place."""

    x: int
    y: float = 0.5


class Strict(pydantic.BaseModel):
    """A model that converts nothing, and takes odd numbers only."""

    model_config = pydantic.ConfigDict(strict=True)

    when: dt.date
    odd: int = 1

    @pydantic.field_validator("odd")
    @classmethod
    def _is_odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("even")
        return value


class Named(TypedDict):
    """A table."""

    name: str


@pytest.fixture(params=["local", "durable"])
async def cheap(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), request.param, stack)
        yield place
        await place.check_rules()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "7", 7),
        (float, " 1.5\n", 1.5),
        (str, " as it is\n", " as it is\n"),
        (bool, "false", False),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, list[int]], '{"ä": []}', {"ä": []}),
        (Literal["yes", "no"], '"no"', "no"),
        (int | None, "null", None),
        (Point, '{"x": 1}', Point(1)),
        (Named, '{"name": "🐟"}', {"name": "🐟"}),
        (Node, '{"name": "a", "below": [{"name": "b"}]}', Node(name="a", below=[Node(name="b")])),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dt.date, '"2026-11-21"', dt.date(2026, 11, 21)),
        (Strict, '{"when": "2026-11-21"}', Strict(when=dt.date(2026, 11, 21))),
        (Annotated[str, pydantic.Field(pattern="^a+$")], '"aaa"', "aaa"),
    ],
    ids=str,
)
async def test_an_output_comes_back_as_its_type(
    cheap: Place, script: Script, kind: Any, text: str, value: Any
) -> None:
    agent = Agent("helper", model=script(says(text)), output_type=kind)
    await cheap.open(agent)
    run = await cheap.start(agent)
    result = await run.result()
    assert (type(result.output), result.output) == (type(value), value)
    again = Agent.from_config(agent.to_config())
    assert again.config.output_schema == agent.config.output_schema


async def test_a_run_that_is_found_by_its_id_gives_the_output_of_its_agent(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says('{"x": 7}')), output_type=Point)
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await cheap.runtime.get_run(run.run_id, agent).result()).output == Point(x=7)
    assert (await cheap.runtime.get_run(run.run_id).result()).output == '{"x": 7}'
    other = Agent("other", model=script(says("")), output_type=Point)
    with pytest.raises(ConfigError, match=f"run {run.run_id} belongs to agent 'helper', not to 'other'"):
        await cheap.runtime.get_run(run.run_id, other).result()


async def test_what_only_the_type_refuses_is_told_to_the_model(cheap: Place, script: Script) -> None:
    odd, even = (f'{{"when": "2026-11-21", "odd": {number}}}' for number in (2, 3))
    agent = Agent("helper", model=script(says(odd), says(even)), output_type=Strict)
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output.odd == 3
    (told,) = [m.content for m in await run.history() if "was refused" in m.content]
    assert "even" in told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("seven", "it is not JSON"),
        ("", "it is not JSON"),
        ('{"x": "7"}', "'7' is not of type 'integer' (at $.x)"),
        ("{}", "'x' is a required property (at $)"),
        ("[]", "[] is not of type 'object' (at $)"),
    ],
)
async def test_what_does_not_fit_is_told_to_the_model_as_often_as_it_may_retry_and_then_ends_the_run(
    cheap: Place, script: Script, wrong: str, told: str
) -> None:
    agent = Agent("helper", model=script(says(wrong), says('{"x": 7}')), output_type=Point)
    turns = script(says(wrong), says(wrong), says(wrong))
    stubborn = Agent("stubborn", model=turns, output_type=Point)
    await cheap.open(agent, stubborn)
    run = await cheap.start(agent)
    assert (await run.result()).output == Point(7)
    (message,) = [m.content for m in await run.history() if "required output schema" in m.content]
    assert message.startswith("The answer does not match the required output schema: ")
    assert told in message
    run = await cheap.start(stubborn)
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert failed.value.error_type == "output_invalid"
    assert told in str(failed.value)
    events = await cheap.events(run)
    assert names(events)[-3:] == ["step(completed)", "error", "status(error)"]
    assert [event.step for event in events[-3:]] == [3, None, None]
    assert isinstance(events[-2], Error)
    assert not events[-2].recoverable


@tool(effect="pure")
async def look(place: str, far: bool = False) -> str:
    """Look."""
    if place == "dark":
        raise LookupError("nothing to see")
    return f"{place} {far}"


def written(text: str, name: str = "c") -> dict[str, Any]:
    """A call whose arguments are this text."""
    return {"tool_calls": [{"id": name, "name": "look", "arguments": text}]}


SAME = ('{"place":"a","far":true}', '{ "far": true, "place": "a" }', '{"place":"a","far":true}')
OTHER = '{"place":"a","far":false}'


@pytest.mark.parametrize(
    ("threshold", "rounds", "steps"),
    [
        (3, SAME, 3),
        (2, SAME, 2),
        (3, (*SAME[:2], OTHER, *SAME), 6),
        (2, (SAME[0], OTHER, SAME[0], OTHER, "[]", "[]"), 6),
        (4, (*SAME, SAME[0]), 4),
    ],
)
async def test_rounds_that_repeat_end_the_run_when_the_last_of_them_has_run(
    cheap: Place, script: Script, threshold: int, rounds: tuple[str, ...], steps: int
) -> None:
    turns = [written(text, f"c{number}") for number, text in enumerate(rounds)]
    agent = Agent("helper", model=script(*turns, says("x")), tools=[look], loop_threshold=threshold)
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert (failed.value.error_type, failed.value.steps) == ("loop_detected", steps)
    events = await cheap.events(run)
    assert names(events)[-4:] == ["tool_result", "step(completed)", "error", "status(error)"]
    assert [event.step for event in events[-2:]] == [None, None]


async def test_without_a_threshold_a_run_may_repeat_itself_and_ends_by_its_steps(
    cheap: Place, script: Script
) -> None:
    turns = [written(SAME[0], f"c{number}") for number in range(5)]
    agent = Agent("helper", model=script(*turns), tools=[look], loop_threshold=0, max_steps=5)
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert (failed.value.error_type, failed.value.steps) == ("max_steps", 5)


async def test_if_every_tool_fails_the_run_goes_on(cheap: Place, script: Script) -> None:
    both = calls(call("look", "a", place="dark"), call("look", "b", place="dark", far=True))
    agent = Agent("helper", model=script(both, says("It is dark.")), tools=[look])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "It is dark."
    told = [m.content for m in await run.history() if m.role == "tool"]
    assert told == ["error: LookupError: nothing to see"] * 2
    assert isinstance((await cheap.events(run))[-1], Status)
