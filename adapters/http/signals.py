"""The routes of signals, which need a bearer token, and of callbacks, whose address contains a token of its own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...eventlog.errors import CallbackExpired, RunFinished, RunNotFound, SignalError, SignalMisfit
from ...runtime import Runtime
from ...runtime.core.waits import SIGNAL_BYTES_MAX
from .access import Access
from .answers import Refused, answer, guarded
from .bodies import check_json, parse_json, read_body

KEY_MAX = 256


class SignalRoutes:
    """`POST /v1/runs/RUN/signals/NAME` and `POST /v1/callbacks/TOKEN`; the body is the data."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime, self._access = runtime, access

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/runs/{run}/signals/{name}", guarded(self.signal), methods=["POST"]),
            Route("/v1/callbacks/{token}", guarded(self.callback), methods=["POST"]),
        ]

    async def signal(self, request: Request) -> Response:
        """Store a signal: 202 if it is new, 200 if its `Idempotency-Key` is known."""
        actor = self._access.actor(request)
        data = await _data(request)
        key = request.headers.get("idempotency-key", "")
        if len(key) > KEY_MAX:
            raise Refused(400, f"an Idempotency-Key has at most {KEY_MAX} characters")
        run = self._runtime.get_run(request.path_params["run"])
        sent = await run.signal(request.path_params["name"], data, key=key, by=actor)
        return answer(202 if sent.is_new else 200, {"number": sent.number, "is_new": sent.is_new})

    async def callback(self, request: Request) -> Response:
        """Answer a callback: 202 the first time, 200 if the same token is used again, 410 if it is void.

        Whoever has the token of a callback is told that its time is over, and since when; others learn nothing.
        Data that does not fit is a 422, after which the token is as good as before.
        """
        data = await _data(request)
        try:
            sent = await self._runtime.answer_callback(request.path_params["token"], data)
        except SignalMisfit:
            raise
        except CallbackExpired as expired:
            raise Refused(410, str(expired)) from None
        except (SignalError, RunFinished, RunNotFound):
            raise Refused(410, "this callback is not there, is over, or was answered") from None
        return answer(202 if sent.is_new else 200, {"is_new": sent.is_new})


async def _data(request: Request) -> Any:
    """Parse the body; None if it is empty. Raises `Refused`."""
    body = await read_body(request, SIGNAL_BYTES_MAX)
    if not body:
        return None
    check_json(request)
    return parse_json(body)
