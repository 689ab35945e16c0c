"""A directory with commands that start at once: `foldlog`, and the MCP server of the tests as `mcp_server`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


@contextlib.contextmanager
def commands() -> Iterator[Path]:
    """The directory; its commands die with the context."""
    with tempfile.TemporaryDirectory(prefix="foldlog-") as name:  # pytest's own are too long for a socket
        directory = Path(name)
        for command in ("foldlog", "mcp_server"):
            client = directory / command
            client.write_text(f"#!{sys.executable} -ISE\n{HERE.joinpath('client.py').read_text()}")
            client.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-P", HERE / "server.py", directory / "socket"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield directory
            server.stdin.close()
            server.wait(30)
