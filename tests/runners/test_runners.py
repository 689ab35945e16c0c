"""Every runner on this machine keeps the promises of the conformance suite, and some of its own."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from foldlog.adapters.builtin.workspace import Workspace
from foldlog.adapters.runners import Bubblewrap, DirectRunner, Limits, SubprocessRunner, supervisor
from foldlog.adapters.runners.conformance import LimitsSuite, ToolRunnerSuite, sh
from foldlog.adapters.runners.output import HeadAndTail
from foldlog.eventlog import ConfigError
from foldlog.runtime.ports.runner import Command, CommandOutcome, ToolRunner
from foldlog.runtime.ports.tools import ToolFailed
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio
pytest_plugins = ("pytester",)

MB = 1_000_000
ON_NOTHING = """
import pytest
from foldlog.adapters.runners.conformance import LimitsSuite, NothingRunner, ToolRunnerSuite


class TestNothing(ToolRunnerSuite):
    patience_s = 0.1

    @pytest.fixture
    def root(self, tmp_path):
        return tmp_path

    @pytest.fixture
    def runner(self, root):
        return NothingRunner()

    def another(self, runner, root):
        return NothingRunner()


class TestNoLimits(LimitsSuite):
    @pytest.fixture
    def runner(self):
        return NothingRunner()
"""


class OnThisMachine(ToolRunnerSuite):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path


class TestDirect(OnThisMachine):
    @pytest.fixture
    def runner(self, root: Path) -> ToolRunner:
        return DirectRunner(Workspace(root))

    def another(self, runner: ToolRunner, root: Path) -> ToolRunner:
        return DirectRunner(Workspace(root))


class TestSubprocess(OnThisMachine):
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        """The loop of a worker; the other runner is tested on asyncio's own."""
        return "asyncio", {"use_uvloop": True}

    @pytest.fixture
    def runner(self, root: Path) -> ToolRunner:
        return SubprocessRunner(Workspace(root))

    def another(self, runner: ToolRunner, root: Path) -> ToolRunner:
        return SubprocessRunner(Workspace(root))


class TestLimits(LimitsSuite):
    @pytest.fixture
    def runner(self, tmp_path: Path) -> ToolRunner:
        limits = Limits(cpu_s=1, memory_bytes=150 * MB, open_files=64, processes=16)
        return SubprocessRunner(Workspace(tmp_path), limits=limits)


def test_a_runner_that_does_nothing_fails_every_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ON_NOTHING)
    outcomes = pytester.runpytest_inprocess("-o", "anyio_mode=auto", "-p", "no:cacheprovider").parseoutcomes()
    tests = [
        name
        for suite in (ToolRunnerSuite, LimitsSuite)
        for name, _ in inspect.getmembers(suite)
        if name.startswith("test_")
    ]
    assert set(outcomes) == {"failed"}
    assert outcomes["failed"] >= len(tests) > 0


async def test_a_command_that_is_cancelled_while_it_starts_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, written = asyncio.get_running_loop(), asyncio.Event()
    start = loop.subprocess_exec

    async def slow_to_return(*args: Any, **fields: Any) -> Any:
        started = await start(*args, **fields)
        while not (tmp_path / "pids").exists():  # noqa: ASYNC110 - no event for a command
            await asyncio.sleep(0.01)
        written.set()
        await asyncio.sleep(0)
        return started

    monkeypatch.setattr(loop, "subprocess_exec", slow_to_return)
    script = "sleep 120 & one=$!; sleep 120 & echo $one $! > pids.new; mv pids.new pids; wait"
    running = asyncio.create_task(DirectRunner(Workspace(tmp_path)).run(sh(script)))
    await written.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(gone, (tmp_path / "pids").read_text())


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_a_command_that_closes_its_input_before_it_is_given_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    async def run() -> CommandOutcome:
        loop = asyncio.get_running_loop()
        start = loop.subprocess_exec

        async def slow_to_return(*args: Any, **fields: Any) -> Any:
            transport, protocol = await start(*args, **fields)
            pipe: Any = transport.get_pipe_transport(0)
            while not pipe.is_closing():  # noqa: ASYNC110 - no event for a command's input
                await asyncio.sleep(0.01)
            return transport, protocol

        monkeypatch.setattr(loop, "subprocess_exec", slow_to_return)
        return await DirectRunner(Workspace(tmp_path)).run(sh("exec <&-; echo done", stdin=b"x"))

    outcome = anyio.run(run, backend_options={"use_uvloop": backend == "uvloop"})
    assert (outcome.exit_code, outcome.output) == (0, "done\n")


async def test_what_a_runner_puts_before_a_program_is_not_blamed_for_it(tmp_path: Path) -> None:
    too_much = Command(argv=("echo", "x" * 3 * MB))
    for runner in (DirectRunner(Workspace(tmp_path)), SubprocessRunner(Workspace(tmp_path))):
        outcome = await runner.run(too_much)
        assert (outcome.exit_code, outcome.output) == (126, "echo: Argument list too long\n")


# --- the supervisor ---


