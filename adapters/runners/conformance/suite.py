"""The promises of every `ToolRunner`, as tests."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from ....runtime.ports.runner import Command, CommandOutcome, Limit, ToolRunner
from ....runtime.ports.tools import ToolFailed

SECRET = "SECRET_OF_A_CONFORMANCE_TEST"  # noqa: S105 - The name of a variable.


def sh(script: str, **fields: object) -> Command:
    """Return a command that runs a shell script."""
    return Command(argv=("sh", "-c", script), **{"timeout_s": 20.0, **fields})  # type: ignore[arg-type]


class NothingRunner:
    """Does nothing and reports success; fails every test of the suite."""

    async def run(self, command: Command) -> CommandOutcome:
        """See `ToolRunner.run`."""
        return CommandOutcome(exit_code=0, output="", output_bytes=0, duration_s=0.0)


class ToolRunnerSuite:
    """Override `runner`, `root` and `another`, and declare what the runner under test cannot promise."""

    finds_whom_parents_left: ClassVar[bool] = True
    """Whether the runner also ends processes that left their session and whose parent is gone."""
    resolves_links: ClassVar[bool] = True
    """Whether it refuses a `cwd` that is a symbolic link out of the workspace; else a container is the boundary."""
    exclusive: ClassVar[bool] = True
    """Whether two runners of one workspace run one command at a time."""
    patience_s: ClassVar[float] = 20.0
    """The time a test waits for an expected event before it fails."""

    @pytest.fixture
    def root(self) -> Path:
        """Return the workspace, as a directory that the test can read. Override this."""
        raise NotImplementedError("override the fixture `root`")

    @pytest.fixture
    def runner(self, root: Path) -> ToolRunner:
        """Return the runner under test, over the workspace `root`. Override this."""
        raise NotImplementedError("override the fixture `runner`")

    def another(self, runner: ToolRunner, root: Path) -> ToolRunner:
        """Return another runner over the same workspace, as another run would have. Override this."""
        raise NotImplementedError("override `another`")

    @pytest.fixture
    def mark(self) -> str:
        """Return a unique number of seconds (some minutes) to sleep, which identifies a process."""
        return f"30{secrets.randbelow(9)}.{secrets.randbelow(10**9):09d}"

    def is_alive(self, mark: str) -> bool:
        """Return whether a process with `mark` among its arguments runs. Override it where they are invisible."""
        return mark.encode() in b"\0".join(_command_lines())

    async def died(self, mark: str) -> bool:
        """Wait until no process has the mark."""
        with anyio.move_on_after(self.patience_s):
            while self.is_alive(mark):  # noqa: ASYNC110 - The end of a stranger's process is not an event.
                await anyio.sleep(0.02)
            return True
        return False

    async def started(self, path: Path) -> None:
        """Wait until a command has made this file."""
        with anyio.fail_after(self.patience_s):
            while not path.exists():  # noqa: ASYNC110, ASYNC240 - Another process makes it.
                await anyio.sleep(0.02)

    # --- how a command ends ---

    async def test_both_streams_are_told_in_the_order_written(self, runner: ToolRunner) -> None:
        outcome = await runner.run(sh("echo one; echo two >&2; echo three"))
        assert (outcome.exit_code, outcome.output) == (0, "one\ntwo\nthree\n")
        assert (outcome.output_bytes, outcome.timed_out, outcome.limit) == (14, False, "")
        assert outcome.duration_s > 0

    async def test_the_exit_code_is_the_commands_own(self, runner: ToolRunner) -> None:
        assert (await runner.run(sh("exit 3"))).exit_code == 3

    async def test_a_signal_is_told_as_a_shell_tells_it(self, runner: ToolRunner) -> None:
        assert (await runner.run(sh("kill -TERM $$; sleep 20"))).exit_code == 128 + 15

    async def test_a_program_that_does_not_exist_is_named(self, runner: ToolRunner) -> None:
        outcome = await runner.run(Command(argv=("no-such-program", "--help")))
        assert outcome.exit_code == 127
        assert "no-such-program" in outcome.output

    async def test_arguments_pass_unchanged(self, runner: ToolRunner) -> None:
        words = ("a  b", "$HOME", "'", '"', "*", "", "ä\n\\")
        outcome = await runner.run(Command(argv=("sh", "-c", 'for w; do echo "[$w]"; done', "sh", *words)))
        assert outcome.output == "".join(f"[{word}]\n" for word in words)

    # --- what it reads and writes ---

    async def test_stdin_is_what_was_given_and_then_ends(self, runner: ToolRunner) -> None:
        assert (await runner.run(sh("cat; echo end", stdin=b"a\nb\n"))).output == "a\nb\nend\n"

    async def test_without_stdin_a_reader_sees_the_end_at_once(self, runner: ToolRunner) -> None:
        assert (await runner.run(sh("cat; echo end"))).output == "end\n"

    async def test_stdin_need_not_be_read(self, runner: ToolRunner) -> None:
        outcome = await runner.run(sh("exec <&-; echo done", stdin=b"x" * 60_000))
        assert (outcome.exit_code, outcome.output) == (0, "done\n")

    async def test_of_a_flood_the_head_and_the_tail_are_kept(self, runner: ToolRunner) -> None:
        flood = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"
        outcome = await runner.run(sh(flood, output_bytes_max=1000))
        assert outcome.output_bytes == 3_000_012
        assert outcome.output.startswith("first\nxxx")
        assert outcome.output.endswith("xxx\nlast\n")
        assert "\n[... 2,999,012 bytes are left out here ...]\n" in outcome.output
        assert len(outcome.output) < 1100

    async def test_bytes_that_are_not_text_are_replaced(self, runner: ToolRunner) -> None:
        assert (await runner.run(sh(r"printf 'a\377b\000c'"))).output == "a\ufffdb\0c"

    # --- where it runs ---

    async def test_it_works_in_the_workspace(self, runner: ToolRunner, root: Path) -> None:
        (root / "in").write_text("from outside")
        outcome = await runner.run(sh("cat in; echo from inside > out"))
        assert outcome.output == "from outside"
        assert (root / "out").read_text() == "from inside\n"

    async def test_it_works_in_a_directory_of_the_workspace(self, runner: ToolRunner, root: Path) -> None:
        (root / "deep" / "er").mkdir(parents=True)
        await runner.run(sh("echo here > found", cwd="deep/er"))
        assert (root / "deep" / "er" / "found").read_text() == "here\n"

    @pytest.mark.parametrize("cwd", ["..", "/", "/etc", "deep/../.."])
    async def test_no_directory_outside_is_worked_in(self, runner: ToolRunner, root: Path, cwd: str) -> None:
        (root / "deep").mkdir()
        with pytest.raises(ToolFailed, match=cwd):
            await runner.run(sh("touch was-here", cwd=cwd))

    async def test_a_link_out_of_the_workspace_is_seen(self, runner: ToolRunner, root: Path) -> None:
        (root / "out").symlink_to("/etc")
        if self.resolves_links:
            with pytest.raises(ToolFailed, match="out"):
                await runner.run(sh("pwd -P", cwd="out"))
        else:
            assert (await runner.run(sh("pwd -P", cwd="out"))).output == "/etc\n"

    async def test_the_environment_of_the_caller_stays_out(
        self, runner: ToolRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SECRET, "hush")
        outcome = await runner.run(sh("env; cat", env={"GIVEN": "yes"}, stdin=b"done"))
        assert "GIVEN=yes\n" in outcome.output
        assert "PATH=" in outcome.output
        assert SECRET not in outcome.output
        assert "hush" not in outcome.output

    # --- what is left of it ---

    async def test_after_its_time_it_is_stopped_with_all_it_started(
        self, runner: ToolRunner, mark: str
    ) -> None:
        nap = f"sleep {mark}"
        script = f"({nap}1 & {nap}2 & echo started; {nap}3) & echo begun; {nap}4"
        outcome = await runner.run(sh(script, timeout_s=1.0))
        assert (outcome.exit_code, outcome.timed_out) == (124, True)
        assert set(outcome.output.split()) == {"begun", "started"}
        assert await self.died(mark)

    async def test_a_command_that_ignores_signals_is_stopped(self, runner: ToolRunner) -> None:
        script = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
        assert (await runner.run(sh(script, timeout_s=0.5))).exit_code == 124

    async def test_cancelling_stops_it_with_all_it_started(
        self, runner: ToolRunner, root: Path, mark: str
    ) -> None:
        task = asyncio.create_task(runner.run(sh(f"sleep {mark}1 & touch started; sleep {mark}2")))
        await self.started(root / "started")
        assert self.is_alive(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await self.died(mark)

    async def test_what_it_leaves_in_the_background_ends_with_it(self, runner: ToolRunner, mark: str) -> None:
        outcome = await runner.run(sh(f"sleep {mark} & echo left"))
        assert (outcome.exit_code, outcome.output) == (0, "left\n")
        assert await self.died(mark)

    async def test_what_leaves_its_session_is_stopped_too(
        self, runner: ToolRunner, root: Path, mark: str
    ) -> None:
        """Also with its parent gone; where that cannot be promised, while its parent waits for it."""
        end = "true" if self.finds_whom_parents_left else "wait"
        script = (
            f"setsid sh -c 'touch started; sleep {mark}' & until [ -e started ]; do sleep 0.02; done; {end}"
        )
        outcome = await runner.run(sh(script, timeout_s=20.0 if end == "true" else 1.5))
        assert outcome.timed_out is not self.finds_whom_parents_left
        assert (root / "started").exists()
        assert await self.died(mark)

    async def test_one_workspace_has_one_command_at_a_time(self, runner: ToolRunner, root: Path) -> None:
        if not self.exclusive:
            assert type(self.another(runner, root)) is type(runner)
        else:
            script = "mkdir alone || echo not alone; touch started; sleep 0.1; rmdir alone"
            others = [self.another(runner, root) for _ in range(3)]
            outcomes = await asyncio.gather(*(each.run(sh(script)) for each in (runner, *others)))
            assert [outcome.output for outcome in outcomes] == [""] * 4
        assert (await runner.run(sh("echo on"))).output == "on\n"


class LimitsSuite:
    """For runners with limits. Override `runner`: 1 s of CPU time, 150 MB of memory, 64 open files, 16 processes.

    The commands need `python3`.
    """

    @pytest.fixture
    def runner(self) -> ToolRunner:
        """Return the runner under test. Override this."""
        raise NotImplementedError("override the fixture `runner`")

    @pytest.mark.parametrize(
        ("limit", "script"),
        [
            ("cpu", "exec python3 -c 'while True: pass'"),
            ("cpu", "while :; do :; done & while :; do :; done & wait"),
            ("memory", "exec python3 -c 'x = bytearray(10**9)'"),
            (
                "memory",
                "exec python3 -c \"import os, time; os.fork(), os.fork(); x = b'x' * 10**8; time.sleep(20)\"",
            ),
            ("processes", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 20 & sleep 20 & done; wait"),
        ],
    )
    async def test_a_limit_that_is_reached_is_named(
        self, runner: ToolRunner, limit: Limit, script: str
    ) -> None:
        outcome = await runner.run(sh(script))
        assert outcome.limit == limit, outcome
        assert outcome.exit_code > 0
        assert not outcome.timed_out

    async def test_a_fork_bomb_ends(self, runner: ToolRunner) -> None:
        nap = f"sleep 30{secrets.randbelow(9)}.{secrets.randbelow(10**9):09d}"
        outcome = await runner.run(sh(f"b() {{ {nap} & b & b & }}; b; {nap}"))
        assert outcome.limit == "processes"
        assert nap.replace(" ", "\0").encode() not in b"\0".join(_command_lines())

    async def test_open_files_are_counted(self, runner: ToolRunner) -> None:
        outcome = await runner.run(sh("ulimit -n"))
        assert outcome.output == "64\n"

    async def test_limits_do_not_affect_commands_below_them(self, runner: ToolRunner) -> None:
        outcome = await runner.run(sh("python3 -c 'print(len(bytearray(10**7)))'"))
        assert (outcome.exit_code, outcome.output, outcome.limit) == (0, "10000000\n", "")


def _command_lines() -> list[bytes]:
    """Return the arguments of all running processes; a zombie has none."""
    lines = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            lines.append((directory / "cmdline").read_bytes())
    return lines
