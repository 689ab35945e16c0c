"""Bearer tokens, for the routes whose caller has to be known.

    [tokens.bank]                       # the actor that events name
    sha256 = "9f86d0..."                # of the token, 256 random bits, which is stored nowhere
    role = "operator"                   # or viewer, admin

A token of 256 random bits needs no slow hash. The configuration holds its digest only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from starlette.requests import Request

from ...eventlog.errors import ConfigError
from ..configuration.project_file import Tables, project_tables
from ..configuration.strict_tables import StrictTable
from .answers import Refused

Role = Literal["viewer", "operator", "admin"]
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
    """The tokens that are accepted, each with the name of its holder."""

    def __init__(self, tokens: Mapping[str, TokenTable]) -> None:
        self._tokens = tokens

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
        """True if nobody has a token."""
        return not self._tokens

    def holder(self, token: str) -> Holder | None:
        """Return the holder of a token; null if there is none."""
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        return self.holder_of_digest(digest) if token else None

    def holder_of_digest(self, digest: str) -> Holder | None:
        """Return the holder of the token with this SHA-256 (hex); null if there is none."""
        for name, table in self._tokens.items():
            if hmac.compare_digest(table.sha256, digest):
                return Holder(name, table.role)
        return None

    def actor(self, request: Request, role: Role = "operator") -> str:
        """Return the name of the token's holder. Raises `Refused` (401, 403)."""
        holder = self.holder(bearer_of(request))
        if holder is None:
            raise Refused(401, "this needs a token: send it as `Authorization: Bearer TOKEN`")
        if RANK[holder.role] < RANK[role]:
            raise Refused(403, f"this needs the role {role}")
        return holder.name


def bearer_of(request: Request) -> str:
    """Return the token of a request; empty for none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
