"""OAuth of MCP servers over HTTP, by the SDK: the authorization of requests, and the login of a user.

Requests never wait for a user: an expired token is refreshed, and if only a login helps, `LoginNeeded` is raised. A
login's tokens are in a `TokenFile`, with the metadata of the authorization server, which a later process needs to
refresh them. One process at a time refreshes a token, and the others use the result. A client with credentials of its
own gets a token whenever it needs one.
"""

from __future__ import annotations

import asyncio
import urllib.parse
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from ...runtime.agents.mcp_servers import HttpServer, OAuth
from .tokens import TokenFile

_PAGE = "<!doctype html><title>foldlog</title><p>{}</p>"
_REDIRECT = "http://127.0.0.1:{}/callback"


class LoginNeeded(OAuthFlowError):
    """The server requires a login."""

    def __init__(self, scope: str | None) -> None:
        more = f" --scope {scope!r}" if scope else ""
        super().__init__(
            f"the server requires a login: run `foldlog mcp login` for it{more}, as the user of this process"
        )


class _Stored:
    """The SDK's storage of a login's tokens. `context` is that of the flow, which has the metadata."""

    context: OAuthContext

    def __init__(self, file: TokenFile, client: OAuthClientInformationFull | None, *, fresh: bool) -> None:
        self.file, self._client, self._fresh = file, client, fresh

    async def get_tokens(self) -> OAuthToken | None:
        tokens = (await self._read()).get("tokens")
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self.file.update(
            tokens=_plain(tokens),
            expires_at=self.context.token_expiry_time,
            metadata=_plain(self.context.oauth_metadata),
            resource=_plain(self.context.protected_resource_metadata),
            authorization_server=self.context.auth_server_url,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = (await self._read()).get("client")
        if self._client is not None or not client:
            return self._client
        return OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.file.update(client=_plain(client_info))

    async def restore(self) -> None:
        """Restore the fields of the flow that the SDK does not load."""
        stored = await self._read()
        if stored:
            self.context.token_expiry_time = stored.get("expires_at")
            self.context.auth_server_url = stored.get("authorization_server")
        if metadata := stored.get("metadata"):
            self.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        if resource := stored.get("resource"):
            self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)

    async def _read(self) -> dict[str, Any]:
        return {} if self._fresh else await self.file.read()


