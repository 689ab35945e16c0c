"""The demo's model: a server for OpenAI chat completions that searches once and then answers.

    python -m foldlog.adapters.demo.model_server --port 0      # prints its base URL, then serves until it is killed

Its answer depends only on the request's messages, so any worker gets the same one: if they contain no tool result, it
calls the tool whose name ends with `__search`; otherwise it streams "Final answer".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOL_SUFFIX = "__search"
CALL_ID = "call_search"
ARGUMENTS = {"query": "answer"}
ANSWER = ("Final ", "answer")
_USAGE_OF_CALL = (50, 10)
_USAGE_OF_ANSWER = (80, 5)

Json = dict[str, Any]


class DemoModel(BaseHTTPRequestHandler):
    """Answers `POST /v1/chat/completions` with a stream; closing the connection ends the response."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta in (*answer(request), None):
            data = "[DONE]" if delta is None else json.dumps(delta)
            self.wfile.write(f"data: {data}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: the terminal belongs to the demo."""


def answer(request: Json) -> Iterator[Json]:
    """Yield the chunks of the answer to a request."""
    if any(message["role"] == "tool" for message in request["messages"]):
        yield from (_chunk(request, {"content": piece}) for piece in ANSWER)
        yield from _end(request, "stop", _USAGE_OF_ANSWER)
        return
    function = {"name": _search_tool(request), "arguments": json.dumps(ARGUMENTS)}
    call = {"index": 0, "id": CALL_ID, "type": "function", "function": function}
    yield _chunk(request, {"tool_calls": [call]})
    yield from _end(request, "tool_calls", _USAGE_OF_CALL)


def _search_tool(request: Json) -> str:
    names: list[str] = [tool["function"]["name"] for tool in request.get("tools", [])]
    return next((name for name in names if name.endswith(TOOL_SUFFIX)), TOOL_SUFFIX)


def _end(request: Json, reason: str, usage: tuple[int, int]) -> Iterator[Json]:
    read, written = usage
    yield _chunk(request, {}, reason)
    tokens = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    yield {**_chunk(request, {}), "choices": [], "usage": tokens}


def _chunk(request: Json, delta: Json, reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "demo",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": request["model"],
        "choices": [choice],
    }


def main(arguments: list[str] | None = None) -> None:
    """Serve on loopback; the base URL is the first line of standard output."""
    parser = argparse.ArgumentParser(description="The demo's model server.")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    port: int = parser.parse_args(arguments).port
    with ThreadingHTTPServer(("127.0.0.1", port), DemoModel) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/v1\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
