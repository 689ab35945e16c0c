"""Agents over NATS, by the Synadia Agent Protocol, asked message by message as its definition says."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import nats
import platformdirs
import pytest
from foldlog.adapters.cli.protocols import protocol_routes
from foldlog.adapters.nats_agents.envelope import BadPrompt, read_prompt
from foldlog.adapters.protocols.door import Door
from foldlog.eventlog import ConfigError, MemoryLog
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import File, Host, Registry, Runtime, Worker
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from tests.jetstream.support import Gate
from tests.protocols.counter import Counter

pytestmark = pytest.mark.anyio
ORDER = "Order 17 was paid twice"
READ_S = 60.0
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    async with EphemeralServer() as found:
        yield found


@contextlib.asynccontextmanager
async def served(server: EphemeralServer, executor: str, registry: Registry) -> AsyncIterator[Runtime]:
    """Serve the agents over NATS; for the durable executor with a worker."""
    async with contextlib.AsyncExitStack() as stack:
        opened = Runtime.open(server.url, namespace=executor, registry=registry)
        runtime = await stack.enter_async_context(opened)
        if executor == "durable":
            worker = Worker(Host(log=runtime.log, registry=registry, worker="w-1"), grace_s=5.0)
            serving = asyncio.create_task(worker.serve())
            stack.push_async_callback(asyncio.wait_for, serving, 30)
            stack.callback(worker.stop)
        nobody = cast("Any", None)
        await stack.enter_async_context(protocol_routes(("nats",), runtime, nobody, executor=executor))
        yield runtime


class Stream:
    """The answers to one prompt, up to the empty message."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.chunks: list[dict[str, Any]] = []
        self.error = ""

    async def ask(self, subject: str, payload: bytes, *answers: bytes, key: str = "") -> Stream:
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox)
        headers = {"Nats-Msg-Id": key} if key else None
        await self._client.publish(subject, payload, reply=inbox, headers=headers)
        coming = list(answers)
        while (message := await subscription.next_msg(timeout=READ_S)).data or message.headers:
            if message.headers:
                self.error = message.headers["Nats-Service-Error-Code"]
                continue
            self.chunks.append(json.loads(message.data))
            if self.chunks[-1]["type"] == "query" and coming:
                await self._client.publish(self.chunks[-1]["data"]["reply_subject"], coming.pop(0))
            elif self.chunks[-1]["type"] == "query":
                break
        await subscription.unsubscribe()
        return self

    def said(self, kind: str) -> list[Any]:
        return [chunk["data"] for chunk in self.chunks if chunk["type"] == kind]

    @property
    def run(self) -> str:
        return str(self.said("status")[1]).removeprefix("run ")


