"""An authorization server whose only user always consents, in front of the MCP server of these tests.

`POST /revoke` ends all access tokens, `POST /revoke?refresh=1` the refresh tokens too, `POST /forget` everything.
After `POST /gather?count=2`, requests without a valid token are held until there are two of them, and then refused.
`seen` in `GET /state` has the requested grants.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any
from urllib.parse import urlencode

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "machine", "the-secret-of-the-machine"


class AuthorizationServer:
    """The tokens, codes and clients. `app` passes `/mcp` on to `mcp` if the token is valid, and answers the rest."""

    def __init__(self, mcp: Any) -> None:
        self._mcp = mcp
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.codes: dict[str, dict[str, str]] = {}
        self.clients: dict[str, list[str]] = {}
        self.seen: list[str] = []
        self._gathered = anyio.Event()
        self._missing = 0
        self._app = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/revoke", self.revoke, methods=["POST"]),
                Route("/forget", self.forget, methods=["POST"]),
                Route("/gather", self.gather, methods=["POST"]),
                Route("/state", self.state),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/mcp":
            target = self._mcp if scope["type"] == "lifespan" else self._app
            await target(scope, receive, send)
            return
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if token in self.access:
            await self._mcp(scope, receive, send)
            return
        await self._all_there()
        host = dict(scope["headers"])[b"host"].decode()
        where = f'Bearer resource_metadata="http://{host}/.well-known/oauth-protected-resource/mcp", scope="books"'
        await Response("who are you?", 401, {"www-authenticate": where})(scope, receive, send)

    async def _all_there(self) -> None:
        """Hold a refused request until the wanted number has arrived, so that all were sent with the same token."""
        if self._missing:
            self._missing -= 1
            if not self._missing:
                self._gathered.set()
            await self._gathered.wait()

    async def gather(self, request: Request) -> Response:
        self._missing, self._gathered = int(request.query_params["count"]), anyio.Event()
        return Response()

    async def resource(self, request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return JSONResponse({"resource": f"{base}/mcp", "authorization_servers": [base]})

    async def metadata(self, request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return JSONResponse(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            }
        )

    async def register(self, request: Request) -> Response:
        told = await request.json()
        client = secrets.token_hex(4)
        self.clients[client] = told["redirect_uris"]
        return JSONResponse({**told, "client_id": client, "token_endpoint_auth_method": "none"}, 201)

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] in self.clients[asked["client_id"]]
        code = secrets.token_hex(8)
        self.codes[code] = asked
        return RedirectResponse(
            f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
        )

    async def token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.seen.append(form["grant_type"])
        if not self._allows(form, request.headers.get("authorization", "")):
            return JSONResponse({"error": "invalid_grant"}, 400)
        access = f"access-{secrets.token_hex(16)}"
        self.access.add(access)
        told = {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "scope": "books"}
        if form["grant_type"] != "client_credentials":
            self.refresh.add(refresh := f"refresh-{secrets.token_hex(16)}")
            told["refresh_token"] = refresh
        return JSONResponse(told)

    def _allows(self, form: dict[str, str], header: str) -> bool:
        match form["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                return challenge == asked.get("code_challenge")
            case "refresh_token":
                held = form["refresh_token"] in self.refresh
                self.refresh.discard(form["refresh_token"])  # each is valid once
                return held
            case _:
                return header == "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()

    async def revoke(self, request: Request) -> Response:
        self.access.clear()
        if "refresh" in request.query_params:
            self.refresh.clear()
        return Response()

    async def forget(self, _request: Request) -> Response:
        for known in (self.access, self.refresh, self.codes, self.clients, self.seen):
            known.clear()
        return Response()

    async def state(self, _request: Request) -> Response:
        return JSONResponse({"seen": self.seen})
