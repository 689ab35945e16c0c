"""A shell that types the `$ ` lines of a document, and a comparison that knows what differs from run to run.

In an expected output `...` stands for anything within a line, or for any lines if it is one. Run ids and approval ids,
times and durations may differ; but an id keeps its meaning: what a document calls `00-01kf...` is the same run in all
its blocks, also in later commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

COMMAND_S_MAX = 90.0
RUN_ID = r"[0-9a-f]{2}-[0-9a-z]{26}"
APPROVAL_ID = r"ap-[0-9a-f]{16}"
_IDS = re.compile(rf"{RUN_ID}|{APPROVAL_ID}")
_VARIES = re.compile(
    r"(?P<lines>^\.\.\.\n)|(?P<anything>\.\.\.)"
    rf"|(?P<run>{RUN_ID})|(?P<approval>{APPROVAL_ID})"
    r"|(?P<date>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?)"
    r"|(?P<time>\d\d:\d\d:\d\d(\.\d+)?)"
    r"|(?P<duration>\d+(\.\d+)?(?P<space> ?)(?P<unit>ms|s)\b)"
    r"|(?P<address>127\.0\.0\.1:\d+)"
    r"|(?P<process>(process|worker|server|keeper) \d+)",
    re.MULTILINE,
)
_TRAILING_SPACE = re.compile(" +$", re.MULTILINE)
_COLUMN_SPACE = re.compile(" {2,}")
_JOBS = re.compile(r"^(bash: line \d+: .*(Killed|Terminated)|\[\d+\]).*\n?", re.MULTILINE)


class Command(NamedTuple):
    """A command and its expected output."""

    text: str
    expected: str


def commands(text: str) -> list[Command]:
    """The commands of a console block; a line behind one that ends in a backslash belongs to it."""
    found: list[Command] = []
    continued = False
    for line in text.splitlines():
        if continued:
            found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line.removeprefix('> ')}")
        elif line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), ""))
        else:
            assert found, f"output before the first command: {line!r}"
            found[-1] = found[-1]._replace(expected=f"{found[-1].expected}{line}\n")
        continued = bool(found) and not found[-1].expected and found[-1].text.endswith("\\")
    return found


def _narrow(text: str) -> str:
    """The text without the widths of its columns, which follow what stands in them."""
    return _COLUMN_SPACE.sub("  ", _TRAILING_SPACE.sub("", text.replace("\t", "  ")))


class Ids:
    """Which id of this run stands for which id of the document."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}

    def put_in(self, command: str) -> str:
        """The command with the ids of this run."""
        return _IDS.sub(lambda match: self._actual.get(match[0], match[0]), command)

    def match(self, expected: str, printed: str) -> bool:
        """Return whether the output is as expected; learns new ids."""
        expected, printed = _narrow(expected), _narrow(printed)
        new: dict[str, str] = {}
        pattern, end = "", 0
        for found in _VARIES.finditer(expected):
            pattern += re.escape(expected[end : found.start()]) + self._pattern(found, new)
            end = found.end()
        pattern += re.escape(expected[end:])
        match = re.fullmatch(pattern, printed, re.DOTALL)
        if match is None:
            return False
        self._actual |= {written: match[group] for written, group in new.items()}
        return True

    def _pattern(self, found: re.Match[str], new: dict[str, str]) -> str:
        written = found[0]
        match found.groupdict():
            case {"lines": str()}:
                return r"(?:[^\n]*\n)*?"
            case {"anything": str()}:
                return r"[^\n]*?"
            case {"run": str()} | {"approval": str()}:
                return self._pattern_of_id(written, new, RUN_ID if found["run"] else APPROVAL_ID)
            case {"date": str()}:
                return r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"
            case {"time": str()}:
                return r"\d\d:\d\d:\d\d(?:\.\d+)?"
            case {"duration": str()}:
                return rf"\d+(?:\.\d+)?{found['space']}(?:ms|s)\b"
            case {"address": str()}:
                return r"127\.0\.0\.1:\d+"
            case _:
                return rf"{written.split()[0]} \d+"

    def _pattern_of_id(self, written: str, new: dict[str, str], shape: str) -> str:
        if written in self._actual:
            return re.escape(self._actual[written])
        if written in new:
            return f"(?P={new[written]})"
        new[written] = f"id{len(new)}"
        return f"(?P<{new[written]}>{shape})"


class Printed(NamedTuple):
    """The output of a command (both streams, as on a terminal) and its exit code."""

    text: str
    code: int


class Shell:
    """One bash for a whole document, so that directories, variables and background jobs last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, directory: Path, environment: Mapping[str, str]) -> Shell:
        """Start it in a directory."""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "--norc",
            cwd=directory,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        shell = cls(process)
        await shell.run("set -m 2>/dev/null")  # so that there are jobs, as at a terminal
        return shell

    async def run(self, command: str) -> Printed:
        """Type a command, and wait until the next prompt."""
        end = f"end-{secrets.token_hex(8)}"
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n%s %d\\n' {end} $?\n".encode())
        printed: list[str] = []
        try:
            async with asyncio.timeout(COMMAND_S_MAX):
                while not (line := await self._line()).startswith(end):
                    assert line, f"the shell ended in {command!r}"
                    printed.append(line)
        except TimeoutError:
            raise AssertionError(f"$ {command}\ndid not end; it printed\n{''.join(printed)}") from None
        text = _JOBS.sub("", "".join(printed).removesuffix("\n"))
        return Printed(text, int(line.split()[1]))

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    async def aclose(self) -> None:
        """End it with everything that was started in it, also a command that does not end."""
        shell = psutil.Process(self._process.pid)
        for process in (*shell.children(recursive=True), shell):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await self._process.communicate()
