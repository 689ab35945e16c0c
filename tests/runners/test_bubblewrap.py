"""Commands in a real sandbox: they keep every promise of a runner, and see nothing of what they must not.

Collected where `bwrap` works: see `conftest.py` beside.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path

import pytest
from foldlog.adapters.builtin.workspace import Workspace
from foldlog.adapters.runners import Bubblewrap, Limits, SubprocessRunner
from foldlog.adapters.runners.conformance import LimitsSuite, ToolRunnerSuite, sh
from foldlog.runtime.ports.runner import ToolRunner

pytestmark = pytest.mark.anyio
MB = 1_000_000


@pytest.mark.nightly
class TestSandboxed(ToolRunnerSuite):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def runner(self, root: Path) -> ToolRunner:
        return SubprocessRunner(Workspace(root), sandbox=Bubblewrap())

    def another(self, runner: ToolRunner, root: Path) -> ToolRunner:
        return SubprocessRunner(Workspace(root), sandbox=Bubblewrap())


@pytest.mark.nightly
class TestSandboxedLimits(LimitsSuite):
    @pytest.fixture
    def runner(self, tmp_path: Path) -> ToolRunner:
        limits = Limits(cpu_s=1, memory_bytes=150 * MB, open_files=64, processes=16)
        return SubprocessRunner(Workspace(tmp_path), limits=limits, sandbox=Bubblewrap())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def sandboxed(root: Path, **allowed: bool) -> SubprocessRunner:
    return SubprocessRunner(Workspace(root), sandbox=Bubblewrap(**allowed))


async def test_a_file_beside_the_workspace_is_not_there_by_any_way(root: Path) -> None:
    secret = root.parent / "secret"
    secret.write_text("secret")
    (root / "link").symlink_to(secret)
    (root / "up").symlink_to("../..")
    ways = [str(secret), "link", "up/workspace/../secret", "../secret"]
    ways += [f"/proc/{process}/root{secret}" for process in ("1", "self")]
    outcome = await sandboxed(root).run(sh("".join(f"cat '{way}'; " for way in ways) + "true"))
    assert outcome.exit_code == 0
    assert "secret\n" not in outcome.output.replace("secret: No such file", "")
    assert outcome.output.count("No such file") == len(ways)


async def test_nothing_of_the_system_can_be_written_to_and_what_lies_in_tmp_is_gone_afterwards(
    root: Path,
) -> None:
    name = f"x{secrets.token_hex(8)}"
    write = f"for place in /usr /bin /etc /; do touch $place/{name} 2>/dev/null && echo $place; done"
    outcome = await sandboxed(root).run(sh(f"{write}; touch /tmp/{name} && ls /tmp; touch y"))
    above = {part for part in root.parts[2:3] if root.is_relative_to("/tmp")}  # where the workspace lies
    assert set(outcome.output.split()) <= {"/", "/etc", name, *above}
    everywhere = ("/usr", "/bin", "/etc", "/", "/tmp")
    assert [place for place in everywhere if os.path.exists(f"{place}/{name}")] == []  # noqa: ASYNC240, PTH110
    assert (root / "y").exists()


async def test_no_process_of_the_host_is_seen_or_reached(root: Path) -> None:
    there = os.getpid()
    look = f"kill -0 {there} 2>&1; cat /proc/{there}/environ 2>&1; tr '\\0' '\\n' < /proc/1/environ"
    script = f"ls /proc | grep -c '^[0-9]'; {look}"
    os.environ["SECRET_OF_THE_WORKER"] = "hidden"
    try:
        outcome = await sandboxed(root).run(sh(script))
    finally:
        del os.environ["SECRET_OF_THE_WORKER"]
    lines = outcome.output.splitlines()
    assert int(lines[0]) < 10
    assert "No such process" in lines[1]
    assert "SECRET_OF_THE_WORKER" not in outcome.output


@pytest.mark.parametrize("network", [False, True])
async def test_the_network_is_there_only_where_it_is_allowed(root: Path, network: bool) -> None:
    reached: list[str] = []

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append("reached")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    script = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5).recv(1)\""
    async with server:
        outcome = await sandboxed(root, network=network).run(sh(script))
    assert (outcome.exit_code == 0, bool(reached)) == (network, network), outcome


async def test_no_right_is_gained_within(root: Path) -> None:
    """Neither a device nor a mount of the host's: the sandbox has no more rights than who made it."""
    mounts = "mount -t proc proc /proc 2>&1; mount --bind /usr . 2>&1"
    script = f"mknod disk b 8 0 2>&1 && head -c 1 disk 2>&1; {mounts}; echo end"
    outcome = await sandboxed(root).run(sh(script))
    assert outcome.output.splitlines()[-1] == "end"
    assert not (root / "bin").exists()


async def test_the_kernels_word_for_too_much_time_is_understood_through_the_sandbox(root: Path) -> None:
    outcome = await sandboxed(root).run(sh("kill -XCPU $$"))
    assert (outcome.exit_code, outcome.limit) == (128 + signal.SIGXCPU, "cpu")