class _Nowhere:
    """Stores nothing: a client with credentials of its own can get a new token at any time."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        del tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        del client_info


class _Provider(OAuthClientProvider):
    """The OAuth flow of a server to which a user logs in or has logged in."""

    def __init__(self, stored: _Stored, url: str, metadata: OAuthClientMetadata, **options: Any) -> None:
        super().__init__(url, metadata, stored, **options)
        self._stored = stored
        stored.context = self.context

    async def _initialize(self) -> None:
        await self._restore()
        if not self.context.is_token_valid() and self.context.can_refresh_token():
            await self._stored.file.hold()
            await self._restore()  # another process may have refreshed it meanwhile

    async def _restore(self) -> None:
        await super()._initialize()
        await self._stored.restore()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not self.context.is_token_valid() and self.context.redirect_handler is None:
            self._initialized = False  # another process may have refreshed it
        flow = super().async_auth_flow(request)
        tried = set[str]()
        try:
            outgoing = await anext(flow)
            while True:
                tried.add(self._access_token)
                if outgoing is request:  # the refreshed token is stored, or the refresh was refused
                    self._stored.file.release()
                response = yield outgoing
                if outgoing is request and await self._renewed(response, tried):
                    self._add_auth_header(request)
                else:
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
            self._stored.file.release()

    @property
    def _access_token(self) -> str:
        tokens = self.context.current_tokens
        return "" if tokens is None else tokens.access_token

    async def _renewed(self, response: httpx2.Response, tried: set[str]) -> bool:
        """Return whether there is a newer token than the refused ones; if not, keep the lock while we refresh."""
        refused = response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
        if not refused or self.context.redirect_handler is not None:
            return False
        await self._stored.file.hold()
        tokens = await self._stored.get_tokens()
        if tokens is None or tokens.access_token in tried:
            return False
        await self._restore()
        return True

    async def _perform_authorization(self) -> httpx2.Request:
        if self.context.redirect_handler is not None:
            return await super()._perform_authorization()
        tokens, wanted = self.context.current_tokens, self.context.client_metadata.scope
        granted = (tokens.scope or "").split() if tokens is not None else []
        if tokens is None or not tokens.refresh_token or not {*(wanted or "").split()} <= {*granted}:
            raise LoginNeeded(wanted)
        return await self._refresh_token()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        prior = self.context.current_tokens
        try:
            await super()._handle_token_response(response)
        except OAuthTokenError:
            if self.context.redirect_handler is not None:
                raise
            raise LoginNeeded(self.context.client_metadata.scope) from None
        tokens = self.context.current_tokens
        if tokens is not None and tokens.refresh_token is None and prior is not None:
            tokens.refresh_token = prior.refresh_token  # still valid if the server sent no other
            await self._stored.set_tokens(tokens)


def auth_of(config: HttpServer) -> httpx2.Auth | None:
    """Return the authentication of requests to a server, which needs no user. Null for a server without `oauth`."""
    oauth = config.oauth
    if oauth is None:
        return None
    if oauth.grant == "client_credentials":
        return _credentials(config.url, oauth)
    return _provider(config.url, oauth, _REDIRECT.format(0), fresh=False)


def _credentials(url: str, oauth: OAuth) -> httpx2.Auth:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that `issuer` will be required one day
        if oauth.private_key:
            signed = SignedJWTParameters(
                issuer=oauth.client_id,
                subject=oauth.client_id,
                signing_key=oauth.private_key,
                signing_algorithm=oauth.signing_algorithm,
            )
            return PrivateKeyJWTOAuthProvider(
                url,
                _Nowhere(),
                oauth.client_id,
                signed.create_assertion_provider(),
                scope=oauth.scope,
                issuer=oauth.issuer,
            )
        return ClientCredentialsOAuthProvider(
            url, _Nowhere(), oauth.client_id, oauth.client_secret, scope=oauth.scope, issuer=oauth.issuer
        )


def _provider(url: str, oauth: OAuth, redirect: str, *, fresh: bool, **handlers: Any) -> _Provider:
    method: Any = ("client_secret_basic" if oauth.client_secret else "none") if oauth.client_id else None
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect)],
        client_name="foldlog",
        scope=oauth.scope,
        token_endpoint_auth_method=method,
    )
    client = None
    if oauth.client_id:
        client = OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret or None,
            redirect_uris=metadata.redirect_uris,
            token_endpoint_auth_method=method,
            issuer=oauth.issuer,
        )
    stored = _Stored(TokenFile(url, oauth.client_id), client, fresh=fresh)
    return _Provider(stored, url, metadata, client_metadata_url=oauth.client_metadata_url, **handlers)


@asynccontextmanager
async def login_flow(
    config: HttpServer, show: Callable[[str], Awaitable[None]], port: int = 0
) -> AsyncIterator[httpx2.Auth]:
    """Open the flow of a login: `show` gets the address for the user to open; the answer comes to a loopback port.

    Tokens of an earlier login are not used, and are replaced.
    """
    answered: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
        found = _result_of(rest.partition(" ")[0])
        status, told = "404 Not Found", "Not found."
        if isinstance(found, AuthorizationCodeResult):
            status, told = "200 OK", "You are logged in. You can close this page."
        elif found is not None:
            status, told = "200 OK", "The login was refused. You can close this page."
        if found is not None and not answered.done():
            if isinstance(found, AuthorizationCodeResult):
                answered.set_result(found)
            else:
                answered.set_exception(found)
        page = _PAGE.format(told).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + page)
        await writer.drain()
        writer.close()

    async def wait() -> AuthorizationCodeResult:
        return await answered

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        redirect = _REDIRECT.format(server.sockets[0].getsockname()[1])
        yield _provider(
            config.url,
            config.oauth or OAuth(),
            redirect,
            fresh=True,
            redirect_handler=show,
            callback_handler=wait,
        )
    finally:
        server.close()
        answered.cancel()


def _result_of(target: str) -> AuthorizationCodeResult | OAuthFlowError | None:
    """Parse the authorization server's answer from the target of a request to the redirect address."""
    parts = urllib.parse.urlsplit(target)
    told = {key: values[0] for key, values in urllib.parse.parse_qs(parts.query).items()}
    if parts.path != "/callback" or not ({"code", "error"} & told.keys()):
        return None
    if "code" not in told:
        return OAuthFlowError(f"the login was refused: {told.get('error_description') or told['error']}")
    return AuthorizationCodeResult(code=told["code"], state=told.get("state"), iss=told.get("iss"))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if value is not None else None
