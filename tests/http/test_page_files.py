"""The files of the console's page, as they are sent: kept by browsers, and new once one of them has changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx2 as httpx
import pytest
from foldlog.adapters.console.page_files import PAGE, page_routes
from starlette.applications import Starlette


def client(page: Path, base_path: str = "") -> httpx.AsyncClient:
    app = Starlette(routes=page_routes(base_path, page))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://console")


@pytest.mark.parametrize("base_path", ["", "/ops"])
async def test_the_page_names_files_that_a_browser_keeps(base_path: str) -> None:
    async with client(PAGE, base_path) as console:
        page = await console.get("/runs/some-run")
        assert page.headers["cache-control"] == "no-cache"
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(named) == 3
        for name in named:
            assert name.startswith(f"{base_path}/files-")
            file = await console.get(name.removeprefix(base_path))
            assert file.status_code == 200
            assert "immutable" in file.headers["cache-control"]
            assert "default-src 'none'" in file.headers["content-security-policy"]
        module = next(name for name in named if name.endswith("app.js")).removeprefix(base_path)
        assert (await console.get(module.replace("app.js", "views/run.js"))).content == (
            PAGE / "views" / "run.js"
        ).read_bytes()


async def test_a_file_that_was_edited_has_another_address_and_the_old_one_is_not_kept(tmp_path: Path) -> None:
    page = tmp_path / "page"
    shutil.copytree(PAGE, page)
    async with client(page) as console:
        before = re.search(r"/files-\w+/", (await console.get("/")).text)
        (page / "text.js").write_text("// edited")
        after = re.search(r"/files-\w+/", (await console.get("/")).text)
        assert before is not None
        assert after is not None
        assert before[0] != after[0]
        for folder, caching in ((before[0], "no-cache"), (after[0], "immutable"), ("/", "no-cache")):
            file = await console.get(f"{folder}text.js")
            assert (file.text, caching in file.headers["cache-control"]) == ("// edited", True)


@pytest.mark.parametrize(
    "path", ["/files-x/../page_files.py", "/files-x/%2e%2e/page_files.py", "/files-x/none.js"]
)
async def test_nothing_but_the_files_of_the_page_is_sent(path: str) -> None:
    async with client(PAGE) as console:
        answer = await console.get(path)
        assert "import" not in answer.text
        assert answer.status_code in {200, 404}
