"""Serve the files of the browser's page as they are in `page/`: no build step, no other origin, no inline script.

The page loads its files from `/files-VERSION/`, so a browser caches them until one of them changes. The version is
computed from the files on disk: after an edit, reloading the page is enough.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

PAGE = Path(__file__).parent / "page"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_NAME_MAX = 200
"""A longer address names a view of the page: none of its files has such a long name."""
_VERSIONED, _KEPT = "files-", "public, max-age=31536000, immutable"
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
    """Return the routes of the page: its files, and for every other address the page itself, which routes to a view.

    The page may be served at any depth, so it refers to its first files by an absolute path, below `base_path`; those
    refer to the others by relative paths.
    """

    async def file(request: Request) -> Response:
        top, _, rest = request.path_params["path"].partition("/")
        is_versioned = top.startswith(_VERSIONED)
        chosen = _chosen(page, rest if is_versioned else request.path_params["path"])
        content, version = chosen.read_bytes(), f"{_VERSIONED}{_version(page)}"
        if chosen.name == "index.html":
            content = content.replace(b'="/', f'="{base_path}/{version}/'.encode())
        caching = _KEPT if top == version else "no-cache"
        headers = {"Content-Security-Policy": CSP, "Cache-Control": caching}
        return Response(content, media_type=_TYPES[chosen.suffix], headers=headers)

    return [Route("/{path:path}", file, methods=["GET"])]


def _version(page: Path) -> str:
    """Return a digest of the names, sizes and modification times of all files, which is cheaper than reading them."""
    found = [Path(folder, name) for folder, _, names in os.walk(page) for name in names]
    files = sorted(
        (str(file), status.st_size, status.st_mtime_ns) for file in found for status in [file.stat()]
    )
    return hashlib.sha256(repr(files).encode()).hexdigest()[:16]


def _chosen(page: Path, name: str) -> Path:
    """Return the file to send. Raises `HTTPException` (404) for a missing file, or one outside the page's directory."""
    found = page if "\0" in name or len(name) > _NAME_MAX else (page / name).resolve()
    if not (found.is_relative_to(page.resolve()) and found.is_file()):
        if name.startswith("api/") or found.suffix in _TYPES:
            raise HTTPException(404)
        found = page / "index.html"
    if found.suffix not in _TYPES or not found.is_file():
        raise HTTPException(404)
    return found
