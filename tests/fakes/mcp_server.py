"""A real MCP server for tests, on the official SDK: `mcp_server.py stdio | http PORT | legacy-http PORT | oauth PORT`.

The HTTP servers print their port as the first line. The legacy one refuses protocol versions from 2026 on; the one with
OAuth serves only clients with a token.
"""

import json
import os
import socket
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response

PNG = b"\x89PNG\r\n\x1a\nhi"
WAV = b"RIFF\x04\0\0\0WAVE"
PDF = b"%PDF-1.7\n"

cancellations = anyio.Semaphore(0)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


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
        await ctx.report_progress(1)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancellations.release()
            raise
        return "never"

    @server.tool()
    async def wait_until_slow_is_cancelled() -> str:
        await cancellations.acquire()
        return "cancelled"


def tools_that_answer(server: MCPServer) -> None:
    @server.tool(structured_output=False)
    async def lines() -> list[TextContent]:
        return [TextContent(type="text", text="one"), TextContent(type="text", text="two")]

    @server.tool(structured_output=False)
    async def mixed() -> list[ContentBlock]:
        notes = TextResourceContents(uri="file:///notes.txt", text="by hand", mime_type="text/plain")
        paper = BlobResourceContents(
            uri="file:///papers/a%20b.pdf", blob=base64(PDF), mime_type="application/pdf"
        )
        return [
            TextContent(type="text", text="a picture"),
            ImageContent(type="image", data=base64(PNG), mime_type="image/png"),
            AudioContent(type="audio", data=base64(WAV), mime_type="audio/x-wav"),
            EmbeddedResource(type="resource", resource=notes),
            EmbeddedResource(type="resource", resource=paper),
        ]

    @server.tool(structured_output=False)
    async def photo() -> list[ContentBlock]:
        picture = ImageContent(type="image", data=base64(PNG), mime_type="image/png")
        return [TextContent(type="text", text="At night."), picture]

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def weather(city: str) -> Weather:
        return Weather(city=city, degrees=21.5)

    @server.tool()
    async def numbers() -> list[int]:
        return [1, 2]

    @server.tool(structured_output=False)
    async def nothing() -> list[TextContent]:
        return []

    @server.tool(structured_output=False)
    async def large(size: int) -> str:
        return "x" * size

    @server.tool()
    async def boom() -> str:
        raise ToolError("bad input")

    @server.tool()
    async def confirmed(answer: Annotated[Confirm, Resolve(ask)]) -> str:
        return str(answer.approve)


async def ask_and_say_so(ctx: Context) -> Elicit[Confirm]:
    await ctx.report_progress(1, 3, "asking")
    return Elicit("Really?", Confirm)


def tools_that_ask(server: MCPServer) -> None:
    @server.tool()
    async def reported(answer: Annotated[Confirm, Resolve(ask_and_say_so)], ctx: Context) -> str:
        await ctx.report_progress(2, 3, "doing")
        await ctx.report_progress(3, 3, "done")
        return str(answer.approve)


def tools_that_act(server: MCPServer) -> None:
    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def delete(path: str) -> str:
        """Delete something that may be gone already."""
        return f"deleted {path}"

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def forget() -> str:
        return "forgotten"

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
        await ctx.report_progress(1)
        os._exit(7)


def tools_that_pay(server: MCPServer) -> None:
    """The invoices are files of the directory FAKE_MCP_BANK, so that they outlive the server."""
    bank = Path(os.environ.get("FAKE_MCP_BANK", "."))

    @server.tool()
    async def pay(invoice: str, ctx: Context, becomes: str = "paid", then: str = "return") -> str:
        """Pay an invoice; `then` says what follows: "return", "wait" for ever, or "die" with the server."""
        with (bank / "payments").open("a") as payments:
            payments.write(f"{invoice}\n")
        (bank / invoice).write_text(becomes)
        if then == "die":
            os._exit(7)
        if then == "wait":
            await ctx.report_progress(1)
            await anyio.sleep_forever()
        return f"paid {invoice}"

    @server.tool()
    async def look_up(number: str) -> dict[str, str]:
        """Return the state of an invoice."""
        if not (bank / number).exists():
            raise ToolError(f"nobody knows invoice {number}")
        return {"number": number, "state": (bank / number).read_text()}


def sdk_server() -> MCPServer:
    key = os.environ.get("FAKE_MCP_KEY")  # without one, no other process can read the state of a question
    security = RequestStateSecurity(keys=[key.encode()], ttl=3600) if key else None
    server = MCPServer("fake", log_level="ERROR", request_state_security=security)
    tools_that_report(server)
    tools_that_answer(server)
    tools_that_ask(server)
    tools_that_act(server)
    tools_that_pay(server)
    return server


class Again:
    """An ASGI `receive` that returns a message already received, then those after it."""

    def __init__(self, message: Any, receive: Any) -> None:
        self._messages, self._receive = [message], receive

    async def __call__(self) -> Any:
        return self._messages.pop() if self._messages else await self._receive()


def serve_http(port: int, *, legacy: bool) -> None:
    """Serve on loopback; every request needs the token in FAKE_MCP_TOKEN, if there is one.

    FAKE_MCP_UNKNOWN replaces the status 404 of the answer for an unknown session. FAKE_MCP_REFUSAL is the status,
    content type and body of the answer to every tool call.
    """
    app = sdk_server().streamable_http_app()
    token = os.environ.get("FAKE_MCP_TOKEN")
    unknown = int(os.environ.get("FAKE_MCP_UNKNOWN", "404"))
    refusal = json.loads(os.environ.get("FAKE_MCP_REFUSAL", "null"))

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        async def changed(message: Any) -> None:
            await send({**message, "status": unknown} if message.get("status") == 404 else message)

        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and token and headers.get(b"authorization") != f"Bearer {token}".encode():
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
        elif legacy and headers.get(b"mcp-protocol-version", b"").startswith(b"2026"):
            await PlainTextResponse("what version is that?", 400)(scope, receive, send)
        elif refusal and scope["type"] == "http" and scope["method"] == "POST":
            message = await receive()
            if b'"tools/call"' in message["body"]:
                status, media_type, body = refusal
                await Response(body, status, media_type=media_type)(scope, receive, send)
            else:
                await app(scope, Again(message, receive), send)
        else:
            await app(scope, receive, changed)

    listen(guarded, port)


def listen(app: Any, port: int) -> None:
    """Serve on loopback, and print the port."""
    listening = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0)
    uvicorn.Server(config).run(sockets=[listening])


def main() -> None:
    match sys.argv[1:]:
        case ["stdio"]:
            sdk_server().run("stdio")
        case ["http", port]:
            serve_http(int(port), legacy=False)
        case ["legacy-http", port]:
            serve_http(int(port), legacy=True)
        case ["oauth", port]:
            sys.path.insert(0, str(Path(__file__).parent))
            from oauth_server import AuthorizationServer

            listen(AuthorizationServer(sdk_server().streamable_http_app()), int(port))
        case _:
            sys.exit("usage: mcp_server.py stdio | http PORT | legacy-http PORT | oauth PORT")


if __name__ == "__main__":
    main()
