"""Bearer tokens, for the routes that must identify their caller.

Those of the log are issued by `foldlog tokens issue`; those of the configuration are tables:

    [tokens.bank]                       # the actor that events record
    sha256 = "9f86d0..."                # of the token (256 random bits), which itself is stored nowhere
    role = "operator"                   # or viewer, admin

A token of 256 random bits needs no slow hash. The configuration holds its digest only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.requests import Request

from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.events import Role as Role  # noqa: PLC0414 - for the routes, too
from ...eventlog.ports import Log
from ...runtime.shared.access_tokens import AccessTokens, Granted, is_over
from ..configuration.project_file import Tables, project_tables
from ..configuration.strict_tables import StrictTable
from .answers import Refused

logger = logging.getLogger("foldlog.http")

RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}


class TokenTable(StrictTable):
    """One `[tokens.<name>]` table."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    role: Role = "operator"


class Holder(NamedTuple):
    """The holder of a token."""

    name: str
    role: Role


class Access:
    """The accepted tokens and their holders: those of the configuration, and those of the log while `following`."""

    def __init__(self, tokens: Mapping[str, TokenTable], now: Callable[[], float] = time.time) -> None:
        self._tokens, self._now = tokens, now
        self._granted: Mapping[str, Granted] = {}
        self._used: dict[str, float] = {}

    @contextlib.asynccontextmanager
    async def following(self, log: Log) -> AsyncGenerator[Access]:
        """Also accept the tokens in the log while open, as they change. Raises `LogUnavailable`, `LogCorrupted`."""
        self._now = log.clock.now
        changes = AccessTokens(log).follow()
        async with contextlib.aclosing(changes):
            self._granted = await anext(changes)
            following = asyncio.create_task(self._follow(changes))
            try:
                yield self
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, changes: AsyncGenerator[Mapping[str, Granted]]) -> None:
        try:
            async for granted in changes:
                self._granted = granted
        except FoldlogError:
            self._granted = {}  # a damaged register grants no access
            logger.exception("the tokens in the log cannot be read: none of them is accepted")

    def configured(self) -> list[tuple[str, Role]]:
        """Return the name and role of each holder of a token in the configuration."""
        return [(name, table.role) for name, table in self._tokens.items()]

    @classmethod
    def read(cls, given: Mapping[str, Mapping[str, Any]] | None = None) -> Access:
        """Return the given tokens, or those of the project's configuration. Raises `ConfigError`."""
        found = project_tables("tokens") if given is None else Tables("[tokens", dict(given))
        tokens = {name: TokenTable.read(table, found.where(name)) for name, table in found.tables.items()}
        if len({table.sha256 for table in tokens.values()}) < len(tokens):
            raise ConfigError(f"{found.place}]: two tokens have the same sha256; give each holder its own")
        return cls(tokens)

    @property
    def is_empty(self) -> bool:
        """True if there are no tokens."""
        return not self._tokens and not self._granted

    def holder(self, token: str) -> Holder | None:
        """Return the holder of a token, and note its use; None for an unknown token."""
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        return self.holder_of_digest(digest) if token else None

    def holder_of_digest(self, digest: str) -> Holder | None:
        """Return the holder of the token with this SHA-256 (hex), and note its use; None if it is unknown."""
        found = self._found(digest)
        if found is not None:
            self._used[found.name] = self._now()
        return found

    def _found(self, digest: str) -> Holder | None:
        for name, table in self._tokens.items():
            if hmac.compare_digest(table.sha256, digest):
                return Holder(name, table.role)
        for granted in self._granted.values():
            if hmac.compare_digest(granted.sha256, digest) and not is_over(granted, self._now()):
                return Holder(granted.name, granted.role)
        return None

    def used_at(self, name: str) -> float | None:
        """Return when this process last saw the holder's token, in Unix seconds; None if never."""
        return self._used.get(name)

    def actor(self, request: Request, role: Role = "operator") -> str:
        """Return the name of the caller, which must have the role or a higher one. Raises `Refused` (401, 403)."""
        holder = self.holder(bearer_of(request))
        if holder is None:
            raise Refused(401, "this needs a token: send it as `Authorization: Bearer TOKEN`")
        if RANK[holder.role] < RANK[role]:
            raise Refused(403, f"this needs the role {role}")
        return holder.name


def bearer_of(request: Request) -> str:
    """Return the bearer token of a request; empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
