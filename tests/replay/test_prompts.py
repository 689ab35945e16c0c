"""The prompt of a model call is rebuilt from the log and proven by the digest that was stored when it was sent."""

from __future__ import annotations

import msgspec
import pytest
from foldlog.eventlog import ModelRequested
from foldlog.eventlog.errors import ConfigError, RunNotFound
from foldlog.replay import Trace, prompt_at, read_archive

from tests.histories.test_histories import NAMES, V1
from tests.replay.conftest import played
from tests.replay.scenarios import SCENARIOS


def requests(trace: Trace) -> list[ModelRequested]:
    return [event for event in trace.events if isinstance(event, ModelRequested)]


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_of_every_history_is_proven(name: str) -> None:
    for trace in read_archive((V1 / f"{name}.jsonl").read_bytes()).traces.values():
        for event in requests(trace):
            assert prompt_at(trace, event.revision, event.run_id).proven


def test_a_prompt_has_what_the_model_got() -> None:
    world, archive = played("approvals")
    (trace, *_) = archive.traces.values()
    first, *_, last = requests(trace)
    assert prompt_at(trace) == prompt_at(trace, last.revision)
    sent = prompt_at(trace, first.revision)
    assert (sent.model, sent.step, sent.attempt, sent.digest) == (first.model, 1, 1, first.digest)
    assert sent.messages[-1].role == "user"
    assert {tool.name for tool in sent.tools} <= set(world.registry().tools) | {
        name for agent in world.registry().agents.values() for name in agent.tools
    }
    assert msgspec.json.decode(msgspec.json.encode(sent))["messages"]


def test_a_prompt_that_was_altered_is_not_proven() -> None:
    _, archive = played("approvals")
    (trace, *_) = archive.traces.values()
    events = [
        msgspec.structs.replace(event, digest="0" * 64) if isinstance(event, ModelRequested) else event
        for event in trace.events
    ]
    sent = prompt_at(msgspec.structs.replace(trace, events=tuple(events)))
    assert (sent.proven, sent.digest) == (False, "0" * 64)


def test_what_has_no_prompt_is_refused_with_the_revisions_that_have_one() -> None:
    _, archive = played("approvals")
    (trace, *_) = archive.traces.values()
    places = ", ".join(str(event.revision) for event in requests(trace))
    with pytest.raises(ConfigError, match=f"revision 1 of run .* is submitted; its .* are at {places}"):
        prompt_at(trace, 1)
    with pytest.raises(ConfigError, match=r"revision 9999 of run .* does not exist \(it has 1 to "):
        prompt_at(trace, 9999)
    with pytest.raises(RunNotFound, match="has no run 'other'"):
        prompt_at(trace, 1, "other")


def test_a_run_that_called_no_model_has_no_prompt() -> None:
    _, archive = played("cancelled")
    silent = [trace for trace in archive.traces.values() if not requests(trace)]
    for trace in silent:
        with pytest.raises(ConfigError, match="has called no model"):
            prompt_at(trace)
    assert silent or SCENARIOS
