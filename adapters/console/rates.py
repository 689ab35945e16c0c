"""Rate limits: writes and starts per token, sign-ins per address, and concurrent expensive queries."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from ..http.answers import Refused
from ..http.rates import Rate

if TYPE_CHECKING:
    from starlette.requests import Request

    from .identity import Actor
    from .routing import Route

RATES = {"sign-in": "10/m", "write": "120/m", "start": "60/m"}
HEAVY_AT_ONCE = 2
CALLERS_MAX = 10_000
"""The limit of callers that are counted; beyond it, all counts are reset."""


class Rates:
    """The rate limits of one process."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counted: dict[tuple[str, str], Rate] = {}
        self._at_once: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def counted(self, route: Route, request: Request, actor: Actor | None) -> AsyncGenerator[None]:
        """Count a request, and hold its place among concurrent ones while open. Raises `Refused` (429)."""
        address = request.client.host if request.client else ""
        caller = address if route.cost == "sign-in" or actor is None else f"{actor.token}:{actor.name}"
        kind = route.cost or ("write" if route.is_write else "")
        if kind in RATES:
            self._count(kind, caller)
        if kind != "heavy":
            yield
            return
        if self._at_once.get(caller, 0) >= HEAVY_AT_ONCE:
            raise Refused(
                429, f"{HEAVY_AT_ONCE} such questions are being answered; wait for them", retry_after_s=1
            )
        self._at_once[caller] = self._at_once.get(caller, 0) + 1
        try:
            yield
        finally:
            self._at_once[caller] -= 1
            if not self._at_once[caller]:
                del self._at_once[caller]

    def _count(self, kind: str, caller: str) -> None:
        if len(self._counted) >= CALLERS_MAX:
            self._counted.clear()
        rate = self._counted.setdefault((kind, caller), Rate(RATES[kind], kind))
        wait_s = rate.wait_s(self._now())
        if wait_s:
            raise Refused(
                429,
                f"at most {RATES[kind]} of these are taken: try again in {wait_s} s",
                retry_after_s=wait_s,
            )
