"""Who may call the routes that need a person or a program to be known: bearer tokens.

    [tokens.bank]                       # the actor that events name
    sha256 = "9f86d0..."                # of the token, 256 random bits, which is stored nowhere
    role = "operator"                   # or viewer, admin

A token of 256 random bits needs no slow hash. The configuration holds its digest only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request

from ...eventlog.errors import ConfigError
from ..configuration.project_file import Tables, project_tables
from ..configuration.strict_tables import StrictTable
from .answers import Refused

Role = Literal["viewer", "operator", "admin"]
_RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}


class TokenTable(StrictTable):
    """One `[tokens.<name>]` table."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    role: Role = "operator"


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

    def actor(self, request: Request, role: Role = "operator") -> str:
        """Return the name of the token's holder. Raises `Refused` (401, 403)."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        found = [name for name, table in self._tokens.items() if hmac.compare_digest(table.sha256, digest)]
        if scheme.lower() != "bearer" or not found:
            raise Refused(401, "this needs a token: send it as `Authorization: Bearer TOKEN`")
        if _RANK[self._tokens[found[0]].role] < _RANK[role]:
            raise Refused(403, f"this needs the role {role}")
        return found[0]
