"""Tokens of the API: who has one, new ones, and their end."""

from __future__ import annotations

import msgspec

from ....runtime.shared.access_tokens import EXPIRY_S, AccessTokens, Granted
from ...http.access import Role
from ...http.answers import Refused
from ..identity import SignInRecord
from ..routing import Answered, Call, Nothing, Route


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a token. `source` is the log, or the configuration of this server, which says nothing of times.

    `used_at` is when this server was asked with it last, in Unix seconds; null: not since it was started.
    """

    name: str
    role: Role
    source: str
    by: str = ""
    granted_at: float | None = None
    expires_at: float | None = None
    used_at: float | None = None


class IssueAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to issue; `expires_s` null: it does not expire."""

    name: str
    role: Role
    expires_s: float | None = EXPIRY_S


class IssuedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A new token, which is shown this once."""

    token: str
    name: str
    role: Role
    expires_at: float | None


async def list_tokens(call: Call[Nothing, Nothing]) -> list[TokenRow]:
    """List who has a token."""
    granted = await AccessTokens(call.runtime.log).read()
    access = call.door.identity.access
    rows = [_row(each) for each in granted.values()]
    rows += [TokenRow(name=name, role=role, source="configuration") for name, role in access.configured()]
    rows = [msgspec.structs.replace(row, used_at=access.used_at(row.name)) for row in rows]
    return sorted(rows, key=lambda row: row.name)


def _row(granted: Granted) -> TokenRow:
    return TokenRow(
        name=granted.name,
        role=granted.role,
        source="log",
        by=granted.by,
        granted_at=granted.granted_at,
        expires_at=granted.expires_at,
    )


async def issue_access(call: Call[Nothing, IssueAccess]) -> Answered:
    """Issue a token. It is shown once."""
    asked = call.body
    issued = await AccessTokens(call.runtime.log).issue(
        asked.name, asked.role, expires_s=asked.expires_s, by=call.actor.name
    )
    granted = issued.granted
    told = IssuedAccess(
        token=issued.token, name=granted.name, role=granted.role, expires_at=granted.expires_at
    )
    return Answered(told, 201)


async def revoke_access(call: Call[Nothing, Nothing]) -> dict[str, bool]:
    """Withdraw the token of a holder; it is refused from now on, and its sessions end."""
    name = call.path("name")
    if not await AccessTokens(call.runtime.log).revoke(name, by=call.actor.name):
        raise Refused(404, f"{name!r:.80} has no token in the log; one of the configuration is removed there")
    return {"revoked": True}


async def list_sign_ins(call: Call[Nothing, Nothing]) -> list[SignInRecord]:
    """List the last sign-ins at this server, newest first."""
    return call.door.identity.sign_ins()


ROUTES = (
    Route(method="GET", path="/tokens", role="admin", endpoint=list_tokens, answer=list[TokenRow]),
    Route(
        method="POST",
        path="/tokens",
        role="admin",
        endpoint=issue_access,
        body=IssueAccess,
        answer=IssuedAccess,
        status=201,
        keyed=False,
    ),
    Route(
        method="DELETE", path="/tokens/{name}", role="admin", endpoint=revoke_access, answer=dict[str, bool]
    ),
    Route(method="GET", path="/access-log", role="admin", endpoint=list_sign_ins, answer=list[SignInRecord]),
)
