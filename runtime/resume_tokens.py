"""Resume tokens: what lets its holder answer one approval, once. A port: the only dice of this folder.

The text names the run and the approval, so that it is found without a search, and carries 256 random bits. The log has
the SHA-256 of the whole text, so the text is known to whom it was shown, and to nobody else.
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
    """What a token names. `sha256` (hex) is what the log knows of it."""

    run_id: str
    approval_id: str
    sha256: str


def new_token(run_id: str, approval_id: str) -> str:
    """A fresh token, safe within URLs. To be shown once and kept nowhere."""
    return f"foldlog-resume.{run_id}.{approval_id}.{secrets.token_urlsafe(SECRET_BYTES)}"


def place_of(token: str) -> TokenPlace:
    """What the token names. Raises `ApprovalError`, which does not tell the text, for one that is none."""
    text = str(token).strip()
    match = _TOKEN.fullmatch(text)
    if match is None:
        why = (
            "it is not whole; copy it once more" if text.startswith(_BEGIN) else f"they begin with {_BEGIN!r}"
        )
        raise ApprovalError(f"this is no resume token: {why}")
    return TokenPlace(match[1], match[2], hashlib.sha256(match[0].encode()).hexdigest())
