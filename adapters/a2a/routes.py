"""The routes of A2A: each agent's card, which needs no token, and its JSON-RPC endpoint."""

from __future__ import annotations

from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.answers import Refused, guarded
from ..http.bodies import parse_json, read_body, replayed
from ..protocols.door import Door
from .handler import ORIGIN, REQUEST, AgentHandler

BODY_BYTES_MAX = 32 * 1024 * 1024
"""The largest request, with its files."""
PARSE_ERROR = -32700
PROTOCOL_VERSION = "1.0"
MODES = ("text/plain", "application/json")


def a2a_routes(door: Door) -> list[Route]:
    """Return the routes below `/a2a`, and the well-known route, which serves the card of a server's only agent."""
    routes = _Agents(door)
    well_known = "/.well-known/agent-card.json"
    return [
        Route(f"/a2a/{{agent}}{well_known}", guarded(routes.card), methods=["GET"]),
        Route("/a2a/{agent}", guarded(routes.call), methods=["POST"]),
        Route(well_known, guarded(routes.card), methods=["GET"]),
    ]


class _Known(DefaultServerCallContextBuilder):
    """Puts the caller's origin and its request into the state of a call."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[ORIGIN], context.state[REQUEST] = request.scope[ORIGIN], request
        return context


class _Agents:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._endpoints: dict[str, JsonRpcDispatcher] = {}

    async def card(self, request: Request) -> Response:
        """Return the card of an agent."""
        agents = [*self._door.agents]
        name = self._named(request, agents[0] if len(agents) == 1 else "")
        base = f"{request.url.scheme}://{request.headers.get('host', '')}"
        return JSONResponse(
            agent_card_to_dict(_card(name, self._door.agent(name).kind, f"{base}/a2a/{name}"))
        )

    async def call(self, request: Request) -> Response:
        """Answer a JSON-RPC request, after its sender is identified and its body is read."""
        name = self._named(request)
        origin = self._door.origin(request)
        body = await read_body(request, BODY_BYTES_MAX)
        request.scope[ORIGIN] = origin
        try:
            parse_json(body)
        except Refused as refused:  # answered as a JSON-RPC error
            error = {"code": PARSE_ERROR, "message": refused.detail}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error})
        whole = Request(request.scope, replayed(body, request.receive))
        if name not in self._endpoints:
            handler = AgentHandler(self._door, name)
            self._endpoints[name] = JsonRpcDispatcher(handler, context_builder=_Known())
        return await self._endpoints[name].handle_requests(whole)

    def _named(self, request: Request, only: str = "") -> str:
        name: str = request.path_params.get("agent", only)
        if name not in self._door.agents:
            raise Refused(404, f"there is no agent {name[:80]!r}")
        return name


def _card(name: str, kind: str, url: str) -> AgentCard:
    text = f"Ask the {kind} {name}."
    bearer: dict[str, Any] = {"scheme": "bearer", "description": "a token of the role operator"}
    return AgentCard(
        name=name,
        description=text,
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=PROTOCOL_VERSION)
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=list(MODES),
        default_output_modes=["text/plain"],
        security_schemes={
            "token": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(**bearer))
        },
        security_requirements=[SecurityRequirement(schemes={"token": StringList()})],
        skills=[AgentSkill(id=name, name=name, description=text, tags=[kind])],
    )
