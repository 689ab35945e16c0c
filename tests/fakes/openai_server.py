"""A real HTTP server on loopback that answers chat completions and Responses from a list of replies, with faults.

async with serve(Reply(text=("Hel", "lo"))) as server:
    ...  # base URL: server.url; requests received: server.requests
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Fault = Literal["", "cut", "end", "torn", "malformed", "stall", "error"]
"""The fault after `fault_after` events: the TCP connection is cut; the response ends cleanly, or in the middle of a
line; an event is not JSON; nothing more comes until the client disconnects; an event reports `body`."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call, and the pieces in which its arguments arrive."""

    id: str
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Usage:
    input: int = 11
    cached: int = 4
    output: int = 7
    reasoning: int = 3
    written: int = 0
    """The tokens put into the cache; `written_1h` of them for an hour."""
    written_1h: int = 0


@dataclass(frozen=True, kw_only=True)
class Search:
    """A web search that the server runs itself."""

    id: str
    query: str
    found: str


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer to one request: `body` for a status other than 200; `events` replaces the streamed events."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    searches: tuple[Search, ...] = ()
    calls: tuple[Call, ...] = ()
    usage: Usage | None = Usage()
    finish: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    fault: Fault = ""
    fault_after: int = 0
    events: tuple[Any, ...] | None = None
    pause_s: float = 0.0
    """Before each event."""


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class OpenAIServer:
    """Answers the n-th request with the n-th reply, and all further ones with the last."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        self.replies = replies
        self.requests: list[Request] = []
        self.uploads: list[bytes] = []
        """The bodies of uploads of files."""
        self.refused_upload: Reply | None = None
        self.connections = 0
        self.handlers: set[asyncio.Task[None]] = set()
        self.asked = asyncio.Event()
        """Set with the first request."""
        self.disconnected = asyncio.Event()
        """Set when a client closed its connection in the middle of an answer."""
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.handlers.add(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            await self.answer_all(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while (request := await read_request(reader)) is not None:
                if (stored := self.file_api(request)) is not None:
                    await write_whole(writer, stored)
                    continue
                self.requests.append(request)
                self.asked.set()
                reply = self.refusal(request) or self.replies[min(len(self.requests), len(self.replies)) - 1]
                if not await self.answer(request, reply, reader, writer):
                    return

    async def answer(
        self, request: Request, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send the reply; return whether the connection can be used for another request."""
        if reply.status != 200:
            await write_whole(writer, reply)
            return True
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **reply.headers}
        writer.write(head(200, headers))
        events = list(self.stream(request, reply))
        for event in events[: reply.fault_after] if reply.fault else events:
            await asyncio.sleep(reply.pause_s)
            await write_chunk(writer, event)
        return await self.finish(reply, reader, writer)

    def refusal(self, request: Request) -> Reply | None:
        """Return the answer to a request that this server refuses; None to accept it."""
        return None

    def file_api(self, request: Request) -> Reply | None:
        """Record an upload in `uploads`, and return its answer; None for any other request."""
        if not request.path.partition("?")[0].endswith("/files"):
            return None
        self.uploads.append(request.body["raw"])
        return self.refused_upload or Reply(body=self.stored(f"file-{len(self.uploads)}"))

    def stored(self, file_id: str) -> dict[str, Any]:
        """Return the server's description of an uploaded file."""
        told = {"object": "file", "bytes": 9, "created_at": 1, "filename": "a", "purpose": "user_data"}
        return {"id": file_id, "status": "processed", **told}

    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        return stream_of(request, reply)

    async def finish(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        match reply.fault:
            case "cut":
                writer.transport.abort()
                return False
            case "stall":
                await writer.drain()
                with suppress(ConnectionError):
                    await reader.read()
                self.disconnected.set()
                return False
            case "torn":
                await write_chunk(writer, 'data: {"choices": [{"del')
            case "malformed":
                await write_chunk(writer, 'data: {"choices": [{"del\n\n')
            case "error":
                await write_chunk(writer, sse(reply.body))
            case _:
                pass
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def serve(*replies: Reply, kind: type[OpenAIServer] = OpenAIServer) -> AsyncIterator[OpenAIServer]:
    fake = kind(replies)
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()
        for handler in fake.handlers:
            handler.cancel()
        await asyncio.gather(*fake.handlers, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split(" ")[1], headers, json.loads(body) if body[:1] == b"{" else {"raw": body})


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def write_whole(writer: asyncio.StreamWriter, reply: Reply) -> None:
    text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
    kind = "text/html" if isinstance(reply.body, str) else "application/json"
    headers = {"Content-Type": kind, "Content-Length": str(len(text.encode())), **reply.headers}
    writer.write(head(reply.status, headers) + text.encode())
    await writer.drain()


async def write_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def sse(event: Any) -> str:
    if isinstance(event, str):
        return event
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def stream_of(request: Request, reply: Reply) -> Iterator[str]:
    if reply.events is not None:
        yield from map(sse, reply.events)
    elif request.path.endswith("/responses"):
        yield from map(sse, response_events(request.body["model"], reply))
    else:
        yield from map(sse, chat_chunks(request.body, reply))
        yield "data: [DONE]\n\n"


def chat_chunks(body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [choice],
        }

    model = f"{body['model']}-2026-01-01"
    yield chunk({"role": "assistant", "content": ""})
    for piece in reply.reasoning:
        yield chunk({"reasoning_content": piece})
    for piece in reply.text:
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk(
            {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}
        )
        for piece in call.arguments:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop"))
    if reply.usage and body.get("stream_options", {}).get("include_usage"):
        usage = {
            "prompt_tokens": reply.usage.input,
            "completion_tokens": reply.usage.output,
            "total_tokens": reply.usage.input + reply.usage.output,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cached}
            | ({"cache_write_tokens": reply.usage.written} if reply.usage.written else {}),
            "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        }
        yield chunk({}) | {"choices": [], "usage": usage}


def response_events(model: str, reply: Reply) -> Iterator[dict[str, Any]]:
    kind = "response.incomplete" if reply.finish else "response.completed"
    final: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "model": f"{model}-2026-01-01",
        "output": [],
    }
    yield {"type": "response.created", "response": final | {"status": "in_progress"}}
    for piece in reply.reasoning:
        yield {
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0,
            "summary_index": 0,
            "delta": piece,
        }
    for search in reply.searches:
        yield from search_events(search, 0)
    for piece in reply.text:
        yield {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": piece}
    for index, call in enumerate(reply.calls, start=2):
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": call.id, "name": call.name}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | {"arguments": ""}}
        for piece in call.arguments:
            yield {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}
        whole = item | {"arguments": "".join(call.arguments)}
        yield {"type": "response.output_item.done", "output_index": index, "item": whole}
    if reply.usage:
        final["usage"] = {
            "input_tokens": reply.usage.input,
            "output_tokens": reply.usage.output,
            "total_tokens": reply.usage.input + reply.usage.output,
            "input_tokens_details": {"cached_tokens": reply.usage.cached},
            "output_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        }
    details = {"incomplete_details": {"reason": reply.finish}} if reply.finish else {}
    yield {"type": kind, "response": final | {"status": kind.removeprefix("response.")} | details}


def search_item(search: Search) -> dict[str, Any]:
    sources = [{"type": "url", "url": search.found}]
    action = {"type": "search", "query": search.query, "sources": sources}
    return {"type": "web_search_call", "id": search.id, "status": "completed", "action": action}


def search_events(search: Search, index: int) -> Iterator[dict[str, Any]]:
    begun = {"type": "web_search_call", "id": search.id, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for state in ("in_progress", "searching", "completed"):
        yield {"type": f"response.web_search_call.{state}", "output_index": index, "item_id": search.id}
    yield {"type": "response.output_item.done", "output_index": index, "item": search_item(search)}
