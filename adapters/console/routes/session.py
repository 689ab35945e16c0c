"""Signing in and out, who one is, and how the server is."""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from ....eventlog.names import run_subject
from ...http.access import Role
from ..identity import SESSION_S, Actor, cookie_name, scheme_of
from ..problems import Problem
from ..routing import Answered, Call, Nothing, Route

READY_S = 2.0
LAG_MAX = 1000
logger = logging.getLogger("foldlog.http")


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token, or the one-time key that the start of the console has shown."""

    token: str = ""
    key: str = ""


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what this server is. `agents` are those of its registry, `protocols` those before its agents."""

    name: str
    role: Role
    via: str
    namespace: str
    no_auth: bool
    read_only: bool
    agents: list[str]
    version: str
    protocols: list[str]


class Health(msgspec.Struct, frozen=True):
    """The state of the server."""

    status: str


async def sign_in(call: Call[Nothing, SignIn]) -> Answered:
    """Sign a browser in: the answer sets its cookie."""
    identity = call.door.identity
    actor, value = identity.sign_in(token=call.body.token, key=call.body.key, address=_address(call))
    logger.info("%s signed in as %s from %s", actor.name, actor.role, _address(call))
    secure = scheme_of(call.request, identity) == "https"
    parts = [f"{cookie_name(call.request)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts += [f"Max-Age={SESSION_S:.0f}", *(["Secure"] if secure else [])]
    return Answered(_me(call, actor), headers={"Set-Cookie": "; ".join(parts)})


async def sign_out(call: Call[Nothing, Nothing]) -> Response:
    """Sign a browser out."""
    call.door.identity.sign_out(call.request)
    gone = f"{cookie_name(call.request)}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    return Response(status_code=204, headers={"Set-Cookie": gone})


async def who_am_i(call: Call[Nothing, Nothing]) -> Me:
    """Show who the caller is."""
    return _me(call, call.actor)


def _me(call: Call[Any, Any], actor: Actor) -> Me:
    options = call.door.options
    return Me(
        name=actor.name,
        role=actor.role,
        via=actor.via,
        namespace=call.runtime.log.namespace,
        no_auth=options.no_auth,
        read_only=options.read_only,
        agents=sorted(call.runtime.registry.agents),
        version=version("foldlog"),
        protocols=[*options.protocols],
    )


def _address(call: Call[Any, Any]) -> str:
    return call.request.client.host if call.request.client else ""


async def health(_: Call[Nothing, Nothing]) -> Health:
    """Answer while the server runs."""
    return Health("ok")


async def ready(call: Call[Nothing, Nothing]) -> Health:
    """Answer 200 if the log is in reach and the projections are up to date, else 503."""
    log, index = call.runtime.log, await call.door.index()
    await call.door.streams.keep_up()
    async with asyncio.timeout(READY_S):
        await log.events.head(run_subject(0, "readyz", "readyz"))
        lag = await index.lag()
    if lag > LAG_MAX:
        raise Problem(503, f"the projections are more than {LAG_MAX:,} commits behind the log")
    return Health("ready")


ROUTES = (
    Route(
        method="POST",
        path="/session",
        role=None,
        endpoint=sign_in,
        body=SignIn,
        answer=Me,
        cost="sign-in",
    ),
    Route(method="DELETE", path="/session", role="viewer", endpoint=sign_out, status=204),
    Route(method="GET", path="/me", role="viewer", endpoint=who_am_i, answer=Me),
    Route(method="GET", path="/health", role=None, endpoint=health, answer=Health),
    Route(method="GET", path="/ready", role=None, endpoint=ready, answer=Health),
)
