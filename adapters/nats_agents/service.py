"""Run each agent as a NATS micro service: its endpoints, its heartbeat, and the prompts in progress."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import msgspec
import nats.micro
from nats.aio.client import Client
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, Service

from ...eventlog.errors import ConfigError, LogUnavailable
from ...eventlog.jetstream.address import credentials_file
from ..protocols.door import Door
from .conversation import Conversation

logger = logging.getLogger("foldlog.nats_agents")

PROTOCOL_VERSION = "0.3"
HARNESS = "foldlog"
HEARTBEAT_S = 30.0
CONNECT_S = 10.0
PROMPTS_MAX = 1000
"""The limit of prompts answered at once. A run goes on even if its prompt is no longer answered."""


@contextlib.asynccontextmanager
async def nats_agents(door: Door) -> AsyncIterator[None]:
    """Serve the door's agents on the NATS server of its log while the context is open.

    Raises `ConfigError` if the log is not on a NATS server, `LogUnavailable` if the server takes no connection.
    """
    servers = getattr(door.runtime.log, "servers", None)
    if servers is None:
        raise ConfigError("the protocol nats needs a log on a NATS server: give --server or NATS_URL")
    connection = Client()
    served: dict[str, _Served] = {}
    try:
        async with asyncio.timeout(CONNECT_S):
            await connection.connect(
                list(servers),
                name="foldlog agents",
                user_credentials=credentials_file(),
                max_reconnect_attempts=-1,
                error_cb=_note,
            )
            await _keep_up(door, connection, served)
            await connection.flush()  # from now on, a request on any connection finds the agents
    except TimeoutError:
        await connection.close()
        raise LogUnavailable("the NATS server did not take the connection of the protocol nats") from None
    keeping = asyncio.create_task(_follow(door, connection, served))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        for each in served.values():
            await each.stop()
        await connection.close()


async def _follow(door: Door, connection: Client, served: dict[str, _Served]) -> None:
    """Start and stop services as stored agents are saved and removed."""
    while True:
        changed = asyncio.ensure_future(door.stored.changed())
        await _keep_up(door, connection, served)
        await changed


async def _keep_up(door: Door, connection: Client, served: dict[str, _Served]) -> None:
    agents = door.agents
    for name in [name for name in served if name not in agents]:
        await served.pop(name).stop()
    for name in agents:
        if name not in served:
            served[name] = _Served(door, name, connection)
            await served[name].start()


async def _note(error: Exception) -> None:
    logger.warning("NATS: %s", error)


class _Served:
    """One agent as a service named `agents`, with its prompts in progress."""

    def __init__(self, door: Door, agent: str, connection: Client) -> None:
        self._door, self._agent, self._connection = door, agent, connection
        self._place = f"{HARNESS}.{door.runtime.log.namespace}.{agent}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._service: Service

    async def start(self) -> None:
        """Register the service, then begin to publish its heartbeat."""
        self._service = await nats.micro.add_service(
            self._connection,
            name="agents",
            version=version("foldlog"),
            description=f"Ask the {self._door.agent(self._agent).kind} {self._agent}.",
            metadata={**self._identity(), "protocol_version": PROTOCOL_VERSION},
        )
        payload_max = f"{self._connection.max_payload}B"
        for endpoint in (
            EndpointConfig(
                name="prompt",
                subject=f"agents.prompt.{self._place}",
                queue_group="agents",
                metadata={"max_payload": payload_max, "attachments_ok": "true"},
                handler=self._prompt,
            ),
            EndpointConfig(name="status", subject=f"agents.status.{self._place}", handler=self._status),
        ):
            await self._service.add_endpoint(endpoint)
        self._keep(self._beat())

    async def stop(self) -> None:
        """Take no more prompts, and stop answering those in progress. Their runs go on."""
        await self._service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prompt(self, request: Request) -> None:
        """Answer a prompt in a task of its own: the service handles requests one after the other."""
        message = request._msg  # noqa: SLF001 - has the reply subject, which a stream of answers needs
        if not message.reply:
            return
        if len(self._tasks) > PROMPTS_MAX:
            await request.respond_error("503", "too many prompts are under way; try again")
            await request.respond()
            return
        key = (message.headers or {}).get("Nats-Msg-Id", "")
        conversation = Conversation(self._door, self._agent, self._connection, message.reply)
        self._keep(conversation.hold(message.data, key))

    async def _status(self, request: Request) -> None:
        await request.respond(self._beacon())

    async def _beat(self) -> None:
        while True:
            await self._connection.publish(f"agents.hb.{self._place}", self._beacon())
            await asyncio.sleep(HEARTBEAT_S)

    def _identity(self) -> dict[str, str]:
        return {"agent": HARNESS, "owner": self._door.runtime.log.namespace, "session": self._agent}

    def _beacon(self) -> bytes:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        more = {"instance_id": self._service.id, "ts": now, "interval_s": HEARTBEAT_S}
        return msgspec.json.encode({**self._identity(), **more})

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
