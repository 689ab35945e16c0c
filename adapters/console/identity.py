"""Identify the caller: the holder of a token, a signed-in browser, a user named by a proxy, or an anonymous caller.

A browser gets its cookie for a token or a one-time key. This process keeps only the cookie's SHA-256, in memory: after
a restart, users sign in again.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections import deque
from collections.abc import Callable
from typing import Literal, get_args

import msgspec
from starlette.requests import Request

from ..http.access import RANK, Access, Role, bearer_of
from ..http.answers import Refused
from .options import ApiOptions

Via = Literal["api", "console"]
SESSION_S = 12 * 3600.0
KEY_S = 60.0
LOCAL = "local"
"""The actor of callers without a token: the user who started the server, or every caller with `--no-auth`."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
NAME_MAX = 64
SIGN_INS_MAX = 1000


class Actor(msgspec.Struct, frozen=True):
    """The caller of a request. Events record `name`; `token` is the SHA-256 (hex) of its token, empty without one.

    `by_cookie`: the browser sends the credentials by itself, so the request may have been forged by another page.
    """

    name: str
    role: Role
    via: Via = "api"
    token: str = ""
    by_cookie: bool = False


class SignInRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in at this server, successful or not, at `at` (Unix seconds)."""

    at: float
    address: str
    name: str = ""
    role: str = ""
    refused: bool = False


class _Session(msgspec.Struct, frozen=True):
    actor: Actor
    until: float


class Identity:
    """Finds the actor of a request."""

    def __init__(self, access: Access, options: ApiOptions, now: Callable[[], float]) -> None:
        self.access = access
        self._options, self._now = options, now
        self._networks = options.networks()
        self._sessions: dict[str, _Session] = {}
        self._keys: dict[str, float] = {}
        self._records: deque[SignInRecord] = deque(maxlen=SIGN_INS_MAX)

    def actor_of(self, request: Request) -> Actor | None:
        """Return the actor of a request; None if it is not signed in. Raises `Refused` (403) for a forged request."""
        actor = self._found(request)
        if request.method not in SAFE and (actor is None or not _has_bearer(request)):
            self._check_origin(request, strict=actor is not None and actor.by_cookie)
        if actor is not None and self._options.read_only:
            return msgspec.structs.replace(actor, role="viewer")
        return actor

    def _found(self, request: Request) -> Actor | None:
        if self._options.no_auth:
            return Actor(LOCAL, "admin", via="console" if self._from_page(request) else "api")
        if _has_bearer(request):
            return self._of_token(bearer_of(request))
        session = self._sessions.get(_digest(request.cookies.get(cookie_name(request), "")))
        if session is not None and session.until > self._now() and self._still_valid(session.actor):
            return session.actor
        return self._named_by_proxy(request)

    def _of_token(self, token: str) -> Actor | None:
        holder = self.access.holder(token)
        return None if holder is None else Actor(holder.name, holder.role, token=_digest(token))

    def _still_valid(self, actor: Actor) -> bool:
        """Return whether the token of a session is still valid and has the same role."""
        if not actor.token:
            return True
        holder = self.access.holder_of_digest(actor.token)
        return holder is not None and holder.role == actor.role

    def _from_page(self, request: Request) -> bool:
        return request.headers.get("sec-fetch-site") == "same-origin"

    def _named_by_proxy(self, request: Request) -> Actor | None:
        """Return the user that a proxy names in its headers, if the request comes from a trusted address."""
        name = request.headers.get(self._options.user_header, "").strip()
        if not self._networks or not name or not self.is_trusted(request):
            return None
        if len(name) > NAME_MAX or not name.isprintable():
            raise Refused(403, "the proxy names a user by more than 64 printable characters")
        role = request.headers.get(self._options.role_header, "viewer").strip().lower()
        if role not in get_args(Role):
            raise Refused(403, f"the proxy gives the user a role that is none: {role!r:.40}")
        return Actor(name, role, via="console", by_cookie=True)  # type: ignore[arg-type]

    def is_trusted(self, request: Request) -> bool:
        """Return whether a request comes from a trusted proxy."""
        try:
            address = ipaddress.ip_address(request.client.host if request.client else "")
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _check_origin(self, request: Request, *, strict: bool) -> None:
        """Raise `Refused` (403) for a request that a page of another origin made the browser send.

        Another port of this host is another origin, although the same site. `strict` also refuses a request without
        `Sec-Fetch-Site` and `Origin`: browsers send at least one of them.
        """
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None:
            same = site == "same-origin"
        elif origin is not None:
            same = origin == f"{scheme_of(request, self)}://{request.headers.get('host', '')}"
        else:
            same = not strict
        if not same:
            raise Refused(
                403, "the request was made by another page; write with a token, or from the console"
            )

    # --- signing in ---------------------------------------------------------------------------------------------------

    def one_time_key(self) -> str:
        """Return a new key that signs one browser in as `local`. It is valid once, for one minute."""
        key = secrets.token_urlsafe(32)
        self._keys[_digest(key)] = self._now() + KEY_S
        return key

    def sign_ins(self) -> list[SignInRecord]:
        """Return the latest sign-ins, newest first."""
        return [*self._records][::-1]

    def sign_in(self, *, token: str = "", key: str = "", address: str = "") -> tuple[Actor, str]:
        """Start a session; return its actor and the value of its cookie. Raises `Refused` (401)."""
        actor = self._of_key(key) if key else self._of_token(token)
        at = self._now()
        if actor is None:
            self._records.append(SignInRecord(at=at, address=address, refused=True))
            what = "this key was used, or is older than a minute" if key else "there is no such token"
            raise Refused(
                401, f"{what}: start the console again, or issue a token with `foldlog tokens issue`"
            )
        self._records.append(SignInRecord(at=at, address=address, name=actor.name, role=actor.role))
        now = self._now()
        self._sessions = {name: each for name, each in self._sessions.items() if each.until > now}
        value = secrets.token_urlsafe(32)
        actor = msgspec.structs.replace(actor, via="console", by_cookie=True)
        self._sessions[_digest(value)] = _Session(actor, now + SESSION_S)
        return actor, value

    def _of_key(self, key: str) -> Actor | None:
        until = self._keys.pop(_digest(key), 0.0)
        return Actor(LOCAL, "admin") if until > self._now() else None

    def sign_out(self, request: Request) -> None:
        """End the session of the request's cookie, if it has one."""
        self._sessions.pop(_digest(request.cookies.get(cookie_name(request), "")), None)


def check_role(actor: Actor | None, role: Role) -> Actor:
    """Return the actor if it has the role or a higher one. Raises `Refused` (401, 403)."""
    if actor is None:
        raise Refused(401, "sign in: send a token as `Authorization: Bearer TOKEN`, or open the console")
    if RANK[actor.role] < RANK[role]:
        raise Refused(403, f"this needs the role {role}; {actor.name} is {actor.role}")
    return actor


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. Cookies are shared between ports of a host, so the name includes the port."""
    server = request.scope.get("server") or ("", 0)
    return f"{'__Host-' if request.url.scheme == 'https' else ''}foldlog-{server[1]}"


def scheme_of(request: Request, identity: Identity) -> str:
    """Return the scheme that the browser used, as reported by a trusted proxy, else that of the request."""
    told = request.headers.get("x-forwarded-proto", "")
    return told if told in {"http", "https"} and identity.is_trusted(request) else request.url.scheme


def _has_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