async def subject_of(client: Client, agent: str, namespace: str) -> str:
    """Return the prompt subject of an agent, from its service's own record."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish("$SRV.INFO.agents", b"", reply=inbox)
    while True:
        info = json.loads((await subscription.next_msg(timeout=READ_S)).data)
        if (info["metadata"]["session"], info["metadata"]["owner"]) == (agent, namespace):
            assert (info["name"], info["metadata"]["protocol_version"]) == ("agents", "0.3")
            (prompt,) = [each for each in info["endpoints"] if each["name"] == "prompt"]
            assert prompt["queue_group"] == "agents"
            await subscription.unsubscribe()
            return str(prompt["subject"])


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_an_agent_is_found_prompted_and_its_approval_is_a_query(
    server: EphemeralServer, executor: str
) -> None:
    registry = Counter(MemoryLog(), executor, {}).registry
    client = await nats.connect(server.url)
    async with served(server, executor, registry) as runtime:
        subject = await subject_of(client, "refunds", executor)
        status = await client.request(f"agents.status.foldlog.{executor}.refunds", timeout=READ_S)
        assert json.loads(status.data)["session"] == "refunds"
        asked = await Stream(client).ask(subject, ORDER.encode(), key="order-17")
        assert asked.said("status")[0] == "ack"
        assert asked.said("response") == ["It was paid twice."]
        assert asked.said("query")[0]["prompt"].startswith("refunds asks for approval (tool): refund")

    async with served(server, executor, registry) as runtime:  # another server: the same prompt, the same run
        envelope = json.dumps({"prompt": "go on", "run": asked.run, "of": "tomorrow"}).encode()
        done = await Stream(client).ask(subject, envelope, b'{"prompt": "Yes."}')
        assert done.said("response") == ["It was paid twice.", "\n\nOrder 17 is refunded."]
        again = await Stream(client).ask(subject, ORDER.encode(), key="order-17")
        assert (again.run, again.said("response")) == (asked.run, done.said("response"))
        (row,) = await runtime.approvals(pending=False)
        assert (row.decision, row.by, done.error) == ("approved", "nats", "")
    await client.close()


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_a_run_goes_on_without_its_caller_is_told_to_another_and_ends_both_once_it_is_cancelled(
    server: EphemeralServer, executor: str
) -> None:
    counter = Counter(MemoryLog(), executor, {})
    client = await nats.connect(server.url)
    async with served(server, executor, counter.registry) as runtime:
        subject = await subject_of(client, "sleeper", executor)
        inbox = client.new_inbox()
        leaving = await client.subscribe(inbox)
        await client.publish(subject, b"sleep", reply=inbox)
        told = [json.loads((await leaving.next_msg(timeout=READ_S)).data)["data"] for _ in range(2)]
        await leaving.unsubscribe()
        await counter.asleep.wait()
        run = runtime.get_run(told[1].removeprefix("run "))
        assert (await run.state()).status == "running"
        again = json.dumps({"prompt": "Who is it?", "run": run.run_id}).encode()
        streams = [asyncio.create_task(Stream(client).ask(subject, again)) for _ in range(2)]
        await run.cancel("not needed", by="ada")
        for stream in await asyncio.gather(*streams):
            assert (stream.run, stream.error) == (run.run_id, "500")
        state = await run.state()
        assert (state.status, state.cancel_by) == ("cancelled", "ada")
        assert sum(row.agent == "sleeper" for row in await runtime.list_runs()) == 1
    await client.close()


def synadia_python() -> Path:
    """Return the Python with the client of Synadia; the first call installs it, outside of the source tree."""
    wanted = HERE / "synadia_client.txt"
    digest = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = platformdirs.user_cache_path("foldlog-tests", appauthor=False) / f"synadia-{digest}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", wanted]
        subprocess.run(pip, check=True)
        (home / "ready").touch()
    return python


class Synadia:
    """The client's program under way, or at its end."""

    def __init__(self, python: Path, url: str, *args: str) -> None:
        command = [python, HERE / "synadia_client.py", url, *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    async def next(self) -> dict[str, str]:
        """Return its next message; empty at the end."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), READ_S)
        return json.loads(line) if line else {}

    async def rest(self) -> list[dict[str, str]]:
        """Return its messages up to the end."""
        found = []
        while message := await self.next():
            found.append(message)
        with self.process:
            assert await asyncio.to_thread(self.process.wait, READ_S) == 0
        return found


@pytest.mark.nightly
@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_the_client_of_synadia_uses_a_tool_answers_an_approval_comes_back_and_hears_of_a_cancel(
    server: EphemeralServer, executor: str
) -> None:
    python = await asyncio.to_thread(synadia_python)
    counter = Counter(MemoryLog(), executor, {})
    at = (server.url, executor)
    async with served(server, executor, counter.registry):
        left = await Synadia(python, *at, "refunds", ORDER, "").rest()
        assert [message["text"] for message in left if "text" in message] == ["It was paid twice."]
        assert left[-1]["query"].startswith("refunds asks for approval (tool): refund")
        run_id = left[1]["status"].removeprefix("run ")
    async with served(server, executor, counter.registry) as runtime:  # another server
        done = await Synadia(python, *at, "refunds", "go on", "yes", run_id).rest()
        assert "".join(message.get("text", "") for message in done) == (
            "It was paid twice.\n\nOrder 17 is refunded."
        )
        (row,) = [row for row in await runtime.approvals(pending=False) if row.run_id == run_id]
        assert (row.decision, row.by) == ("approved", "nats")
        sleeping = Synadia(python, *at, "sleeper", "sleep", "")
        while "run " not in (message := await sleeping.next())["status"]:
            pass
        await counter.asleep.wait()
        await runtime.get_run(message["status"].removeprefix("run ")).cancel(by="ada")
        (ended,) = [message for message in await sleeping.rest() if "error" in message]
        assert "cancelled" in ended["error"]


async def test_odd_prompts_are_errors_of_the_protocol_and_end_their_streams(server: EphemeralServer) -> None:
    registry = Counter(MemoryLog(), "local", {}).registry
    client = await nats.connect(server.url)
    async with served(server, "local", registry) as runtime:
        subject = await subject_of(client, "greeter", "local")
        for payload in (b"", b"{", b"{}", b'{"prompt": 1}', b"\xff", b'{"prompt": "x", "run": "nope"}'):
            assert (await Stream(client).ask(subject, payload)).error == "400"
        refunds = await subject_of(client, "refunds", "local")
        odd = await Stream(client).ask(refunds, b"Order 18", b"perhaps")
        assert odd.error == "400"
        no = await Stream(client).ask(refunds, json.dumps({"prompt": "-", "run": odd.run}).encode(), b"no")
        assert no.said("response")[-1] == "\n\nOrder 17 is refunded."
        sleeper = await subject_of(client, "sleeper", "local")
        inbox = client.new_inbox()
        sleeping = await client.subscribe(inbox)
        await client.publish(sleeper, b"sleep", reply=inbox)
        await sleeping.next_msg(timeout=READ_S)
        told = json.loads((await sleeping.next_msg(timeout=READ_S)).data)
        run = runtime.get_run(told["data"].removeprefix("run "))
        await run.cancel(by="ada")
        ended = await sleeping.next_msg(timeout=READ_S)
        assert (ended.headers or {})["Nats-Service-Error-Code"] == "500"
        assert (await sleeping.next_msg(timeout=READ_S)).data == b""
    await client.close()


async def test_the_server_knows_the_agents_before_they_count_as_served(server: EphemeralServer) -> None:
    registry = Counter(MemoryLog(), "local", {}).registry
    client = await nats.connect(server.url)
    async with (
        Gate(server.port) as gate,
        Runtime.open(gate.url, namespace="far", registry=registry) as runtime,
    ):
        gate.lag_s = 0.1
        async with protocol_routes(("nats",), runtime, cast("Any", None), executor="local"):
            answers = [
                client.request(f"agents.status.foldlog.far.{agent}", timeout=READ_S)
                for agent in registry.agents
            ]
            assert len(await asyncio.gather(*answers)) > 1
    await client.close()


async def test_a_log_that_is_not_on_a_server_is_refused() -> None:
    registry = Counter(MemoryLog(), "local", {}).registry
    async with Runtime.open("memory://", registry=registry) as runtime:
        with pytest.raises(ConfigError, match="needs a log on a NATS server"):
            async with protocol_routes(("nats",), runtime, cast("Any", None), executor="local"):
                pass


def test_attachments_come_as_files() -> None:
    content = base64.b64encode(b"Hello").decode()
    files = [{"filename": "a.txt", "content": content}]
    prompt = read_prompt(json.dumps({"prompt": "Read", "attachments": files}).encode())
    assert isinstance(prompt.content, list)
    text, file = prompt.content
    assert (text, isinstance(file, File) and file.data) == ("Read", b"Hello")
    for name in ("", "../a.txt", 1):
        with pytest.raises(BadPrompt):
            read_prompt(
                json.dumps({"prompt": "x", "attachments": [{"filename": name, "content": content}]}).encode()
            )


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: b"{" + text.encode()))
def test_no_prompt_is_more_than_refused(data: bytes) -> None:
    with contextlib.suppress(BadPrompt):
        assert read_prompt(data).content


def test_a_door_of_another_executor_is_refused() -> None:
    with pytest.raises(ConfigError, match="no executor 'nope'"):
        Door(cast("Any", None), cast("Any", None), via="nats", executor="nope")
