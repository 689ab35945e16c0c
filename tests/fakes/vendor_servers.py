"""Real HTTP servers on loopback that speak the protocols of other vendors.

Groq, Mistral, OpenRouter, Azure and Hugging Face stream chunks of chat completions, each with peculiarities; Cohere
streams events of its own, Bedrock messages of AWS's binary event stream.
"""

import asyncio
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .openai_server import OpenAIServer, Reply, Request, chat_chunks, head, sse

Json = dict[str, Any]


def with_usage(model: str) -> Json:
    return {"model": model, "stream_options": {"include_usage": True}}


def renamed(chunks: Iterator[Json], **names: str) -> Iterator[Json]:
    """Yield the chunks with renamed fields in their deltas."""
    for chunk in chunks:
        for choice in chunk["choices"]:
            choice["delta"] = {names.get(name, name): each for name, each in choice["delta"].items()}
        yield chunk


def groq_chunks(model: str, reply: Reply) -> Iterator[Json]:
    """Yield Groq's chunks: usage is in `x_groq` of the chunk with the finish reason."""
    last: Json | None = None
    for chunk in renamed(chat_chunks(with_usage(model), reply), reasoning_content="reasoning"):
        if not chunk["choices"] and last is not None:
            last["x_groq"] = {"id": "req_1", "usage": chunk["usage"]}
            continue
        if last is not None:
            yield last
        last = chunk
    if last is not None:
        yield last


def mistral_chunks(model: str, reply: Reply) -> Iterator[Json]:
    """Yield Mistral's chunks: reasoning is in parts of the content, calls are whole, usage is in the last chunk."""
    last: Json | None = None
    whole = tuple(replace(call, arguments=()) for call in reply.calls)
    written = {call.id + str(number): "".join(call.arguments) for number, call in enumerate(reply.calls)}
    for chunk in chat_chunks(with_usage(model), replace(reply, calls=whole)):
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                call["function"]["arguments"] = written[f"{call['id']}{call['index']}"]
        if not chunk["choices"] and last is not None:
            last["usage"] = chunk["usage"]
            continue
        for choice in chunk["choices"]:
            if (thought := choice["delta"].pop("reasoning_content", None)) is not None:
                thinking = [{"type": "text", "text": thought}]
                choice["delta"]["content"] = [{"type": "thinking", "thinking": thinking}]
        if last is not None:
            yield last
        last = chunk
    if last is not None:
        yield last


def openrouter_chunks(model: str, reply: Reply) -> Iterator[Json]:
    for chunk in renamed(chat_chunks(with_usage(model), reply), reasoning_content="reasoning"):
        for choice in chunk["choices"]:
            choice["native_finish_reason"] = choice["finish_reason"]
        yield chunk | {"provider": "Somebody"}


def plain_chunks(model: str, reply: Reply) -> Iterator[Json]:
    return chat_chunks(with_usage(model), reply)


class ChatServer(OpenAIServer):
    """Serves chat completions in the chunks of a vendor."""

    chunks = staticmethod(plain_chunks)

    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        events = reply.events
        model = request.body.get("model", "gpt-x")
        yield from map(sse, events if events is not None else self.chunks(model, reply))
        if events is None:
            yield "data: [DONE]\n\n"


class GroqServer(ChatServer):
    chunks = staticmethod(groq_chunks)


class MistralServer(ChatServer):
    chunks = staticmethod(mistral_chunks)


class OpenRouterServer(ChatServer):
    chunks = staticmethod(openrouter_chunks)


