"""Outputs that the agent's own functions look at before the run ends with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError, Evaluated, NotRegistered, OutputRejected, RunFailed
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, OutputRefused, Registry, RunContext, Runtime

from tests.runtime.conftest import Place, says

Script = Callable[..., str]


async def verdicts(place: Place, run: Any) -> list[tuple[str, Any]]:
    trace = await load_trace(place.log, run.run_id)
    return [(event.name, event.value) for event in trace.events if isinstance(event, Evaluated)]


async def test_a_validator_may_refuse_an_output_which_the_model_then_mends(
    place: Place, script: Script
) -> None:
    seen, entered = list[Any](), asyncio.Event()
    agent = Agent("counter", model=script(says("[1, 2]"), says("[1]"), says("[3]")), output_type=list[int])

    @agent.output_validator
    def short(output: list[int]) -> None:
        seen.append(output)
        if len(output) > 1:
            raise OutputRefused("Give one number.")

    @agent.output_validator
    async def of_user(run: RunContext, output: list[int]) -> None:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        if run.user == "ada" and output[0] < 3:
            raise OutputRefused("Ada wants more than two.")

    await place.open(agent)
    run = await place.start(agent, user="ada")
    await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == [3]
    assert seen == [[1, 2], [1], [3]]  # the verdict on [1] was stored before the hand-over
    assert await verdicts(place, run) == [
        ("short", "Give one number."),
        ("short", None),
        ("of_user", "Ada wants more than two."),
        ("short", None),
        ("of_user", None),
    ]
    told = [message.content for message in await run.history() if "refused" in message.content]
    assert told == [
        "The answer was refused: Give one number.",
        "The answer was refused: Ada wants more than two.",
    ]
    trace = await load_trace(place.log, run.run_id)
    again = await rerun(trace)
    assert [e.value for e in again.events if isinstance(e, Evaluated)] == [
        v for _, v in await verdicts(place, run)
    ]
    assert len(seen) == 3


async def test_a_verdict_is_on_one_answer_and_not_on_the_next(cheap: Place, script: Script) -> None:
    agent = Agent("poet", model=script(says("a"), says("b")), output_retries=1)

    @agent.output_validator
    def not_a(output: str) -> None:
        if output == "a":
            raise OutputRefused("not a")

    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "b"


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_run_whose_outputs_are_refused_too_often_fails(
    cheap: Place, script: Script, retries: int
) -> None:
    agent = Agent("poet", model=script(says("a"), says("b"), says("c")), output_retries=retries)

    @agent.output_validator
    def never(output: str) -> None:
        raise OutputRefused(f"not {output}")

    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed, match="not b" if retries else "not a") as failed:
        await run.result()
    assert failed.value.error_type == "output_invalid"
    trace = await load_trace(cheap.log, run.run_id)
    assert sum(isinstance(event, OutputRejected) for event in trace.events) == retries


async def test_a_validator_that_breaks_ends_the_run_and_is_named(cheap: Place, script: Script) -> None:
    agent = Agent("poet", model=script(says("a")))

    @agent.output_validator
    def broken(output: str) -> None:
        raise KeyError(output)

    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed, match="the output validator 'broken' failed: KeyError: 'a'") as failed:
        await run.result()
    assert failed.value.error_type == "output_validator_failed"


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raising(error: BaseException) -> Callable[[str], None]:
    def odd(output: str) -> None:
        raise error

    return odd


async def not_yet(output: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (raising(Speechless()), "failed: Speechless"),
        (raising(SystemExit(3)), "failed: SystemExit: 3"),
        (raising(RecursionError("too deep")), "failed: RecursionError: too deep"),
        (raising(asyncio.CancelledError("gone")), "failed: CancelledError: gone"),
        (raising(TimeoutError()), "failed: TimeoutError$"),
        (not_yet, "failed: TypeError: it returns False, which changes nothing: it raises OutputRefused"),
        (lambda output: output.upper(), "failed: TypeError: it returns 'A'"),
    ],
    ids=["speechless", "exit", "deep", "cancelled", "late", "false", "changed"],
)
async def test_what_a_validator_does_oddly_ends_the_run_with_what_it_was(
    cheap: Place, script: Script, odd: Any, told: str
) -> None:
    agent = Agent("poet", model=script(says("a")))
    odd.__name__ = "odd"
    agent.output_validator(odd)
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed, match=told) as failed:
        await run.result()
    assert failed.value.error_type == "output_validator_failed"


async def test_a_validator_may_return_the_output_as_it_is(cheap: Place, script: Script) -> None:
    agent = Agent("counter", model=script(says("[1, 2]")), output_type=list[int])

    @agent.output_validator
    async def same(output: list[int]) -> list[int]:
        return list(output)

    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == [1, 2]


async def test_an_answer_in_an_object_of_its_own_is_taken_out_of_it(cheap: Place, script: Script) -> None:
    agent = Agent("counter", model=script(says('{"response": [1, 2]}')), output_type=list[int] | int)
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == [1, 2]
    assert (await run.state()).output == "[1,2]"


@pytest.mark.parametrize(
    "answer", ["```json\n[1, 2]\n```", " ```\n[1, 2]```\n", '```json\n{"response": [1, 2]}\n```']
)
async def test_an_answer_in_a_block_of_markdown_is_taken_out_of_it(
    cheap: Place, script: Script, answer: str
) -> None:
    agent = Agent("counter", model=script(says(answer)), output_type=list[int])
    await cheap.open(agent)
    run = await cheap.start(agent)
    result = await run.result()
    assert (result.output, result.steps) == ([1, 2], 1)


@pytest.mark.parametrize(
    "answer", ["Here: ```json\n[1]\n```", '```json\n["a"]\n```', "```json\n[1]\n``` and [2]"]
)
async def test_an_answer_with_more_than_a_block_or_a_wrong_one_goes_back_to_the_model(
    cheap: Place, script: Script, answer: str
) -> None:
    agent = Agent("counter", model=script(says(answer), says("[3]")), output_type=list[int])
    await cheap.open(agent)
    run = await cheap.start(agent)
    result = await run.result()
    assert (result.output, result.steps) == ([3], 2)


async def test_a_process_without_a_validator_does_not_run_the_agent(script: Script) -> None:
    agent = Agent("poet", model=script(says("a")))

    @agent.output_validator
    def kind(output: str) -> None:
        assert output

    stored = Agent.from_config(agent.to_config())
    async with Runtime.open("memory://", registry=Registry(agents=[stored])) as runtime:
        with pytest.raises(
            NotRegistered, match="'poet': its outputs are validated by 'kind', which is not in"
        ):
            await runtime.start(stored, "x")


def test_two_validators_of_one_name_are_refused() -> None:
    agent = Agent("poet")

    def kind(output: str) -> None:
        assert output

    agent.output_validator(kind)
    with pytest.raises(AgentConfigError, match="output_validators"):
        agent.output_validator(kind)
