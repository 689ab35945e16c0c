"""OpenAI's two APIs with a reasoning model: requests in which its reasoning is missing or altered are refused.

Responses: an answer is reasoning, the server's searches, text, reasoning again, and then calls, each after reasoning of
its own. A request with one of the calls must contain the whole answer in this order, and no other reasoning. Chat: an
assistant message with calls must have `reasoning_content`, as DeepSeek requires.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from .openai_server import OpenAIServer, Reply, Request, response_events, search_events, search_item, sse

Json = dict[str, Any]


class ReasoningServer(OpenAIServer):
    """Answers the n-th request with the n-th reply, unless it refuses the request."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__(replies)
        self.written = [output_items(reply) for reply in replies if reply.reasoning]
        self.thoughts = {call.id: "".join(reply.reasoning) for reply in replies for call in reply.calls}

    def refusal(self, request: Request) -> Reply | None:
        if request.path.endswith("/responses"):
            why = self.refused_items(request.body)
        else:
            why = self.refused_messages(request.body["messages"])
        error = {"error": {"message": why, "type": "invalid_request_error"}}
        return Reply(status=400, body=error) if why else None

    def refused_items(self, body: Json) -> str:
        """Return why the input is refused; empty if it is not."""
        if body["store"] or "reasoning.encrypted_content" not in body.get("include", ()):
            return "nothing is stored here, so that the encrypted content has to be asked for"
        given, expected = body["input"], list[Json]()
        calls = {item["call_id"] for item in given if item.get("type") == "function_call"}
        for items in self.written:
            if any(item.get("call_id") in calls for item in items):
                expected += items
        said = [
            item for item in given if item.get("type") in {"reasoning", "web_search_call"} or item in expected
        ]
        return (
            "" if as_bytes(said) == as_bytes(expected) else f"reasoning is missing, altered or moved: {said}"
        )

    def refused_messages(self, messages: list[Json]) -> str:
        """Return why the messages are refused; empty if they are not."""
        for message in messages:
            for call in message.get("tool_calls") or ():
                if message.get("reasoning_content") != self.thoughts.get(call["id"], ""):
                    return "The `reasoning_content` in the thinking mode must be passed back to the API."
        return ""

    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        if reply.reasoning and request.path.endswith("/responses") and reply.events is None:
            yield from map(sse, reasoned_events(request.body["model"], reply))
        else:
            yield from super().stream(request, reply)


def as_bytes(items: list[Json]) -> bytes:
    return json.dumps(items, sort_keys=True).encode()


def reasoning_item(number: int, reply: Reply) -> Json:
    thought = "".join(reply.reasoning)
    digest = hashlib.sha256(f"{number} {thought} {reply.calls}".encode()).hexdigest()
    summary = [{"type": "summary_text", "text": thought}] if number == 0 else []
    return {
        "id": f"rs_{digest[:8]}",
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": f"{digest}==",
    }


def output_items(reply: Reply) -> list[Json]:
    """Return an answer in the form that the next request must contain."""
    items = [reasoning_item(0, reply), *map(search_item, reply.searches)]
    if reply.text:
        items += [{"role": "assistant", "content": "".join(reply.text)}, reasoning_item(1, reply)]
    for number, call in enumerate(reply.calls, start=2):
        items += [reasoning_item(number, reply)] if number > 2 else []
        arguments = "".join(call.arguments)
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
    return items


def reasoned_events(model: str, reply: Reply) -> Iterator[Json]:
    """Yield the events of an answer with all of its items."""
    plain = list(response_events(model, reply))
    yield plain[0]
    searches = {search.id: search for search in reply.searches}
    for index, item in enumerate(output_items(reply)):
        if item.get("role"):
            for piece in reply.text:
                yield {"type": "response.output_text.delta", "output_index": index, "delta": piece}
            content = [{"type": "output_text", "text": item["content"], "annotations": []}]
            whole = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
            yield {"type": "response.output_item.done", "output_index": index, "item": whole}
            continue
        if item["type"] == "web_search_call":
            yield from search_events(searches[item["id"]], index)
            continue
        if item["type"] == "reasoning":
            for part in item["summary"]:
                yield {
                    "type": "response.reasoning_summary_text.delta",
                    "output_index": index,
                    "summary_index": 0,
                    "delta": part["text"],
                }
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield plain[-1]
