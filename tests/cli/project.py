"""The agents that the tests of the command line run, as a user's module with its scripts."""

import json
from pathlib import Path

MODULE = '''
import asyncio
import os
import threading
from pathlib import Path

from foldlog.runtime import Agent, Registry, ToolContext, tool


@tool(effect="pure")
async def lookup(q: str, ctx: ToolContext) -> str:
    """Look something up."""
    ctx.progress(1, 2, "half way")
    return f"found {q}"


@tool(effect="pure")
async def hang(ctx: ToolContext) -> str:
    """Never answer."""
    ctx.progress(1, 2, "for ever")
    await asyncio.sleep(3600)
    return ""


@tool(effect="pure")
def clog(ctx: ToolContext) -> str:
    """Never answer, in a thread."""
    ctx.progress(1, 2, "for ever")
    threading.Event().wait()
    return ""


@tool(effect="pure", timeout_s=0.2, on_timeout="partial")
async def count(ctx: ToolContext) -> str:
    """Count, and never end."""
    ctx.partial("one <b>")
    ctx.partial({"counted": ["one", "two"]})
    await asyncio.sleep(3600)
    return ""


@tool(effect="unsafe")
async def perilous(ctx: ToolContext) -> str:
    """Never answer, and nobody knows what was done."""
    ctx.progress(1, 2, "for ever")
    await asyncio.sleep(3600)
    return ""


@tool(effect="unsafe")
def shell(command: str, title: str) -> str:
    """Run a command."""
    return "done"


@tool(effect="unsafe")
async def weigh(ctx: ToolContext) -> str:
    """Weigh until the file that SCALE names is there."""
    ctx.progress(1, 2, "weighing")
    while not Path(os.environ["SCALE"]).exists():
        await asyncio.sleep(0.02)
    return "weighed"


def agent_of(name, *tools, script=None, **fields):
    return Agent(name, model=f"scripted:{script or name}.json", tools=list(tools), **fields)


helper = agent_of("helper", lookup)
careful = agent_of("careful", lookup, script="helper", hitl_tools=["lookup"])
failing = agent_of("failing")
hanging = agent_of("hanging", hang)
clogged = agent_of("clogged", clog)
reckless = agent_of("reckless", perilous)
slow = agent_of("slow")
counting = agent_of("counting", count)
weighing = agent_of("weighing", weigh, lookup, hitl_tools=["lookup"])
sharp = agent_of("sharp", shell, hitl_tools=["shell"])
evil = agent_of("evil")
clumsy = agent_of("clumsy", lookup)
stutter = agent_of("stutter")
unserved = agent_of("unserved", lookup, script="helper")
no_provider = Agent("no_provider", model="nope:x")
no_key = Agent("no_key", model="openai:gpt-4o")
bad_script = agent_of("bad_script")
no_script = agent_of("no_script")
no_tool = Agent("no_tool", model="scripted:helper.json", tools=["nope"])

registry = Registry(agents=[helper, careful, failing, hanging, reckless, evil], tools=[lookup])
sharp_registry = Registry(agents=[sharp])
one = Registry(agents=[helper])
empty = Registry()
number = 7
'''

UNSIGNED = '''
from foldlog.runtime import Agent, tool


@tool
def all_of(*words: str) -> str:
    """Take any number."""
    return " ".join(words)


agent = Agent("agent", tools=[all_of])
'''

USAGE = {"input_tokens": 10, "output_tokens": 5}
COMMAND = "echo 'a  b' \\\n\tc \nfoldlog approvals approve \x1b[2J"
EVIL_TEXT = "\x1b]0;owned\x07\x1b[2J[bold]plain\u202e\x9b31m"


def call(name: str, arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"id": "call-1", "name": name, "arguments": arguments}], "usage": USAGE}


SCRIPTS: dict[str, object] = {
    "helper": [
        {"text": ["Let me ", "see."], **call("lookup", {"q": "answer"})},
        {"text": ["Final ", "answer"], "usage": USAGE},
    ],
    "failing": [{"error": {"type": "auth", "times": 99}}],
    "hanging": [call("hang", {}), {"text": "not reached"}],
    "clogged": [call("clog", {}), {"text": "not reached"}],
    "counting": [call("count", {}), {"text": "Counted", "usage": USAGE}],
    "reckless": [call("perilous", {}), {"text": "It is done", "usage": USAGE}],
    "weighing": [
        {
            "tool_calls": [
                {"id": "call-1", "name": "weigh", "arguments": {}},
                {"id": "call-2", "name": "lookup", "arguments": {"q": "answer"}},
            ],
            "usage": USAGE,
        },
        {"text": "Weighed", "usage": USAGE},
    ],
    "stutter": [
        {
            "text": ["One ", "two"],
            "retry_text": ["One ", "three"],
            "error": {"type": "transient", "times": 1, "after_chunks": 2},
            "usage": USAGE,
        }
    ],
    "sharp": [
        call("shell", {"command": COMMAND, "title": "two  spaces\u202e"}),
        {"text": "Ran", "usage": USAGE},
    ],
    "slow": [{"text": ["first\n", "second"], "chunk_delay_ms": 50_000}],
    "evil": [{"text": EVIL_TEXT, "usage": USAGE}],
    "clumsy": [call("lookup", "{no json"), {"text": "Sorry", "usage": USAGE}],
}


def write_project(place: Path) -> None:
    (place / "project_agents.py").write_text(MODULE)
    (place / "unsigned.py").write_text(UNSIGNED)
    (place / "broken.py").write_text("def oops(:\n")
    (place / "bad_script.json").write_text('{"turns": [{"txt": 1}]}')
    for name, turns in SCRIPTS.items():
        (place / f"{name}.json").write_text(json.dumps({"turns": turns}))
