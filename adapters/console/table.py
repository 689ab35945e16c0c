"""The table of all routes: method, path, role, shapes, endpoint. A path without braces comes before one with them."""

from __future__ import annotations

from .routes import approvals, runs, session, stream
from .routing import Route

ROUTES: tuple[Route, ...] = (*session.ROUTES, *runs.ROUTES, *approvals.ROUTES, *stream.ROUTES)
