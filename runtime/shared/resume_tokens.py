"""Tokens, whose holder may answer one approval or one callback, once. Creating one needs randomness, unlike the rest.

The text of a resume token names the run and the approval, that of a callback the run and a revision, so that they are
found without a search; both have 256 random bits. The log only stores a SHA-256, so only those who were given the text
know it.
"""

from __future__ import annotations

import hashlib
import re
import secrets

import msgspec

from ...eventlog.commits import decode
from ...eventlog.errors import ApprovalError, SignalError
from ...eventlog.events import TokenIssued
from ...eventlog.ports import Log, Subject

SECRET_BYTES = 32
_BEGIN = "foldlog-resume."
_TOKEN = re.compile(r"foldlog-resume\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})\.[A-Za-z0-9_-]{43}")


class TokenPlace(msgspec.Struct, frozen=True):
    """The run and the approval that a token names. The log stores only its `sha256` (hex)."""

    run_id: str
    approval_id: str
    sha256: str


_CALLBACK = "foldlog-callback."
_CALLBACK_TOKEN = re.compile(r"foldlog-callback\.([A-Za-z0-9_-]{1,64})\.([0-9]{1,9})\.([A-Za-z0-9_-]{43})")


class CallbackPlace(msgspec.Struct, frozen=True):
    """The run that the token of a callback names. The log stores only its `sha256` (hex).

    `revision`: an older read of the run lacks the token.
    """

    run_id: str
    revision: int
    sha256: str


def new_secret() -> str:
    """Return the secret part of a new callback's token."""
    return secrets.token_urlsafe(SECRET_BYTES)


def callback_digest(run_id: str, secret: str) -> str:
    """Return what the log stores of a callback's token: the SHA-256 (hex) of its secret and its run."""
    return hashlib.sha256(f"{_CALLBACK}{run_id}.{secret}".encode()).hexdigest()


def callback_token(run_id: str, revision: int, secret: str) -> str:
    """Return the token of a callback, which is stored at this revision or before; it is safe within URLs."""
    return f"{_CALLBACK}{run_id}.{revision}.{secret}"


def callback_place(token: str) -> CallbackPlace:
    """Return the parts of a callback's token. Raises `SignalError`, without the text, if it is not one."""
    text = str(token).strip()
    match = _CALLBACK_TOKEN.fullmatch(text)
    if match is None:
        why = (
            "it is incomplete; copy it again"
            if text.startswith(_CALLBACK)
            else f"they begin with {_CALLBACK!r}"
        )
        raise SignalError(f"this is not the token of a callback: {why}")
    return CallbackPlace(match[1], int(match[2]), callback_digest(match[1], match[3]))


async def end_of_callback(log: Log, subject: Subject, place: CallbackPlace) -> float | None:
    """Return when the time of a callback that has this token ends (Unix seconds); null if its token does not say it.

    The state of a run knows only those of open calls. Raises `LogUnavailable`.
    """
    async for stored in log.events.read(subject):
        commit = decode(stored.data)
        if commit.rev > place.revision:
            return None
        for event in commit.events:
            if isinstance(event, TokenIssued) and event.sha256 == place.sha256:
                return event.expires_at
    return None


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
