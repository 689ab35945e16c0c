"""A real HTTP server on loopback that speaks Gemini's streamGenerateContent, and refuses what the real one refuses.

The first call of an answer with reasoning (`Reply.reasoning`) carries a thought signature. A request whose history has
that call without exactly this signature is answered with 400.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from .openai_server import Call, OpenAIServer, Reply, Request, Search, serve, sse

Json = dict[str, Any]


class GeminiServer(OpenAIServer):
    """Answers the n-th request with the n-th reply, unless it refuses the request."""

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        super().__init__(replies)
        self.signatures = {
            key_of(reply.calls[0]): signature(reply) for reply in replies if reply.calls and reply.reasoning
        }

        self.searched = {
            key_of(call): [part for each in reply.searches for part in search_parts(each)]
            for reply in replies
            for call in reply.calls
        }

    def refusal(self, request: Request) -> Reply | None:
        if "x-goog-api-key" not in request.headers or "alt=sse" not in request.path:
            return refused("x-goog-api-key and alt=sse are required")
        for part, beside in (
            (part, content["parts"]) for content in request.body["contents"] for part in content["parts"]
        ):
            call = part.get("functionCall")
            if call is None:
                continue
            made = [compared(each) for each in beside if each.keys() & {"toolCall", "toolResponse"}]
            if made != list(map(compared, self.searched.get((call["name"], json.dumps(call["args"])), []))):
                return refused(f"what was searched before {call['name']} is missing or was altered: {made}")
            wanted = self.signatures.get((call["name"], json.dumps(call["args"])))
            if wanted is not None and decoded(part.get("thoughtSignature", "")) != wanted:
                return refused(f"the function call {call['name']} lacks its thought_signature")
        return None

    def file_api(self, request: Request) -> Reply | None:
        """Take a file in two requests, and have it ready at the third, as the real one does with large files."""
        path = request.path.partition("?")[0]
        if path.endswith("/upload/v1beta/files"):
            url = f"{self.url.removesuffix('/v1')}/session/{len(self.uploads) + 1}"
            return self.refused_upload or Reply(body={}, headers={"X-Goog-Upload-URL": url})
        if "/session/" in path:
            self.uploads.append(request.body["raw"])
            file = self.stored(f"files/{len(self.uploads)}") | {"state": "PROCESSING"}
            return Reply(body={"file": file}, headers={"X-Goog-Upload-Status": "final"})
        if "/v1beta/files/" in path:
            return Reply(body=self.stored(path.removeprefix("/v1beta/")))
        return None

    def stored(self, file_id: str) -> Json:
        uri = f"https://generativelanguage.googleapis.com/v1beta/{file_id}"
        return {"name": file_id, "uri": uri, "mimeType": "application/pdf", "state": "ACTIVE"}

    def stream(self, request: Request, reply: Reply) -> Iterator[str]:
        model = request.path.rpartition("/")[2].partition(":")[0]
        yield from map(sse, reply.events if reply.events is not None else chunks(model, reply))


def serve_gemini(*replies: Reply) -> AbstractAsyncContextManager[Any]:
    return serve(*replies, kind=GeminiServer)


def key_of(call: Call) -> tuple[str, str]:
    return call.name, json.dumps(json.loads("".join(call.arguments) or "{}"))


def refused(why: str) -> Reply:
    return Reply(status=400, body=error_body(400, "INVALID_ARGUMENT", why))


def error_body(code: int, status: str, message: str, *details: Json) -> Json:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


def signature(reply: Reply) -> bytes:
    return hashlib.sha512("".join(reply.reasoning).encode()).digest()


def decoded(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "==")


def compared(part: Json) -> Json:
    """Return a part in a form for comparison, since clients write base64 in two alphabets and names in two cases."""
    found = {name: each for name, each in part.items() if name != "thoughtSignature"}
    for name, each in found.items():
        found[name] = {("toolType" if key == "tool_type" else key): value for key, value in each.items()}
    return found | {"thoughtSignature": decoded(part.get("thoughtSignature", ""))}


def chunk(model: str, *parts: Json, finish: str = "") -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": f"{model}-001", "responseId": "r1"}


def search_parts(search: Search) -> list[Json]:
    """Return the parts with which Gemini 3 reports a search, which must be sent back unchanged."""
    named = {"id": search.id, "toolType": "GOOGLE_SEARCH_WEB"}
    signed = base64.b64encode(hashlib.sha512(search.id.encode()).digest()).decode()
    return [
        {"toolCall": {**named, "args": {"queries": [search.query]}}, "thoughtSignature": signed},
        {"toolResponse": {**named, "response": {"found": search.found}}},
    ]


def chunks(model: str, reply: Reply) -> Iterator[Json]:
    for piece in reply.reasoning:
        yield chunk(model, {"text": piece, "thought": True})
    for search in reply.searches:
        yield from (chunk(model, part) for part in search_parts(search))
    for piece in reply.text:
        yield chunk(model, {"text": piece})
    for index, call in enumerate(reply.calls):
        part: Json = {
            "functionCall": {"name": call.name, "args": json.loads("".join(call.arguments) or "{}")}
        }
        if call.id:
            part["functionCall"]["id"] = call.id
        if reply.reasoning and not index:
            part["thoughtSignature"] = base64.b64encode(signature(reply)).decode()
        yield chunk(model, part)
    last = chunk(model, {"text": ""}, finish=reply.finish or "STOP")
    if reply.usage:
        last["usageMetadata"] = {
            "promptTokenCount": reply.usage.input,
            "cachedContentTokenCount": reply.usage.cached,
            "candidatesTokenCount": reply.usage.output - reply.usage.reasoning,
            "thoughtsTokenCount": reply.usage.reasoning,
            "totalTokenCount": reply.usage.input + reply.usage.output,
        }
    yield last
