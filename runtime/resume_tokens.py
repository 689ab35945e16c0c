"""Resume tokens, whose holder may answer one approval, once. Creating one needs randomness, unlike the other modules.

The text names the run and the approval, so that they are found without a search, and has 256 random bits. The log only
stores the SHA-256 of the whole text, so only those who were given the text know it.
"""

from __future__ import annotations

import hashlib
import re
import secrets

import msgspec

from ..eventlog.errors import ApprovalError

SECRET_BYTES = 32
_BEGIN = "foldlog-resume."
_TOKEN = re.compile(r"foldlog-resume\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})\.[A-Za-z0-9_-]{43}")


class TokenPlace(msgspec.Struct, frozen=True):
    """The run and the approval that a token names. The log stores only its `sha256` (hex)."""

    run_id: str
    approval_id: str
    sha256: str


def new_token(run_id: str, approval_id: str) -> str:
    """Return a new token, safe within URLs. Show it once and store it nowhere."""
    return f"foldlog-resume.{run_id}.{approval_id}.{secrets.token_urlsafe(SECRET_BYTES)}"


def place_of(token: str) -> TokenPlace:
    """Return the parts of the token. Raises `ApprovalError`, without the text, if it is not a token."""
    text = str(token).strip()
    match = _TOKEN.fullmatch(text)
    if match is None:
        why = "it is incomplete; copy it again" if text.startswith(_BEGIN) else f"they begin with {_BEGIN!r}"
        raise ApprovalError(f"this is not a resume token: {why}")
    return TokenPlace(match[1], match[2], hashlib.sha256(match[0].encode()).hexdigest())