def cohere_events(_model: str, reply: Reply) -> Iterator[Json]:
    yield {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}}
    index = 0
    for kind, pieces in (("thinking", reply.reasoning), ("text", reply.text)):
        if not pieces:
            continue
        start = {"type": kind, kind: ""}
        yield {"type": "content-start", "index": index, "delta": {"message": {"content": start}}}
        for piece in pieces:
            yield {"type": "content-delta", "index": index, "delta": {"message": {"content": {kind: piece}}}}
        yield {"type": "content-end", "index": index}
        index += 1
    for number, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": ""}
        begun = {"id": call.id, "type": "function", "function": function}
        yield {"type": "tool-call-start", "index": number, "delta": {"message": {"tool_calls": begun}}}
        for piece in call.arguments:
            more = {"tool_calls": {"function": {"arguments": piece}}}
            yield {"type": "tool-call-delta", "index": number, "delta": {"message": more}}
        yield {"type": "tool-call-end", "index": number}
    reason = reply.finish or ("TOOL_CALL" if reply.calls else "COMPLETE")
    end: Json = {"finish_reason": reason}
    if reply.usage:
        tokens = {"input_tokens": reply.usage.input, "output_tokens": reply.usage.output}
        end["usage"] = {"billed_units": tokens, "tokens": tokens, "cached_tokens": reply.usage.cached}
    yield {"type": "message-end", "delta": end}


class CohereServer(OpenAIServer):
    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        events = reply.events if reply.events is not None else cohere_events(request.body["model"], reply)
        yield from map(sse, events)


def bedrock_events(_model: str, reply: Reply) -> Iterator[Json]:
    """Yield each event as its name and its payload."""
    yield {"messageStart": {"role": "assistant"}}
    index = 0
    if reply.reasoning:
        for piece in reply.reasoning:
            delta = {"reasoningContent": {"text": piece}}
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
        index += 1
    if reply.text:
        for piece in reply.text:
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": piece}}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
        index += 1
    for number, call in enumerate(reply.calls, start=index):
        begun = {"toolUse": {"toolUseId": call.id, "name": call.name}}
        yield {"contentBlockStart": {"contentBlockIndex": number, "start": begun}}
        for piece in call.arguments:
            delta = {"toolUse": {"input": piece}}
            yield {"contentBlockDelta": {"contentBlockIndex": number, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": number}}
    yield {"messageStop": {"stopReason": reply.finish or ("tool_use" if reply.calls else "end_turn")}}
    if reply.usage:
        fresh = reply.usage.input - reply.usage.cached - reply.usage.written
        counts = {
            "inputTokens": fresh,
            "outputTokens": reply.usage.output,
            "cacheReadInputTokens": reply.usage.cached,
            "cacheWriteInputTokens": reply.usage.written,
        }
        yield {
            "metadata": {
                "usage": counts | {"totalTokens": fresh + reply.usage.output},
                "metrics": {"latencyMs": 1},
            }
        }


def event_stream_message(event: Any) -> bytes:
    """Encode a message of AWS's event stream: lengths, checksums, text headers, and a JSON payload."""
    if isinstance(event, str):
        return event.encode()
    ((name, payload),) = event.items()
    kind = ":exception-type" if name.endswith("Exception") else ":event-type"
    message_type = "exception" if name.endswith("Exception") else "event"
    headers = b"".join(
        struct.pack(">B", len(key)) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in (
            (kind, name),
            (":content-type", "application/json"),
            (":message-type", message_type),
        )
    )
    body = json.dumps(payload).encode()
    lengths = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + body
    return whole + struct.pack(">I", zlib.crc32(whole))


class BedrockServer(OpenAIServer):
    """Serves the Converse API. The faults `torn` and `malformed` end the stream within a message."""

    async def answer(
        self, request: Request, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if reply.status != 200:
            return await super().answer(request, reply, reader, writer)
        kind = "application/vnd.amazon.eventstream"
        writer.write(head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked", **reply.headers}))
        events = list(reply.events if reply.events is not None else bedrock_events("", reply))
        for event in events[: reply.fault_after] if reply.fault else events:
            await asyncio.sleep(reply.pause_s)
            await self.write(writer, event_stream_message(event))
        if reply.fault in {"torn", "malformed"}:
            await self.write(writer, event_stream_message({"messageStop": {}})[:20])
        if reply.fault == "cut":
            writer.transport.abort()
            return False
        if reply.fault == "stall":
            return await self.finish(reply, reader, writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
