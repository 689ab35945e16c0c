"""Tokens for the HTTP API: granting and withdrawing one are events, on one subject of the namespace.

A token is 256 random bits; the log has its SHA-256 only. So a grant says who may call, and lets nobody in who reads it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple

import msgspec

from ...eventlog.commits import ORIGIN, Chain, Head, head_of
from ...eventlog.errors import ConfigError, LogUnavailable
from ...eventlog.events import AccessGranted, AccessWithdrawn, Role, StoredEvent
from ...eventlog.names import access_subject, check_name
from ...eventlog.ports import Log, Stored
from ..journal.outages import Decisions, is_last, try_append
from ..journal.register import register_write

PREFIX = "fl_"
EXPIRY_S = 90 * 86400.0


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is in force: its holder, what it may do, and the SHA-256 (hex) of it. Times are Unix seconds."""

    name: str
    role: Role
    sha256: str
    by: str
    granted_at: float
    expires_at: float | None


class Issued(NamedTuple):
    """A new token, which is told this once."""

    token: str
    granted: Granted


class AccessTokens:
    """The tokens of a namespace. All methods raise `LogUnavailable` and `LogCorrupted`."""

    def __init__(self, log: Log) -> None:
        self._log, self._subject = log, access_subject(log.events.shards)

    async def read(self) -> dict[str, Granted]:
        """Return the tokens in force by the names of their holders, also those that have expired."""
        return (await self._read())[1]

    async def issue(
        self, name: str, role: Role, *, expires_s: float | None = EXPIRY_S, by: str = ""
    ) -> Issued:
        """Return a new token for a holder who has none; null: it does not expire. Raises `ConfigError`."""
        check_name("the holder of a token", name)
        if expires_s is not None and not 0 < expires_s < math.inf:
            raise ConfigError(f"a token is valid for a positive number of seconds, not {expires_s!r}")
        token = PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).hexdigest()
        now = self._log.clock.now()
        event = AccessGranted(
            name=name,
            role=role,
            sha256=digest,
            by=by,
            expires_at=None if expires_s is None else now + expires_s,
        )
        async for _ in Decisions(self._log.clock):
            head, found = await self._read()
            if name in found and found[name].sha256 == digest:  # an append without an answer was ours
                return Issued(token, found[name])
            if name in found and not is_over(found[name], now):
                if not await is_last(self._log, self._subject, head.position):
                    continue
                raise ConfigError(f"{name} has a token: revoke that one first, or choose another name")
            if await self._append(head, event):
                return Issued(token, _granted(event, now))
        raise LogUnavailable("the tokens change too quickly; try again")

    async def revoke(self, name: str, *, by: str = "") -> bool:
        """Withdraw the token of a holder; false if there is none, which is only said of the last state."""
        async for _ in Decisions(self._log.clock):
            head, found = await self._read()
            if name not in found:
                if not await is_last(self._log, self._subject, head.position):
                    continue
                return False
            if await self._append(head, AccessWithdrawn(name=name, by=by)):
                return True
        raise LogUnavailable("the tokens change too quickly; try again")

    async def follow(self) -> AsyncGenerator[Mapping[str, Granted]]:
        """Yield the tokens in force as they are now, then after each change, until the iterator is closed."""
        chain, found, position = Chain(), dict[str, Granted](), 0
        async for stored in self._log.events.read(self._subject):
            _fold(chain, found, stored)
            position = stored.position
        yield dict(found)
        async for stored in self._log.events.follow(self._subject, position):
            _fold(chain, found, stored)
            yield dict(found)

    async def _read(self) -> tuple[Head, dict[str, Granted]]:
        chain, found, head = Chain(), dict[str, Granted](), ORIGIN
        async for stored in self._log.events.read(self._subject):
            head = _fold(chain, found, stored)
        return head, found

    async def _append(self, head: Head, event: StoredEvent) -> bool:
        return await try_append(self._log, register_write(self._log, self._subject, head, event))


def _fold(chain: Chain, found: dict[str, Granted], stored: Stored) -> Head:
    recorded = chain.verify(stored)
    for event in recorded.commit.events:
        if isinstance(event, AccessGranted):
            found[event.name] = _granted(event, recorded.commit.at)
        elif isinstance(event, AccessWithdrawn):
            found.pop(event.name, None)
    return head_of(recorded)


def _granted(event: AccessGranted, at: float) -> Granted:
    return Granted(
        name=event.name,
        role=event.role,
        sha256=event.sha256,
        by=event.by,
        granted_at=at,
        expires_at=event.expires_at,
    )


def is_over(granted: Granted, now: float) -> bool:
    """Return whether a token has expired."""
    return granted.expires_at is not None and granted.expires_at <= now
