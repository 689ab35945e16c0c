"""Agents for the clients of protocols, and the server that they are clients of."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from foldlog.eventlog import Log, MemoryLog

from tests.protocols.counter import TOKENS, Counter


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = {"tool_calls": [{"id": "call-1", "name": "find_order", "arguments": {"order_id": "17"}}]}
    pay = {
        "text": ["It was ", "paid twice."],
        "tool_calls": [{"id": "call-2", "name": "refund", "arguments": {"order_id": "17", "amount_eur": 40}}],
    }
    scripts = {
        "refunds": [
            find,
            pay,
            {"text": ["Order 17 ", "is refunded."], "usage": {"input_tokens": 9, "output_tokens": 5}},
        ],
        "greeter": [{"text": ["Hello ", "there."]}],
        "sleeper": [{"tool_calls": [{"id": "call-3", "name": "sleep", "arguments": {}}]}, {"text": "Awake."}],
    }
    for name, turns in scripts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"turns": turns}))
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))


@pytest.fixture(params=["local", "durable"])
async def counter(request: pytest.FixtureRequest) -> AsyncIterator[Counter]:
    """A server of all protocols, for runs of one executor."""
    async with opened(MemoryLog(), request.param) as found:
        yield found


@pytest.fixture
async def local(anyio_backend: str) -> AsyncIterator[Counter]:
    """A server whose process drives the runs."""
    async with opened(MemoryLog(), "local") as found:
        yield found


@contextlib.asynccontextmanager
async def opened(log: Log, executor: str) -> AsyncIterator[Counter]:
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in TOKENS.items()}
    roles = {"ada": "operator", "bo": "operator", "vera": "viewer"}
    tokens = {name: {"sha256": digest, "role": roles[name]} for name, digest in digests.items()}
    async with Counter(log, executor, tokens) as found:
        yield found
