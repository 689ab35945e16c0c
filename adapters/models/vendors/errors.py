"""Translate the errors of pydantic-ai into the runtime's model errors."""

from __future__ import annotations

import json

from ....eventlog.parts import FilePart
from ....runtime.ports.models import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    QuotaExceeded,
    RateLimited,
    TransientModelError,
    model_error,
)
from ..failures import Callee, lost, reported

_NOT_CONFIGURED = {
    "NoCredentialsError": "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "NoRegionError": " Set AWS_DEFAULT_REGION.",
    "PartialCredentialsError": "",
    "ProfileNotFound": "",
}
"""Configuration errors of boto3, which appear with the first call, and what to do about them."""


def translated(callee: Callee, error: Exception, *, begun: bool) -> ModelError | None:
    """Return the error for an exception of the library; None for any other exception.

    After the answer has begun (`begun`), any other exception counts as a malformed stream.
    """
    from pydantic_ai import exceptions as pai

    match error:
        case pai.ModelConnectionError():
            return TransientModelError(callee.says(lost(callee, _first_cause(error))))
        case pai.ModelAPIError():
            return _reported(callee, error)
        case pai.UserError() | UnicodeEncodeError():
            return InvalidRequest(callee.says(f"the request cannot be sent: {error}"))
        case _ if (remedy := _NOT_CONFIGURED.get(type(error).__name__)) is not None:
            return AuthenticationFailed(f"{callee.model} cannot be called: {error}{remedy}")
        case pai.AgentRunError():
            return TransientModelError(callee.says(f"the stream is malformed: {error}"))
        case _ if begun:
            return TransientModelError(
                callee.says(f"the stream is malformed: {type(error).__name__}: {error}")
            )
        case NotImplementedError() | RuntimeError():  # what the model class does not support
            return InvalidRequest(callee.says(f"the request cannot be sent: {error}"))
        case _:
            return None


def failed_upload(callee: Callee, file: FilePart, error: Exception) -> ModelError:
    """Return the error for an exception of a vendor's SDK while it uploads a file."""
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    response = getattr(error, "response", None)
    ours = reported(
        callee,
        getattr(error, "body", None) or str(error),
        status=status if isinstance(status, int) else 0,
        headers=getattr(response, "headers", None),
    )
    message = f"{file} cannot be uploaded: {ours}"
    return model_error(ours.error_type, message, retry_after_s=ours.retry_after_s)


def _reported(callee: Callee, error: object) -> ModelError:
    """Return the error that the vendor reports. The library classifies it; we parse the text and its numbers."""
    from pydantic_ai import exceptions as pai

    assert isinstance(error, pai.ModelAPIError)  # noqa: S101 - imported late
    http = error if isinstance(error, pai.ModelHTTPError) else None
    ours = reported(
        callee,
        _body(error.body) or error.message,
        status=http.status_code if http is not None else 0,
        headers=(http.headers if http is not None else None) or _metadata(error),
    )
    kinds: tuple[tuple[type[pai.ModelAPIError], type[ModelError]], ...] = (
        (pai.ModelQuotaExceededError, QuotaExceeded),
        (pai.ModelContextWindowExceededError, ContextOverflow),
        (pai.ModelRateLimitError, RateLimited),
        (pai.ModelAuthenticationError, AuthenticationFailed),
        (pai.ModelUnavailableError, TransientModelError),
        (pai.ModelServerError, TransientModelError),
    )
    known = next((kind for theirs, kind in kinds if isinstance(error, theirs)), None)
    return model_error(
        ours.error_type if known is None or isinstance(ours, ContextOverflow) else known.error_type,
        str(ours),
        retry_after_s=ours.retry_after_s if ours.retry_after_s is not None else error.retry_after,
        window_tokens=getattr(ours, "window_tokens", None),
        request_tokens=getattr(ours, "request_tokens", None),
    )


def _metadata(error: BaseException) -> dict[str, str]:
    """Return the trailing metadata of a gRPC call, the equivalent of HTTP headers; empty for any other call."""
    read = getattr(_first_cause(error), "trailing_metadata", None)
    found = (read() if callable(read) else None) or ()
    return {str(name).lower(): value for name, value in found if isinstance(value, str)}


def _body(body: object) -> object:
    """Return the body of a response as object or text: some SDKs keep its bytes, boto3 builds its own."""
    if isinstance(body, bytes):
        text = body.decode(errors="replace")
        try:
            return json.loads(text)
        except ValueError:
            return text
    error = body.get("Error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return {"message": error.get("Message") or error.get("Code"), "code": error.get("Code")}
    return body


def _first_cause(error: BaseException) -> BaseException:
    """Return the error of the transport, which SDK and library each wrap once."""
    return error if error.__cause__ is None else _first_cause(error.__cause__)
