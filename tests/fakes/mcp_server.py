"""Real MCP servers for tests: `python mcp_server.py stdio|http`, and `raw` for what the SDK's server never does.

`http` prints its port as the first line. FAKE_MCP_LOG names a file that gets a line for each thing worth asserting.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel
from starlette.responses import PlainTextResponse


def log(line: str) -> None:
    if path := os.environ.get("FAKE_MCP_LOG"):
        with Path(path).open("a") as file:
            file.write(line + "\n")


class Weather(BaseModel):
    city: str
    degrees: float


class Confirm(BaseModel):
    approve: bool


async def ask() -> Elicit[Confirm]:
    return Elicit("Really?", Confirm)


def tools_that_report(server: MCPServer) -> None:
    @server.tool(structured_output=False)
    async def search(query: str, ctx: Context) -> str:
        """Search for something."""
        await ctx.report_progress(1, 2, "first")
        await ctx.report_progress(2, 2, "second")
        return f"found {query}"

    @server.tool()
    async def burst(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.report_progress(number + 1, count)
        return "done"

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Say that it has begun, then wait to be cancelled."""
        log("started")
        await ctx.report_progress(1)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            log("cancelled")
            raise
        return "never"


def tools_that_answer(server: MCPServer) -> None:
    @server.tool(structured_output=False)
    async def lines() -> list[TextContent]:
        return [TextContent(type="text", text="one"), TextContent(type="text", text="two")]

    @server.tool(structured_output=False)
    async def mixed() -> list[TextContent | ImageContent]:
        return [
            TextContent(type="text", text="a picture"),
            ImageContent(type="image", data="aGk=", mime_type="image/png"),
        ]

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def weather(city: str) -> Weather:
        return Weather(city=city, degrees=21.5)

    @server.tool()
    async def numbers() -> list[int]:
        return [1, 2]

    @server.tool(structured_output=False)
    async def nothing() -> list[TextContent]:
        return []

    @server.tool()
    async def boom() -> str:
        raise ToolError("bad input")

    @server.tool()
    async def confirmed(answer: Annotated[Confirm, Resolve(ask)]) -> str:
        return str(answer.approve)


def tools_that_act(server: MCPServer) -> None:
    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def delete(path: str) -> str:
        """Delete something that may be gone already."""
        log(f"deleted {path}")
        return f"deleted {path}"

    @server.tool()
    def spawn() -> int:
        """Start a child that outlives its parent unless it is killed with it."""
        child = "import time; time.sleep(600)"
        return subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.DEVNULL).pid

    @server.tool()
    async def pid() -> int:
        return os.getpid()

    @server.tool()
    async def environment(name: str) -> str:
        return os.environ.get(name, "<unset>")

    @server.tool()
    async def exit_now(ctx: Context) -> str:
        """End the server in the middle of the call."""
        log("exits")
        await ctx.report_progress(1)
        os._exit(7)


def sdk_server() -> MCPServer:
    server = MCPServer("fake", log_level="ERROR")
    tools_that_report(server)
    tools_that_answer(server)
    tools_that_act(server)
    return server


def serve_http(port: int) -> None:
    """Serve on loopback; every request needs the header that FAKE_MCP_TOKEN asks for."""
    app = sdk_server().streamable_http_app()
    token = os.environ.get("FAKE_MCP_TOKEN")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and token and headers.get(b"authorization") != f"Bearer {token}".encode():
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(guarded, log_level="error", timeout_graceful_shutdown=0)
    uvicorn.Server(config).run(sockets=[listening])


# --- what the SDK's server never does ---------------------------------------------------------------------------------


def write(*messages: dict[str, Any]) -> None:
    """Write all messages in one piece."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    sys.stdout.flush()


def progress(token: Any, **params: Any) -> dict[str, Any]:
    return {"method": "notifications/progress", "params": {"progressToken": token, **params}}


def answer(request: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    return {"id": request["id"], "result": {"content": [{"type": "text", "text": text}], **more}}


def raw_call(request: dict[str, Any]) -> None:
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
            sys.stdout.write("this is no message\n\n")
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


def serve_raw(*habits: str) -> None:
    """A server of before 2026, by hand. It lists one tool a page."""
    if "stubborn" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "mute" not in habits:
        for line in sys.stdin:
            raw_answer(json.loads(line), habits)
    if "stubborn" in habits or "mute" in habits:
        log("stays")
        time.sleep(600)


def raw_answer(request: dict[str, Any], habits: tuple[str, ...]) -> None:
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
            names = ["twin", "twin"] if "twins" in habits else RAW_TOOLS
            page = int((request.get("params") or {}).get("cursor") or 0)
            tool = {"name": names[page], "inputSchema": {"type": "object"}}
            more = {"nextCursor": str(page + 1)} if page + 1 < len(names) else {}
            write({"id": request["id"], "result": {"tools": [tool], **more}})
        case "tools/call":
            raw_call(request)
        case _ if "id" in request:
            write({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    log(f"pid {os.getpid()}")
    match sys.argv[1:]:
        case ["stdio"]:
            sdk_server().run("stdio")
        case ["http", port]:
            serve_http(int(port))
        case ["raw", *habits]:
            serve_raw(*habits)
        case _:
            sys.exit("usage: mcp_server.py stdio | http PORT | raw [HABIT ...]")
