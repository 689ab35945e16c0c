"""Answers that the provider cut, at the limit of their length or by its filter: they look cut."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.adapters.models import Api, OpenAIProvider
from foldlog.eventlog import RunFailed
from foldlog.eventlog.events import Usage
from foldlog.replay import canonical, load_trace
from foldlog.replay.rerunning.recorded import rerun
from foldlog.runtime import Agent, tool

from ..fakes.openai_server import Call, Reply, serve
from .conftest import Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
LENGTH = {"finish_reason": "length"}
FILTERED = {"finish_reason": "content_filter"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def cut(text: str) -> dict[str, Any]:
    """A final answer that is cut at the limit of its length."""
    return {**says(text), **LENGTH}


@pytest.fixture
def saved() -> list[str]:
    """Return the arguments of the calls of `save`."""
    return []


def saver(saved: list[str]) -> Any:
    @tool(effect="pure")
    async def save(text: str = "nothing") -> str:
        """Save a text."""
        saved.append(text)
        return "saved"

    return save


async def failure(place: Place, agent: Agent[Any]) -> tuple[RunFailed, list[str]]:
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result()
    return failed.value, names(await place.events(run))


async def test_a_cut_answer_ends_the_run_and_its_text_is_kept(cheap: Place, script: Script) -> None:
    agent = Agent(
        "helper", model=script(cut("The answer is fort"), says("never")), settings={"max_tokens": 5}
    )
    await cheap.open(agent)
    failed, events = await failure(cheap, agent)
    assert (failed.error_type, failed.output) == ("output_truncated", "The answer is fort")
    assert "max_tokens is 5" in failed.message
    assert events[-4:] == ["usage", "step(completed)", "error", "status(error)"]
    run = cheap.runtime.get_run(failed.run_id)
    assert [e.finish_reason for e in await cheap.events(run) if isinstance(e, Usage)] == ["length"]
    assert (await run.state()).output == "The answer is fort"


async def test_an_accepted_cut_answer_is_the_output_and_the_end_says_that_it_is_cut(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(cut("The answer is fort")), on_length="accept")
    await cheap.open(agent)
    result = await (await cheap.start(agent)).result()
    assert (result.output, result.reason) == ("The answer is fort", "length")


async def test_an_answer_that_goes_on_is_one_output_and_the_model_was_asked_once_more(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(cut("The answer is fort"), says("y-two.")), on_length="continue")
    await cheap.open(agent)
    run = await cheap.start(agent, session="talk")
    result = await run.result()
    assert (result.output, result.reason, result.steps) == ("The answer is forty-two.", "", 2)
    said = [(m.role, m.content[:20]) for m in await run.history()]
    assert said[1:] == [
        ("assistant", "The answer is fort"),
        ("user", "Your answer was cut "),
        ("assistant", "y-two."),
    ]
    (turn,) = (await cheap.runtime.history("talk")).turns
    assert turn.output == "The answer is forty-two."
    recorded = await load_trace(cheap.log, run.run_id)
    assert canonical(await rerun(recorded)).digest == canonical(recorded).digest


async def test_an_answer_that_is_cut_again_ends_the_run_with_both_parts_kept(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(cut("one, "), cut("two, "), says("x")), on_length="continue")
    last = Agent("last", model=script(cut("one, "), says("x")), on_length="continue", max_steps=1)
    await cheap.open(agent, last)
    failed, _ = await failure(cheap, agent)
    assert (failed.error_type, failed.output, failed.steps) == ("output_truncated", "one, two, ", 2)
    failed, _ = await failure(cheap, last)
    assert (failed.error_type, failed.output, failed.steps) == ("output_truncated", "one, ", 1)


async def test_a_model_that_calls_a_tool_instead_of_going_on_gives_a_new_answer(
    cheap: Place, script: Script, saved: list[str]
) -> None:
    model = script(cut("Let me th"), calls(call("save", text="a")), says("Saved."))
    agent = Agent("helper", model=model, tools=[saver(saved)], on_length="continue")
    await cheap.open(agent)
    assert (await (await cheap.start(agent)).result()).output == "Saved."


@pytest.mark.parametrize("on_length", ["error", "continue", "accept"])
async def test_json_that_the_limit_cut_is_not_paid_for_twice(
    cheap: Place, script: Script, on_length: Any
) -> None:
    model = script(cut('{"n": '), says('{"n": 1}'))
    agent = Agent("helper", model=model, output_schema=SCHEMA, on_length=on_length)
    await cheap.open(agent)
    failed, events = await failure(cheap, agent)
    assert (failed.error_type, failed.output) == ("output_truncated", '{"n": ')
    assert events.count("usage") == 1


@pytest.mark.parametrize("arguments", ['{"text": "abc', "", " "])
async def test_a_call_that_the_limit_cut_is_not_run_and_the_model_is_told_why(
    cheap: Place, script: Script, saved: list[str], arguments: str
) -> None:
    both = [call("save", "a", text="whole"), {"id": "b", "name": "save", "arguments": arguments}]
    agent = Agent("helper", model=script({**calls(*both), **LENGTH}, says("done")), tools=[saver(saved)])
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).output == "done"
    assert saved == ["whole"]
    whole, broken = [m.content for m in await run.history() if m.role == "tool"]
    assert whole == "saved"
    assert (
        "your answer was cut at the limit of its length before the arguments of this call were complete"
        in broken
    )


async def test_a_call_without_arguments_in_a_whole_answer_is_run(
    cheap: Place, script: Script, saved: list[str]
) -> None:
    model = script(calls({"id": "a", "name": "save", "arguments": ""}), says("done"))
    agent = Agent("helper", model=model, tools=[saver(saved)])
    await cheap.open(agent)
    assert (await (await cheap.start(agent)).result()).output == "done"
    assert saved == ["nothing"]


async def test_an_answer_that_the_filter_stopped_ends_the_run_and_none_of_its_calls_is_made(
    cheap: Place, script: Script, saved: list[str]
) -> None:
    asks = {**calls(call("save", text="a")), "text": ["First I"], **FILTERED}
    caller = Agent("caller", model=script(asks, says("x")), tools=[saver(saved)])
    sayer = Agent("sayer", model=script({**says("I wo"), **FILTERED}, says("x")), on_length="accept")
    await cheap.open(caller, sayer)
    failed, _ = await failure(cheap, caller)
    assert (failed.error_type, failed.steps, saved) == ("content_filter", 1, [])
    failed, events = await failure(cheap, sayer)
    assert (failed.error_type, failed.output) == ("content_filter", "I wo")
    assert events.count("usage") == 1


@pytest.mark.parametrize(
    ("turn", "on_length", "error_type"),
    [(LENGTH, "error", "output_truncated"), (LENGTH, "accept", ""), (FILTERED, "accept", "content_filter")],
)
async def test_a_plan_that_is_cut_is_not_followed_unless_the_agent_says_so(
    cheap: Place, tmp_path: Any, turn: Any, on_length: Any, error_type: str
) -> None:
    path = tmp_path / "planned.json"
    path.write_text(json.dumps({"turns": [says("done")], "planner": [{**says("1. Loo"), **turn}]}))
    agent = Agent("planned", model=f"scripted:{path}", planning_enabled=True, on_length=on_length)
    await cheap.open(agent)
    run = await cheap.start(agent)
    if error_type:
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.error_type == error_type
    else:
        assert (await run.result()).output == "done"


@pytest.mark.parametrize(
    ("api", "word", "error_type"),
    [
        ("chat", "length", "output_truncated"),
        ("chat", "MAX_TOKENS", "output_truncated"),
        ("chat", "content_filter", "content_filter"),
        ("responses", "max_output_tokens", "output_truncated"),
        ("responses", "content_filter", "content_filter"),
        ("responses", "some_new_reason", "output_truncated"),
    ],
)
async def test_both_wires_say_that_an_answer_is_cut(
    cheap: Place, api: Api, word: str, error_type: str
) -> None:
    async with serve(Reply(text=("The ans",), finish=word)) as server, contextlib.AsyncExitStack() as stack:
        provider = OpenAIProvider(name="here", api=api, base_url=server.url, api_key_env=None)
        stack.push_async_callback(provider.aclose)
        agent = Agent("helper", model="here:m")
        await cheap.open(agent, providers={"here": provider})
        failed, _ = await failure(cheap, agent)
    assert (failed.error_type, failed.output, len(server.requests)) == (error_type, "The ans", 1)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_server_is_never_sent_the_broken_arguments_of_a_cut_call(
    cheap: Place, api: Api, saved: list[str]
) -> None:
    word = "length" if api == "chat" else "max_output_tokens"
    broken = Call(id="c1", name="save", arguments=('{"text": "ab',))
    replies = (Reply(calls=(broken,), finish=word), Reply(text=("done",)))
    async with serve(*replies) as server, contextlib.AsyncExitStack() as stack:
        provider = OpenAIProvider(name="here", api=api, base_url=server.url, api_key_env=None)
        stack.push_async_callback(provider.aclose)
        agent = Agent("helper", model="here:m", tools=[saver(saved)])
        await cheap.open(agent, providers={"here": provider})
        assert (await (await cheap.start(agent)).result()).output == "done"
    assert saved == []
    body = server.requests[1].body
    sent = body["messages"][-2]["tool_calls"][0]["function"] if api == "chat" else body["input"][-2]
    assert json.loads(sent["arguments"]) == {"invalid_json": '{"text": "ab'}


async def test_a_call_that_the_provider_could_not_read_goes_back_to_the_model(
    cheap: Place, saved: list[str]
) -> None:
    error = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<save"}
    whole = Call(id="c1", name="save", arguments=('{"text": "a"}',))
    replies = (Reply(status=400, body={"error": error}), Reply(calls=(whole,)), Reply(text=("done",)))
    async with serve(*replies) as server, contextlib.AsyncExitStack() as stack:
        provider = OpenAIProvider(name="here", base_url=server.url, api_key_env=None)
        stack.push_async_callback(provider.aclose)
        agent = Agent("helper", model="here:m", tools=[saver(saved)])
        await cheap.open(agent, providers={"here": provider})
        run = await cheap.start(agent)
        assert (await run.result()).output == "done"
    assert saved == ["a"]
    told = server.requests[1].body["messages"][-2:]
    assert told[0] == {"role": "assistant", "content": "<save\n\n[Failed to call a function.]"}
    assert told[1]["content"].startswith("Your tool call could not be read, and nothing was done.")


@pytest.mark.parametrize("text", [(), ("I will save it.",)], ids=["nothing else", "beside a text"])
async def test_a_finish_reason_that_says_that_a_call_is_malformed_goes_back_to_the_model(
    cheap: Place, saved: list[str], text: tuple[str, ...]
) -> None:
    whole = Call(id="c1", name="save", arguments=('{"text": "a"}',))
    broken = Reply(text=text, finish="MALFORMED_FUNCTION_CALL")
    async with (
        serve(broken, Reply(calls=(whole,)), Reply(text=("done",))) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        provider = OpenAIProvider(name="here", base_url=server.url, api_key_env=None)
        stack.push_async_callback(provider.aclose)
        agent = Agent("helper", model="here:m", tools=[saver(saved)])
        await cheap.open(agent, providers={"here": provider})
        run = await cheap.start(agent)
        assert (await run.result()).output == "done"
    assert saved == ["a"]
    told = server.requests[1].body["messages"][-1]
    assert told["role"] == "user"
    assert told["content"].startswith("Your tool call could not be read, and nothing was done.")
    first = next(event for event in await cheap.events(run) if isinstance(event, Usage))
    assert first.finish_reason == "malformed_call"
