"""The built-in tools in runs, on both logs and both executors."""

from collections.abc import Callable
from pathlib import Path

from foldlog.adapters.builtin import builtin_tools
from foldlog.eventlog.events import ToolResult
from foldlog.runtime import Agent

from tests.runtime.conftest import Place, call, calls, says

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n*** End Patch"


async def test_an_agent_reads_edits_and_is_told_what_does_not_work(
    place: Place, script: Callable[..., str], tmp_path: Path
) -> None:
    files = tmp_path / "ws"
    files.mkdir()
    (files / "a.py").write_text("old\n")
    model = script(
        calls(call("read_file", "c1", path="a.py"), call("read_file", "c2", path="../secret")),
        calls(call("apply_patch", "c3", input=PATCH), call("write_file", "c4", path="b.py", content="b\n")),
        calls(call("apply_patch", "c5", input=PATCH)),
        calls(call("grep_files", "c6", pattern="new|b")),
        says("done"),
    )
    agent = Agent("editor", model=model, tools=builtin_tools(files))
    await place.open(agent)
    run = await place.start(agent)
    events = [event async for event in run.stream(detailed=True)]
    results = {event.tool_call_id: event for event in events if isinstance(event, ToolResult)}
    assert {call_id: result.result or result.error for call_id, result in results.items()} == {
        "c1": "L1: old",
        "c2": "../secret: is outside the workspace",
        "c3": "Success. Updated the following files:\nM a.py",
        "c4": "Wrote 2 bytes to b.py.",
        "c5": f"apply_patch verification failed: Failed to find expected lines in {files.resolve()}/a.py:\nold",
        "c6": "a.py:1: new\nb.py:1: b",
    }
    assert (await run.result()).output == "done"
