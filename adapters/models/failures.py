"""Translate the errors of the SDK, of HTTP and of the stream into the runtime's model errors."""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any

import msgspec

from ...eventlog.clock import SystemClock
from ...runtime.ports.models import (
    AuthenticationFailed,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    QuotaExceeded,
    RateLimited,
    TransientModelError,
)
from . import overflow

_CLOCK = SystemClock()
_TEXT_CHARS_MAX = 500

_QUOTA = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
)
_OVERFLOW = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
)
_FILTERED = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
# A request above the limit per minute never fits, however long the client waits (OpenAI, Groq).
_TOO_LARGE_FOR_ANY_MINUTE = re.compile(r"request too large for", re.IGNORECASE)
# An error within a stream has no HTTP status; the first pattern that matches its code or type gives it one.
_STATUS_OF_WORD = (
    (re.compile(r"rate_limit|too_many_requests|resource_exhausted"), 429),
    (re.compile(r"api_key|authentication|permission|unauthorized"), 401),
    (re.compile(r"^invalid_|^image_|_image|bad_?request|not_found|policy|mismatch|unsupported"), 400),
)
# "7m54.336s", "1h2m", "20 seconds": delays as OpenAI, Groq, Azure and Gemini write them.
_AMOUNT = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:(ms|milliseconds?)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hours?)|(d|days?))(?![a-z])",
    re.IGNORECASE,
)
_UNITS_S = (0.001, 1.0, 60.0, 3600.0, 86_400.0)
_DURATION = re.compile(rf"(?:{_AMOUNT.pattern}[\s,]*)+", re.IGNORECASE)
_TRY_AGAIN_IN = re.compile(r"(?:try again|retry) (?:in|after) (?=\d)", re.IGNORECASE)


class MalformedStream(Exception):
    """A chunk violates the API. Callers of this package get a `TransientModelError`."""


class Callee(msgspec.Struct, frozen=True):
    """The model (`provider:model`) that messages name, and the secrets that they must not contain."""

    model: str
    url: str
    idle_timeout_s: float
    secrets: tuple[str, ...] = ()

    def says(self, text: str) -> str:
        """Return a message that names the model and contains no secret."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = re.sub(r"\bsk-[\w*.-]+", "sk-***", text)
        return f"{self.model}: {text}"


_MALFORMED_CALL = "tool_use_failed"


def malformed_call(error: Exception) -> str | None:
    """Return the text of an answer with a tool call that the server could not parse; None for other errors."""
    body = _without_envelope(getattr(error, "body", None))
    if not isinstance(body, dict) or _MALFORMED_CALL not in {body.get("code"), body.get("type")}:
        return None
    written, why = body.get("failed_generation"), _shortened(str(body.get("message") or ""))
    told = f"[{why}]" if why else "[a tool call that could not be read]"
    return f"{written}\n\n{told}" if isinstance(written, str) and written.strip() else told


class _Report(msgspec.Struct, frozen=True):
    """A server's report: HTTP status (0: none), text, the words that classify the error, and the headers."""

    status: int
    text: str
    words: frozenset[str]
    headers: Mapping[str, str] = {}
    delay: str = ""
    """The delay before a retry, from a field of the body."""


def reported(
    callee: Callee, body: Any, *, status: int = 0, headers: Mapping[str, str] | None = None
) -> ModelError:
    """Return the error that a server reports in a response or, without `status`, in a stream."""
    text, words = _details(body)
    report = _Report(status or _status_of(words), text, words, headers or {}, _retry_delay(body))
    what = (f"HTTP {status}" if status else "the server reports an error") + (f": {text}" if text else "")
    kind, delay_s = _kind(report), _retry_after_s(report)
    if kind is ContextOverflow:
        numbers = overflow.stated(text, _without_envelope(body))
        return ContextOverflow(
            callee.says(what),
            retry_after_s=delay_s,
            window_tokens=numbers.window_tokens,
            request_tokens=numbers.request_tokens,
        )
    return kind(callee.says(what), retry_after_s=delay_s)


def translated(callee: Callee, error: Exception) -> ModelError | None:
    """Return the error for an exception of the SDK or its transport; None for any other exception."""
    import httpx2
    import openai

    match error:
        case openai.APIStatusError():
            return reported(callee, error.body, status=error.status_code, headers=error.response.headers)
        case openai.APIConnectionError() | httpx2.RequestError():
            return TransientModelError(callee.says(lost(callee, error.__cause__ or error)))
        case (
            openai.APIResponseValidationError()
            | json.JSONDecodeError()
            | UnicodeDecodeError()
            | MalformedStream()
        ):
            return TransientModelError(callee.says(f"the stream is malformed: {error}"))
        case openai.APIError():
            return reported(callee, error.body or error.message)
        case openai.OpenAIError() | httpx2.InvalidURL() | UnicodeEncodeError():
            return InvalidRequest(callee.says(f"the request cannot be sent: {error}"))
        case _:
            return None


