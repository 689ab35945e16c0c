"""An agent with tools of each effect, and scripts that use them; short words for turns."""

from __future__ import annotations

import asyncio
from typing import Any

from foldlog.runtime import Agent, Custom, ToolContext, tool

Turn = dict[str, Any]
USAGE = {"input_tokens": 3, "output_tokens": 2}


def call(name: str, call_id: str = "c1", /, **arguments: Any) -> Turn:
    return {"id": call_id, "name": name, "arguments": arguments}


def says(*pieces: str) -> Turn:
    return {"text": list(pieces), "usage": USAGE}


def calls(*requests: Turn, text: str = "") -> Turn:
    return {"text": [text] if text else [], "tool_calls": list(requests), "usage": USAGE}


@tool(effect="pure")
async def look(at: str, ctx: ToolContext) -> str:
    """Look at something, and say how far it is."""
    ctx.progress(1, 2)
    await asyncio.sleep(0)
    ctx.emit(Custom("seen", at))
    ctx.progress(2, 2)
    return f"saw {at}"


@tool(effect="idempotent")
async def save(what: str) -> str:
    """Save something."""
    return f"saved {what}"


@tool
async def send(to: str) -> str:
    """Send something, once."""
    return f"sent to {to}"


@tool
async def deploy(to: str) -> str:
    """Deploy after an approval."""
    return f"deployed to {to}"


INNER = Agent("inner", model="openai:gpt-4o", tools=[look])


@tool(effect="pure", timeout_s=None)
async def delegate(question: str, ctx: ToolContext) -> str:
    """Ask another agent."""
    return await ctx.run(INNER, question)


AGENT = Agent(
    "helper", model="openai:gpt-4o", tools=[look, save, send, deploy, delegate], hitl_tools=["deploy"]
)
TWO_CALLS = [calls(call("look", "c1", at="a"), call("save", "c2", what="b")), says("Final ", "answer")]
EVERYTHING = {
    "turns": [
        calls(call("look", "c1", at="a"), call("send", "c2", to="b"), text="hm"),
        calls(call("deploy", "c3", to="x"), call("delegate", "c4", question="why?")),
        calls(call("send", "c5", to="c"), call("save", "c6", what="d")),
        says("Fin", "al"),
        says("again"),
    ],
    "agents": {"inner": [calls(call("look", "c1", at="deep")), says("inner answer")]},
}