async def test_a_command_that_kills_its_supervisor_ends_with_it(tmp_path: Path) -> None:
    script = "sleep 120 & echo $! > pid; kill -9 $PPID; sleep 120"
    outcome = await SubprocessRunner(Workspace(tmp_path)).run(sh(script))
    assert (outcome.exit_code, outcome.lost) == (128 + signal.SIGKILL, True)
    assert await asyncio.to_thread(gone, (tmp_path / "pid").read_text())


WORKER = """
import asyncio, sys
from foldlog.adapters.builtin.workspace import Workspace
from foldlog.adapters.runners import SubprocessRunner
from foldlog.adapters.runners.conformance import sh

script = "setsid sleep 120 & one=$!; sleep 120 & echo $one $! > pids.new; mv pids.new pids; wait"
asyncio.run(SubprocessRunner(Workspace(sys.argv[1])).run(sh(script)))
"""


def test_of_too_many_processes_no_more_are_looked_at_than_it_takes_to_know():
    endless = itertools.repeat(os.getpid())
    sums = supervisor.sums_of(endless, 256)
    assert sums["processes"] == 257


def test_of_limits_that_are_exceeded_at_once_that_of_processes_is_named():
    assert [*supervisor.sums_of([os.getpid()], None)] == ["processes", "memory", "cpu"]


async def test_what_a_command_started_does_not_outlive_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(tmp_path))
    while not (tmp_path / "pids").exists():
        assert worker.returncode is None
        await asyncio.sleep(0.02)
    pids = (tmp_path / "pids").read_text()
    assert len(pids.split()) == 2
    worker.kill()
    await worker.wait()
    assert await asyncio.to_thread(gone, pids)


def gone(pids: str) -> bool:
    """Wait until none of them runs; where the first process of a container reaps none, they stay zombies."""
    until = time.monotonic() + 120
    while any(runs(int(pid)) for pid in pids.split()):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def test_a_bare_environment_stays_bare(tmp_path: Path) -> None:
    runner = SubprocessRunner(Workspace(tmp_path), env_allowed=())
    outcome = await runner.run(Command(argv=("/usr/bin/env",), env={"ONLY": "this"}))
    assert outcome.output == "ONLY=this\n"


async def test_a_program_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for runner in (DirectRunner(Workspace(tmp_path)), SubprocessRunner(Workspace(tmp_path))):
        outcome = await runner.run(Command(argv=("./text",)))
        assert outcome.exit_code == 126
        assert outcome.output == "./text: Permission denied\n"


# --- the sandbox ---

FAKE_BWRAP = """#!/bin/sh
printf '%s\\n' "$@" > "$(dirname "$0")/arguments"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.parametrize("network", [False, True])
async def test_a_sandbox_shows_the_workspace_and_the_system(tmp_path: Path, network: bool) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(FAKE_BWRAP)
    fake.chmod(0o755)
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    sandbox = Bubblewrap(program=str(fake), network=network, read_only=("/usr", "/opt"))
    outcome = await SubprocessRunner(Workspace(root), sandbox=sandbox).run(sh("pwd", cwd="sub"))
    assert outcome.output == f"{root}/sub\n"
    arguments = " ".join((tmp_path / "arguments").read_text().split("\n"))
    assert "--unshare-all" in arguments
    assert ("--share-net" in arguments) is network
    assert "--ro-bind-try /usr /usr --ro-bind-try /opt /opt --proc /proc" in arguments
    assert f"--tmpfs /tmp --bind {root} {root} --chdir {root}/sub -- " in arguments


def test_a_sandbox_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no-bwrap.*not installed"):
        SubprocessRunner(Workspace(tmp_path), sandbox=Bubblewrap(program="no-bwrap"))


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"argv": ()}, "empty"),
        ({"argv": ("",)}, "empty"),
        ({"argv": ("echo", "a\0b")}, "NUL"),
        ({"argv": ("echo", "\ud800")}, "Unicode"),
        ({"argv": ("env",), "env": {"A": "\0"}}, "NUL"),
        ({"argv": ("env",), "env": {"A=B": "c"}}, "'A=B' cannot be the name"),
        ({"argv": ("env",), "env": {"": "c"}}, "'' cannot be the name"),
        ({"argv": ("echo",), "timeout_s": 0}, "more than 0 s"),
    ],
)
def test_a_command_that_no_system_takes_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolFailed, match=problem):
        Command(**fields)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"limits\.cpu_s"):
        Limits(cpu_s=0)


def test_names_of_variables_stand_in_a_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="env_allowed: must be names in a list, not 'PATH'"):
        DirectRunner(Workspace(tmp_path), env_allowed="PATH")


# --- head and tail ---


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(min_value=8, max_value=60))
def test_what_is_kept_of_an_output_begins_and_ends_as_it_does(pieces: list[str], size_bytes_max: int) -> None:
    whole = "".join(pieces)
    output = HeadAndTail(size_bytes_max)
    for piece in pieces:
        output.feed(piece.encode())
    assert output.size_bytes == len(whole.encode())
    if output.size_bytes <= size_bytes_max:
        assert output.text() == whole
    else:
        head, _, rest = output.text().partition("\n[... ")
        tail = rest.partition(" ...]\n")[2]
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert size_bytes_max - 6 <= len((head + tail).encode()) <= size_bytes_max
