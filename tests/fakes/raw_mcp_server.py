"""A hand-written MCP server (before 2026) that does what the SDK's never does: `python raw_mcp_server.py [HABIT ...]`.

It lists one tool per page, those in FAKE_MCP_TOOLS if that is set, and writes its process id to the file FAKE_MCP_LOG.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def write(*messages: dict[str, Any]) -> None:
    """Write all messages with one write."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    sys.stdout.flush()


def progress(token: Any, **params: Any) -> dict[str, Any]:
    return {"method": "notifications/progress", "params": {"progressToken": token, **params}}


def answer(request: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    return {"id": request["id"], "result": {"content": [{"type": "text", "text": text}], **more}}


def call(request: dict[str, Any]) -> None:
    params = request["params"]
    token = params["_meta"]["progressToken"]
    match params["name"]:
        case "late":
            write(
                progress(token, progress=1, total=2),
                progress(token, progress=1.5, total=2, message="half"),
                progress(token, progress="much"),
                progress("somebody else's", progress=1),
                answer(request, "done"),
                progress(token, progress=2, total=2),
                progress(token, progress=2, total=2),
            )
        case "stray":
            sys.stdout.write("this is not a message\n\n")
            write(answer(request, "done"))
        case "protocol_error":
            write(
                {"id": request["id"], "error": {"code": -32602, "message": "no such thing", "data": {"a": 1}}}
            )
        case "connection_closed_error":
            write({"id": request["id"], "error": {"code": -32000, "message": "Connection closed"}})
        case "malformed":
            write({"id": request["id"], "result": {"content": "not a list"}})
        case "large":
            write(answer(request, "x" * 5_000_000))
        case "patterned":
            write(answer(request, "", structuredContent={"a": "a" * 60 + "!"}))
        case "last_words":
            write(answer(request, "bye"))
            os._exit(0)
        case "child_holds_pipes":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            os._exit(3)


RAW_TOOLS = [
    "late",
    "stray",
    "protocol_error",
    "connection_closed_error",
    "malformed",
    "large",
    "last_words",
    "child_holds_pipes",
]


def serve(*habits: str) -> None:
    """Serve standard input until it ends."""
    if "stubborn" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "mute" not in habits:
        for line in sys.stdin:
            respond(json.loads(line), habits)
    if "stubborn" in habits or "mute" in habits:
        time.sleep(600)


def respond(request: dict[str, Any], habits: tuple[str, ...]) -> None:
    match request["method"]:
        case "server/discover" if "touchy" in habits:
            sys.stderr.write("expected initialize\n")
            sys.exit(4)
        case "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            write({"id": request["id"], "result": result})
        case "tools/list" if "endless" in habits:
            write({"id": request["id"], "result": {"tools": [], "nextCursor": "again"}})
        case "tools/list":
            names = (
                ["twin", "twin"]
                if "twins" in habits
                else os.environ.get("FAKE_MCP_TOOLS", ",".join(RAW_TOOLS)).split(",")
            )
            page = int((request.get("params") or {}).get("cursor") or 0)
            tool = {"name": names[page], "inputSchema": {"type": "object"}}
            if names[page] == "patterned":
                tool["outputSchema"] = {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}}
            more = {"nextCursor": str(page + 1)} if page + 1 < len(names) else {}
            write({"id": request["id"], "result": {"tools": [tool], **more}})
        case "tools/call":
            call(request)
        case _ if "id" in request:
            write({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    if path := os.environ.get("FAKE_MCP_LOG"):
        with Path(path).open("a") as file:
            file.write(f"{os.getpid()}\n")
    serve(*sys.argv[1:])
