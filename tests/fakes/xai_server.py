"""A real gRPC server on loopback that answers xAI's Chat service from a list of replies."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from xai_sdk.proto import chat_pb2, chat_pb2_grpc, sample_pb2

from .openai_server import Reply, Request

STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}

Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
FAULTS: dict[str, Any] = {
    "cut": (grpc.StatusCode.UNAVAILABLE, "the connection was reset"),
    "torn": (grpc.StatusCode.INTERNAL, "the stream ended within a message"),
}


class XaiServer(chat_pb2_grpc.ChatServicer):
    """Answers the n-th request with the n-th reply, and all further ones with the last."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        self.replies = replies
        self.requests: list[Request] = []
        self.url = ""

    async def GetCompletionChunk(  # noqa: N802 - the name of the service
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        body = MessageToDict(request, preserving_proto_field_name=True)
        self.requests.append(Request(path="GetCompletionChunk", headers={}, body=body))
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        if reply.status != 200:
            await context.abort(STATUS[reply.status], reply.body, tuple(reply.headers.items()))
        events = list(reply.events if reply.events is not None else xai_chunks(request.model, reply))
        for event in events[: reply.fault_after] if reply.fault else events:
            yield event
        if reply.fault in FAULTS:
            await context.abort(*FAULTS[reply.fault])


def xai_chunks(model: str, reply: Reply) -> Iterator[Any]:
    def chunk(finish: Any = 0, **delta: Any) -> Any:
        output = chat_pb2.CompletionOutputChunk(
            index=0, finish_reason=finish, delta=chat_pb2.Delta(role=chat_pb2.ROLE_ASSISTANT, **delta)
        )
        return chat_pb2.GetChatCompletionChunk(id="c1", model=model, outputs=[output])

    for piece in reply.reasoning:
        yield chunk(reasoning_content=piece)
    for piece in reply.text:
        yield chunk(content=piece)
    for call in reply.calls:
        function = chat_pb2.FunctionCall(name=call.name, arguments="".join(call.arguments))
        made = chat_pb2.ToolCall(id=call.id, type=chat_pb2.TOOL_CALL_TYPE_CLIENT_SIDE_TOOL, function=function)
        yield chunk(tool_calls=[made])
    end = chunk(finish=sample_pb2.REASON_TOOL_CALLS if reply.calls else sample_pb2.REASON_STOP)
    if reply.usage:
        end.usage.prompt_tokens = reply.usage.input
        end.usage.completion_tokens = reply.usage.output - reply.usage.reasoning  # counted separately
        end.usage.total_tokens = reply.usage.input + reply.usage.output
        end.usage.cached_prompt_text_tokens = reply.usage.cached
        end.usage.reasoning_tokens = reply.usage.reasoning
    yield end


@asynccontextmanager
async def serve_xai(*replies: Reply) -> AsyncIterator[XaiServer]:
    fake = XaiServer(replies)
    server = grpc.aio.server()
    chat_pb2_grpc.add_ChatServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    fake.url = f"http://127.0.0.1:{port}"
    await server.start()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_without_closed_loops(loop.get_exception_handler()))
    try:
        yield fake
    finally:
        await server.stop(None)
        await asyncio.sleep(0)


def _without_closed_loops(handler: Handler | None) -> Handler:
    """Return a loop's exception handler that ignores gRPC's errors about the closed loops of earlier tests.

    gRPC has one poller per process: a late event for a closed loop is raised in the loop that runs now.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("exception")) == "Event loop is closed" and not loop.is_closed():
            return
        (handler or type(loop).default_exception_handler)(loop, context)

    return handle
