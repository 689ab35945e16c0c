"""The modules of the console's page, checked by TypeScript as they are: their types stand in comments."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import foldlog.adapters.console

from tests.javascript.packages import installed_packages, output_of

PAGE = Path(foldlog.adapters.console.__file__).parent / "page"
OPTIONS = {
    "noEmit": True,
    "allowJs": True,
    "checkJs": True,
    "strict": True,
    "target": "es2022",
    "module": "es2022",
    "moduleResolution": "bundler",
    "lib": ["es2023", "dom", "dom.iterable"],
    "types": [],
}


async def checked(page: Path, directory: Path) -> str:
    """Return what the compiler says of the modules of a page."""
    packages = await installed_packages()
    project = directory / "tsconfig.json"
    include, exclude = f"{page.as_posix()}/**/*.js", f"{page.as_posix()}/vendor/*.js"
    project.write_text(json.dumps({"compilerOptions": OPTIONS, "include": [include], "exclude": [exclude]}))
    compiler = packages.directory / "node_modules" / ".bin" / "tsc"
    code, output, errors = await output_of(compiler, "-p", project, cwd=directory)
    assert bool(code) == bool(output), errors
    return output


async def test_the_modules_of_the_page_have_no_type_errors(tmp_path: Path) -> None:
    assert await checked(PAGE, tmp_path) == ""


async def test_a_slip_in_a_module_of_the_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page"
    shutil.copytree(PAGE, page)
    module = page / "text.js"
    module.write_text(module.read_text().replace("text.length > most", "text.lenght > most"))
    assert "Property 'lenght' does not exist on type 'string'" in await checked(page, tmp_path)
