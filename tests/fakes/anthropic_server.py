"""A real HTTP server on loopback that speaks Anthropic's Messages API, and refuses what the real one refuses.

The reasoning of an answer (`Reply.reasoning`) is a signed block, followed by a redacted one. A request with a call in
its history is answered with 400 unless exactly the same blocks precede the call.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from .openai_server import OpenAIServer, Reply, Request, Search, serve, sse

Json = dict[str, Any]


class AnthropicServer(OpenAIServer):
    """Answers the n-th request with the n-th reply, unless it refuses the request."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__(replies)
        self.thoughts: dict[str, list[Json]] = {}
        paused: list[Json] = []
        for reply in replies:
            before = [*paused, *opaque_blocks(reply)]
            self.thoughts |= {call.id: before for call in reply.calls}
            paused = before if reply.finish == "pause_turn" else []

    def refusal(self, request: Request) -> Reply | None:
        if not request.headers.keys() & {"authorization", "x-api-key"} or "max_tokens" not in request.body:
            return refused("a key and max_tokens are required")
        for message in request.body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            thought = [unmarked(block) for block in blocks if block["type"] in OPAQUE]
            for call in (block["id"] for block in blocks if block["type"] == "tool_use"):
                if thought != self.thoughts.get(call, thought):
                    return refused(f"what was thought before {call} is missing or was altered: {thought}")
        return None

    def stored(self, file_id: str) -> Json:
        told = {"filename": "a", "mime_type": "application/pdf", "size_bytes": 9, "downloadable": False}
        return {"id": file_id, "type": "file", "created_at": "2026-01-01T00:00:00Z", **told}

    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        events = reply.events if reply.events is not None else message_events(request.body["model"], reply)
        yield from map(sse, events)


def serve_anthropic(*replies: Reply) -> AbstractAsyncContextManager[Any]:
    return serve(*replies, kind=AnthropicServer)


def refused(why: str) -> Reply:
    return Reply(status=400, body=error_body("invalid_request_error", why))


def error_body(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def signature(thought: str) -> str:
    return f"signed/{hashlib.sha256(thought.encode()).hexdigest()}=="


def thinking_blocks(reply: Reply) -> list[Json]:
    thought = "".join(reply.reasoning)
    if not thought:
        return []
    return [
        {"type": "thinking", "thinking": thought, "signature": signature(thought)},
        {"type": "redacted_thinking", "data": f"redacted/{signature(thought)}"},
    ]


OPAQUE = {"thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result"}


def search_blocks(search: Search) -> list[Json]:
    found = {
        "type": "web_search_result",
        "url": search.found,
        "title": search.query,
        "encrypted_content": f"sealed/{signature(search.found)}",
        "page_age": None,
    }
    used = {
        "type": "server_tool_use",
        "id": search.id,
        "name": "web_search",
        "input": {"query": search.query},
    }
    return [used, {"type": "web_search_tool_result", "tool_use_id": search.id, "content": [found]}]


def opaque_blocks(reply: Reply) -> list[Json]:
    """Return the blocks that must be sent back with the calls of an answer."""
    return [*thinking_blocks(reply), *(block for search in reply.searches for block in search_blocks(search))]


def unmarked(block: Json) -> Json:
    """Return a block of a request without its cache mark."""
    return {name: value for name, value in block.items() if name != "cache_control"}


def message_events(model: str, reply: Reply) -> Iterator[Any]:
    usage: Json = {"input_tokens": 0, "output_tokens": 0}
    if reply.usage:
        counted = reply.usage
        fresh, written = counted.input - counted.cached - counted.written, counted.written
        usage = {"input_tokens": fresh, "cache_read_input_tokens": counted.cached, "output_tokens": 1}
        if written:
            each = {
                "ephemeral_5m_input_tokens": written - counted.written_1h,
                "ephemeral_1h_input_tokens": counted.written_1h,
            }
            usage |= {"cache_creation_input_tokens": written, "cache_creation": each}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": f"{model}-2026-01-01"}
    state = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": message | state}
    yield {"type": "ping"}
    for index, (block, deltas) in enumerate(content(reply)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = reply.finish or ("tool_use" if reply.calls else "end_turn")
    told: Json = {"output_tokens": reply.usage.output if reply.usage else 0}
    if reply.usage and reply.usage.reasoning:  # older models do not report reasoning tokens
        told["output_tokens_details"] = {"thinking_tokens": reply.usage.reasoning}
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": told}
    yield {"type": "message_stop"}


def content(reply: Reply) -> Iterator[tuple[Json, list[Json]]]:
    """Yield each block in its initial form, with its deltas."""
    if reply.reasoning:
        pieces = [{"type": "thinking_delta", "thinking": piece} for piece in reply.reasoning]
        signed = {"type": "signature_delta", "signature": signature("".join(reply.reasoning))}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*pieces, signed]
        yield thinking_blocks(reply)[1], []
    for search in reply.searches:
        used, result = search_blocks(search)
        written = json.dumps(used["input"])
        halves = (written[:5], written[5:])
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in halves]
        yield used | {"input": {}}, pieces
        yield result, []
    if reply.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.text]
    for call in reply.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in call.arguments]
