"""LangGraph: a graph of a model node and a tool node, the pair in parallel by `Send`, checkpointed in SQLite."""

import asyncio
import json
import operator
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks import script
from benchmarks.peers.protocol import serve

SETTING = "AsyncSqliteSaver (WAL, synchronous full), durability sync"


class State(TypedDict):
    """What a run knows."""

    steps: int
    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    """The next pair of calls, or the answer."""
    step = 1 + sum(message["role"] == "assistant" for message in state["messages"])
    if step == state["steps"]:
        return {"messages": [{"role": "assistant", "content": script.answer(), "tool_calls": []}]}
    calls = [{"id": call, "arguments": script.arguments(call)} for call in script.call_ids(step)]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": calls}]}


def after_model(state: State) -> Any:
    """Both tools at once, or the end."""
    return [Send("tool", call) for call in state["messages"][-1]["tool_calls"]] or END


async def tool(call: dict[str, str]) -> dict[str, Any]:
    """One call."""
    result = script.found(json.loads(call["arguments"])["q"])
    return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": result}]}


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
            given = {"steps": steps, "messages": [{"role": "user", "content": script.QUESTION}]}
            config = {"configurable": {"thread_id": name}, "recursion_limit": 3 * steps + 10}
            ended = await compiled.ainvoke(given, config, durability="sync")
            return ended["messages"][-1]["content"]

        await serve(run, SETTING)


asyncio.run(main())
