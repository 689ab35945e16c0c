"""The files of the browser's page, as they are in `page/`: no build, no foreign origin, no inline script."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

PAGE = Path(__file__).parent / "page"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_NAME_MAX = 200
"""A longer address is a view of the page: no file of it has such a name."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}


def page_routes(base_path: str = "", page: Path = PAGE) -> list[BaseRoute]:
    """Return the routes of the page: its files, and for every other address the page itself, which has the views.

    The page is served at any depth, so it names its first files by their whole path, with `base_path` before it; these
    find everything else from where they are.
    """

    async def file(request: Request) -> Response:
        chosen = _chosen(page, request.path_params["path"])
        headers = {"Content-Security-Policy": CSP, "Cache-Control": "no-cache"}
        if chosen.name == "index.html" and base_path:
            text = chosen.read_text().replace('="/', f'="{base_path}/')
            return Response(text, media_type=_TYPES[".html"], headers=headers)
        # Small files are sent whole, whatever part of them a request wants.
        request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]
        return FileResponse(chosen, media_type=_TYPES[chosen.suffix], headers=headers)

    return [Route("/{path:path}", file, methods=["GET"])]


def _chosen(page: Path, name: str) -> Path:
    """Return the file to send. Raises `HTTPException` (404) for one that is not there, or is not of the page."""
    found = page if "\0" in name or len(name) > _NAME_MAX else (page / name).resolve()
    if not (found.is_relative_to(page.resolve()) and found.is_file()):
        if name.startswith("api/") or found.suffix in _TYPES:
            raise HTTPException(404)
        found = page / "index.html"
    if found.suffix not in _TYPES or not found.is_file():
        raise HTTPException(404)
    return found
