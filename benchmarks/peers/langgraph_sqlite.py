"""LangGraph: a graph of a model node and a tool node, with the pair in parallel by `Send`; SQLite checkpoints.

program DIRECTORY [delta]       delta: keep the messages in a `DeltaChannel`, which is in beta
"""

import asyncio
import json
import operator
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks import script
from benchmarks.peers.protocol import serve

DELTA = sys.argv[2:] == ["delta"]
SETTING = "AsyncSqliteSaver (WAL, synchronous full), durability sync"


def added(state: list[dict[str, Any]] | None, writes: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Reduce all writes of a superstep at once, as a `DeltaChannel` does."""
    return [*(state or []), *(message for write in writes for message in write)]


class State(TypedDict):
    """The state of a run."""

    steps: int
    said: Annotated[list[dict[str, Any]], DeltaChannel(added) if DELTA else operator.add]


async def model(state: State) -> dict[str, Any]:
    """Return the next pair of calls, or the answer."""
    step = 1 + sum(message["by"] == "assistant" for message in state["said"])
    if step == state["steps"]:
        return {"said": [{"by": "assistant", "content": script.answer(), "tool_calls": []}]}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"said": [{"by": "assistant", "content": "", "tool_calls": calls}]}


def after_model(state: State) -> Any:
    """Send both tool calls at once, or end."""
    return [Send("tool", call) for call in state["said"][-1]["tool_calls"]] or END


async def tool(call: dict[str, str]) -> dict[str, Any]:
    """Run one tool call."""
    result = script.found(json.loads(call["arguments"])["q"])
    return {"said": [{"by": "tool", "tool_call_id": call["id"], "content": result}]}


async def main() -> None:
    """Serve."""
    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tool", END])
    graph.add_edge("tool", "model")
    async with AsyncSqliteSaver.from_conn_string(str(Path(sys.argv[1]) / "langgraph.sqlite")) as saver:
        compiled = graph.compile(checkpointer=saver)

        async def run(name: str, steps: int) -> str:
            given = {"steps": steps, "said": [{"by": "user", "content": script.QUESTION}]}
            config = {"configurable": {"thread_id": name}, "recursion_limit": 3 * steps + 10}
            ended = await compiled.ainvoke(given, config, durability="sync")
            return ended["said"][-1]["content"]

        await serve(run, SETTING)


asyncio.run(main())
