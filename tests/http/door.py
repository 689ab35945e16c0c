"""A door in this process: an application on a log in memory, asked as a server would ask it, byte by byte."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from foldlog.adapters.http import hooks_app
from foldlog.eventlog import Log
from foldlog.runtime import Agent, Registry, Runtime
from standardwebhooks.webhooks import Webhook

SECRETS = {
    "STANDARD": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "GITHUB": "It's a Secret to Everybody",
    "STRIPE": "whsec_stripe",
    "SLACK": "8f742231b10e8888abcd99yyyzzz85a5",
    "HMAC": "a secret of our own",
}
SCHEMES = tuple(name.lower() for name in SECRETS)
Headers = dict[str, str]


class Answer:
    """The answer to a request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any, path: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
) -> Answer:
    """Send one request to the application. Headers may hold whatever a server lets through."""
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"door"), *pairs],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(each.get("body", b"") for each in rest))


def signed(scheme: str, body: bytes, *, at: float | None = None, delivery: str = "d1") -> Headers:
    """Return the headers of a sender of this scheme, at a time."""
    now = time.time() if at is None else at
    secret, stamp = SECRETS[scheme.upper()], str(int(now))
    headers = {"Content-Type": "application/json"}

    def digest(content: bytes) -> bytes:
        return hmac.digest(secret.encode(), content, hashlib.sha256)

    match scheme:
        case "standard":  # the library's own sender
            # The library takes a time without a zone, or one of any zone, for one in UTC.
            signature = Webhook(secret).sign(delivery, datetime.fromtimestamp(now, UTC), body.decode())
            return headers | {
                "webhook-id": delivery,
                "webhook-timestamp": stamp,
                "webhook-signature": signature,
            }
        case "github":
            return headers | {
                "X-Hub-Signature-256": f"sha256={digest(body).hex()}",
                "X-GitHub-Delivery": delivery,
            }
        case "stripe":
            made = digest(f"{stamp}.".encode() + body).hex()
            return headers | {"Stripe-Signature": f"t={stamp},v1={'0' * 64},v1={made},v0=other"}
        case "slack":
            made = digest(f"v0:{stamp}:".encode() + body).hex()
            return headers | {"X-Slack-Signature": f"v0={made}", "X-Slack-Request-Timestamp": stamp}
        case _:
            made = base64.b64encode(digest(f"{stamp}.".encode() + body)).decode()
            return headers | {"X-Signature": f"v1:{made}", "X-Time": stamp}


def tables() -> dict[str, dict[str, Any]]:
    """Return a hook for each scheme, which starts a run."""
    common = {"agent": "triager", "input": "${body.text}", "executor": "local"}
    found: dict[str, dict[str, Any]] = {
        scheme: {"verify": scheme, "secret": f"secret://{scheme.upper()}", **common} for scheme in SCHEMES
    }
    found["hmac"]["hmac"] = {
        "header": "X-Signature",
        "prefix": "v1:",
        "encoding": "base64",
        "timestamp": "X-Time",
    }
    found["hmac"]["key"] = "${body.id}"
    return found


def triager() -> Agent:
    """Return an agent that answers at once, and may be asked any number of times."""
    return Agent("triager", model="scripted:triage.json")


@contextlib.asynccontextmanager
async def door(log: Log, **given: Any) -> AsyncIterator[tuple[Any, Runtime]]:
    """Open a runtime on the log, with its application; `given` are those of `hooks_app`."""
    registry = Registry(agents=[triager()])
    async with Runtime.open(log=log, registry=registry) as runtime:
        yield hooks_app(runtime, **({"hooks": tables()} | given)), runtime


async def runs(runtime: Runtime) -> list[str]:
    """Return the ids of all runs of the log."""
    return [row.run_id for row in await runtime.list_runs()]
