"""One real server for all commands of a module, a namespace for each test; commands that start at once."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.commands import Project, Running
from tests.cli.project import write_project

SERVER = """
import asyncio
from foldlog.eventlog.embedded import EphemeralServer
async def main():
    async with EphemeralServer() as server:
        print(server.url, flush=True)
        await asyncio.to_thread(input)
asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def _commands_start_at_once(forked_commands: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(forked_commands), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("project")
    write_project(found)
    return found


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server in a process of its own, which ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("\n")


@pytest.fixture
def project(place: Path, server: str) -> Project:
    """Commands on the real server."""
    return Project(place, server, f"t{uuid4().hex[:8]}")


@pytest.fixture
def alone(place: Path) -> Project:
    """Commands that need no server."""
    return Project(place, "memory://")


@pytest.fixture
def start(project: Project) -> Iterator[Callable[..., Running]]:
    """Start commands that do not outlive the test."""
    with ExitStack() as stack:

        def started(*args: str, **environ: str) -> Running:
            running = project.start(*args, **environ)
            stack.callback(running.kill)
            return running

        yield started
