"""Verify the signatures of webhooks over the bytes of the body, in constant time (H1).

Each scheme is a function of the secrets (several during a rotation), the headers, the body and the time. It returns
false for a signature that is missing, malformed, too old or wrong, without telling which.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field
from standardwebhooks.webhooks import Webhook

from ...eventlog.errors import ConfigError
from ..configuration.strict_tables import StrictTable

Scheme = Literal["standard", "github", "stripe", "slack", "hmac"]
Headers = Mapping[str, str]
"""Request headers, with case-insensitive names."""
Verifier = Callable[[Headers, bytes, float], bool]

TOLERANCE_S = 300.0
"""The largest difference between a signature's timestamp and now, in either direction, in seconds."""
SIGNATURES_MAX = 16
"""The limit of signatures compared per request: a sender that rotates its secret sends two."""
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class HmacTable(StrictTable):
    """`[hooks.<name>.hmac]`: an HMAC-SHA256 of the body, or of `<timestamp>.<body>` with a `timestamp` header."""

    header: HeaderName
    prefix: str = ""
    encoding: Literal["hex", "base64"] = "hex"
    timestamp: HeaderName | None = None


def verifier_of(scheme: Scheme, secrets: Sequence[str], table: HmacTable | None, where: str) -> Verifier:
    """Return the function that verifies a hook's requests. Raises `ConfigError` for a secret that is unusable."""
    keys = [secret.encode() for secret in secrets]
    match scheme:
        case "standard":
            return _standard([_webhook(secret, where) for secret in secrets])
        case "github":
            return _plain(keys, HmacTable(header="X-Hub-Signature-256", prefix="sha256="))
        case "stripe":
            return lambda headers, body, now: _stripe(keys, headers, body, now)
        case "slack":
            return lambda headers, body, now: _slack(keys, headers, body, now)
        case "hmac":
            if table is None:
                raise ConfigError(f'{where}: verify = "hmac" needs a table hmac with at least its header')
            return _plain(keys, table)


def _webhook(secret: str, where: str) -> Webhook:
    try:
        return Webhook(secret)
    except Exception:  # noqa: BLE001 - of several kinds, and their texts may hold the secret
        raise ConfigError(f"{where}: the secret is not one of Standard Webhooks: whsec_ and Base64") from None


def _standard(webhooks: Sequence[Webhook]) -> Verifier:
    def verified(headers: Headers, body: bytes, _: float) -> bool:
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        found = {name: headers.get(name, "") for name in names}
        if found["webhook-signature"].count(" ") >= SIGNATURES_MAX:
            return False
        return True in [_holds(webhook, body, found) for webhook in webhooks]  # all, whichever holds

    return verified


def _holds(webhook: Webhook, body: bytes, headers: dict[str, str]) -> bool:
    try:
        webhook.verify(body, headers, json_parse=False)
    except Exception:  # noqa: BLE001 - besides its own error ValueError and UnicodeDecodeError, for garbage
        return False
    return True


def _plain(keys: Sequence[bytes], table: HmacTable) -> Verifier:
    def verified(headers: Headers, body: bytes, now: float) -> bool:
        given, signed = headers.get(table.header, ""), body
        if table.timestamp is not None:
            at = headers.get(table.timestamp, "")
            if not _is_now(at, now):
                return False
            signed = at.encode() + b"." + body
        if not given.startswith(table.prefix):
            return False
        return _signed(keys, signed, [given[len(table.prefix) :]], table.encoding)

    return verified


def _stripe(keys: Sequence[bytes], headers: Headers, body: bytes, now: float) -> bool:
    """`Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>]`, over `<seconds>.<body>`."""
    parts = [part.partition("=") for part in headers.get("Stripe-Signature", "").split(",")]
    times = [value for name, _, value in parts if name.strip() == "t"]
    given = [value for name, _, value in parts if name.strip() == "v1"]
    if len(times) != 1 or not _is_now(times[0], now):
        return False
    return _signed(keys, times[0].encode() + b"." + body, given, "hex")


def _slack(keys: Sequence[bytes], headers: Headers, body: bytes, now: float) -> bool:
    """`X-Slack-Signature: v0=<hex>`, over `v0:<X-Slack-Request-Timestamp>:<body>`."""
    at, given = headers.get("X-Slack-Request-Timestamp", ""), headers.get("X-Slack-Signature", "")
    if not _is_now(at, now) or not given.startswith("v0="):
        return False
    return _signed(keys, b"v0:" + at.encode() + b":" + body, [given[3:]], "hex")


def _is_now(timestamp: str, now: float) -> bool:
    plain = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12  # noqa: PLR2004 - digits
    return plain and abs(now - int(timestamp)) <= TOLERANCE_S


def _signed(
    keys: Sequence[bytes], signed: bytes, given: Sequence[str], encoding: Literal["hex", "base64"]
) -> bool:
    """Return whether any of the signatures was made with any of the keys."""
    if len(given) > SIGNATURES_MAX:
        return False
    expected = [hmac.digest(key, signed, "sha256") for key in keys]
    found = [_decoded(text, encoding) for text in given]
    return True in [hmac.compare_digest(one, other) for one in expected for other in found]


def _decoded(text: str, encoding: Literal["hex", "base64"]) -> bytes:
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""
