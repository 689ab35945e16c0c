"""One preparation for all executors: the same requests, whatever a run is given and told before its first step."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldlog.eventlog.events import ModelRequested
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import load_trace
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.agents.config import config_digest
from foldlog.runtime.driving.host import Host
from foldlog.runtime.ports.knowledge import KnowledgeItem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USAGE = {"input_tokens": 300, "output_tokens": 20}
LOOKS = [
    {"tool_calls": [{"id": f"c{n}", "name": "look", "arguments": {"n": n, "why": "y"}}], "usage": USAGE}
    for n in (1, 2)
]
SCRIPT = {
    "turns": [*LOOKS, {"text": '{"seen": 2}', "usage": USAGE}],
    "planner": [{"text": "1. look 🐟", "usage": USAGE}],
    "summaries": [{"text": "They looked before.", "usage": USAGE}],
}
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


class Shelf:
    """Knowledge that always fits; `asked` counts how often it was."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts, self.asked = texts, 0

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        self.asked += 1
        return [
            KnowledgeItem(id=str(n), text=text, source="shelf") for n, text in enumerate(self.texts[:limit])
        ]

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        return ()


@tool(effect="pure")
def look(n: int) -> str:
    """Look."""
    return f"seen {n} " * 40


MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda text: [{"role": "user", "content": text}], TEXT),
        st.builds(lambda text: [{"role": "assistant", "content": text}], TEXT),
        st.just(
            [
                {"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": '{"n":0}'}]},
                {"role": "tool", "tool_call_id": "c1", "content": "seen 0"},
            ]
        ),
    ),
    max_size=6,
).map(lambda rounds: [message for each in rounds for message in each])
CONTEXTS = st.fixed_dictionaries(
    {"window_tokens": st.sampled_from([600, 1500, 8000])},
    optional={
        "mode": st.sampled_from(["pilot", "copilot", "navigator"]),
        "history_messages_max": st.integers(1, 12),
        "overflow": st.sampled_from(["summarize", "truncate", "none"]),
        "artifact_bytes_min": st.sampled_from([100, 32_768]),
    },
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "instructions": TEXT,
    "planning_enabled": st.booleans(),
    "planning_model": st.just("second"),
    "budget_awareness": st.sampled_from(["per-message", "limit:90"]),
    "output_schema": st.just({"type": "object", "required": ["seen"]}),
    "injected_tool_args": st.just({"why": "Why"}),
    "settings": st.fixed_dictionaries(
        {"max_tokens": st.integers(1, 4000)},
        optional={"temperature": st.floats(0, 2), "seed": st.just(1), "tool_choice": st.just("required")},
    ),
    "memory": st.fixed_dictionaries({"scope": st.sampled_from(["session", "task", "user"])}),
    "allow_self_spawn": st.booleans(),
}
METADATA = {"memory": {"scope": {"user_id": "ada"}}}


async def requests(executor: str, script: str, drawn: dict[str, Any]) -> tuple[list[str], int, str]:
    """The digest of every request of a run that follows another one of its session, how often the shelf was asked by
    it, and how it ended."""
    fields = {**drawn["fields"], "context": drawn["context"]}
    if "planning_model" in fields:
        fields["planning_model"] = script
    agent = Agent("helper", model=script, tools=[look], **fields)
    shelf, log = Shelf(drawn["knowledge"]), MemoryLog()
    registry = Registry(agents=[agent], knowledge=shelf)
    metadata = METADATA if fields.get("memory", {}).get("scope") == "user" else {"n": 1}
    async with Runtime.open(log=log, registry=registry) as runtime:
        worker = Worker(Host(log=log, registry=registry, worker="worker"), grace_s=1.0)
        serving = asyncio.create_task(worker.serve()) if executor == "durable" else None
        for text in ("before", drawn["input"]):
            before = shelf.asked
            run = await runtime.start(
                agent,
                text,
                session="s",
                messages=drawn["messages"] if text != "before" else (),
                metadata=metadata,
                executor=executor,
            )
            async with asyncio.timeout(120):
                async for _ in run.stream():
                    pass
        if serving is not None:
            worker.stop()
            await serving
        status = (await run.state()).status
        trace = await load_trace(log, run.run_id)
    found = [event.digest for event in trace.events if isinstance(event, ModelRequested)]
    return found, shelf.asked - before, status


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {
            "input": TEXT,
            "messages": MESSAGES,
            "knowledge": st.lists(TEXT, max_size=3),
            "context": CONTEXTS,
            "fields": st.fixed_dictionaries({}, optional=FIELDS),
        }
    )
)
def test_every_combination_asks_the_same_of_its_models_on_both_executors(drawn: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "script.json"
        path.write_text(json.dumps(SCRIPT))
        local, durable = (
            asyncio.run(requests(executor, f"scripted:{path}", drawn)) for executor in ("local", "durable")
        )
    assert local == durable
    assert local[0] or local[2] == "completed"
    assert local[1] == ("memory" in drawn["fields"])


async def test_the_preparation_holds_after_a_takeover_and_the_configuration_is_stored_with_its_digest(
    tmp_path: Path,
) -> None:
    path = tmp_path / "script.json"
    asks = {"tool_calls": [{"id": "a", "name": "send", "arguments": {"to": "x"}}]}
    path.write_text(json.dumps({"turns": [asks, {"text": "done"}]}))
    log = MemoryLog()

    def release(description: str, *tools: Any) -> Agent[Any]:
        @tool(description=description)
        def send(to: str) -> str:
            return f"{description} to {to}"

        return Agent(
            "helper",
            model=f"scripted:{path}",
            instructions=lambda run: f"{run.agent} answers {run.input} in {run.session}",
            tools=[send, *tools],
            hitl_tools=["send"],
        )

    old, new = release("Old."), release("New.", look)
    async with Runtime.open(log=log, registry=Registry(agents=[old])) as runtime:
        run = await runtime.start(old, "hi", session="s")
        journal = await run._journal()
        await journal.follow_until(lambda state: state.parked is not None)
        before = await run.state()
    async with Runtime.open(log=log, registry=Registry(agents=[new])) as runtime:
        again = runtime.get_run(run.run_id)
        (approval,) = before.pending_approvals
        await again.resolve(approval.request.approval_id, "approved")
        await runtime.drive(run.run_id)
        await again.result()
        after = await again.state()
        trace = await load_trace(log, run.run_id)
    assert after.tools == before.tools
    assert [spec.description for spec in after.tools.values()] == ["Old."]
    assert [m.content for m in after.messages if m.role == "tool"] == ["New. to x"]  # code is never stored
    assert [event.type for event in trace.events].count("prepared") == 1
    submitted = after.submitted
    assert submitted is not None
    assert submitted.config == old.config.to_config()
    assert after.instructions == before.instructions == "helper answers hi in s"
    assert submitted.config_digest == config_digest(submitted.config)
    assert Agent.from_config(submitted.config).digest == submitted.config_digest
    requests = [event.digest for event in trace.events if isinstance(event, ModelRequested)]
    assert len(set(requests)) == 2