def lost(callee: Callee, cause: BaseException) -> str:
    """Describe which part of a connection failed, and why."""
    name = type(cause).__name__
    detail = f"{name}: {cause}" if str(cause) else name
    if name == "ReadTimeout":
        return f"the server sent nothing for {callee.idle_timeout_s:g} s (idle_timeout_s of its provider)"
    if name.startswith(("Connect", "Pool", "Proxy")):
        return f"cannot connect to {callee.url} ({detail})"
    return f"the connection to {callee.url} was lost ({detail})"


def _details(body: Any) -> tuple[str, frozenset[str]]:
    """Return the text of an error body (object, list of one, plain text), and its code, type and status, lowercase."""
    body = _without_envelope(body)
    if not isinstance(body, dict):
        return _shortened("" if body is None else str(body)), frozenset()
    words = {str(body[key]).lower() for key in ("code", "type", "status") if body.get(key)}
    text = str(body.get("message") or json.dumps(body))
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):  # a router quotes its upstream
        text = f"{text}: {metadata['raw']}"
    return _shortened(text), frozenset(words)


def _without_envelope(body: Any) -> Any:
    if isinstance(body, list) and body:
        body = body[0]
    return body["error"] if isinstance(body, dict) and body.get("error") else body


def _retry_delay(body: Any) -> str:
    """Return the delay of Google's servers: `{"details": [{"retryDelay": "34s"}]}`."""
    error = _without_envelope(body)
    details = error.get("details") if isinstance(error, dict) else None
    listed = details if isinstance(details, list) else []
    found = [each.get("retryDelay") for each in listed if isinstance(each, dict)]
    return next((each for each in found if isinstance(each, str)), "")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_CHARS_MAX else text[:_TEXT_CHARS_MAX] + "..."


def _status_of(words: frozenset[str]) -> int:
    for word in words:
        if re.fullmatch(r"[45]\d\d", word):
            return int(word)
    for pattern, status in _STATUS_OF_WORD:
        if any(pattern.search(word) for word in words):
            return status
    return 0


def _kind(report: _Report) -> type[ModelError]:
    if report.status == 402 or report.words & _QUOTA:  # noqa: PLR2004 - Payment Required.
        return QuotaExceeded
    if (
        _TOO_LARGE_FOR_ANY_MINUTE.search(report.text)
        or report.words & _OVERFLOW
        or (report.status in {0, 400, 413, 422, 500} and overflow.is_told(report.text))
    ):
        return ContextOverflow
    if report.words & _FILTERED:
        return ContentFiltered
    match report.status:
        case 401 | 403:
            return AuthenticationFailed
        case 429:
            return RateLimited
        case 408 | 409 | 425:
            return TransientModelError
        case status if 400 <= status < 500:  # noqa: PLR2004 - the client errors of HTTP.
            return InvalidRequest
        case _:
            return TransientModelError


def _retry_after_s(report: _Report) -> float | None:
    """Return the delay that the server requests: `retry-after-ms`, `retry-after` (seconds or a date), or its text."""
    written = report.headers.get("retry-after", "")
    for value, per_second in ((report.headers.get("retry-after-ms", ""), 1000), (written, 1)):
        try:
            delay_s = float(value) / per_second
        except ValueError:
            continue
        if math.isfinite(delay_s):
            return max(0.0, delay_s)
    at = _unix_seconds(written)
    if at is not None:
        now = _unix_seconds(report.headers.get("date", ""))  # the server's clock, if known
        return max(0.0, at - (_CLOCK.now() if now is None else now))
    said = _TRY_AGAIN_IN.search(report.text)
    texts = (written, report.delay, report.text[said.end() :] if said is not None else "")
    return next((found_s for text in texts if (found_s := _duration_s(text)) is not None), None)


def _duration_s(text: str) -> float | None:
    """Return the duration at the beginning of a text; None if there is none."""
    if (found := _DURATION.match(text)) is None:
        return None
    return sum(
        float(amount) * next(seconds for unit, seconds in zip(units, _UNITS_S, strict=True) if unit)
        for amount, *units in _AMOUNT.findall(found[0])
    )


def _unix_seconds(http_date: str) -> float | None:
    """Return the time of a date in any HTTP format; all of them are in GMT."""
    try:
        parsed = email.utils.parsedate_to_datetime(http_date)
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
