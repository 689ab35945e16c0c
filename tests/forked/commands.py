"""A directory with a `foldlog` that starts at once, for the PATH of tests that call many commands."""

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
        client = directory / "foldlog"
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
            server.wait(10)
