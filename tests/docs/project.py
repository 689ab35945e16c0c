"""A project directory in which a document is carried out, block by block, as its reader would.

A block with a `title` becomes that file. A `console` block is typed. Any other `python` block is executed with the
names that the blocks before it defined; it may use `await`, as in `python -m asyncio`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import shutil
import sys
import types
from collections.abc import AsyncIterator
from pathlib import Path

from foldlog.eventlog.embedded import stop_server
from foldlog.runtime.ports import plugins

from tests.docs.markdown import ROOT, Block
from tests.docs.shell import Command, Ids, Shell, commands

INSTALLED = Path(sys.executable).parent
KEPT = ("HOME", "LANG", "TMPDIR", "USER")


class Project:
    """A directory with the repository's examples, a shell in it, and the names of the document's Python."""

    def __init__(self, directory: Path, document: str, shell: Shell) -> None:
        self._directory, self._document, self._shell = directory, document, shell
        self._names = types.ModuleType("__main__").__dict__
        self._ids = Ids()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, directory: Path, document: str, commands: Path) -> AsyncIterator[Project]:
        """Make the directory; what was started in it ends with the context.

        `commands` is where `foldlog` is found.
        """
        (directory / ".foldlog").mkdir()
        shutil.copytree(
            ROOT / "examples", directory / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copytree(
            ROOT / "deploy" / "secure",
            directory / "deploy" / "secure",
            ignore=shutil.ignore_patterns("*.pem"),
        )
        before, modules = Path.cwd(), set(sys.modules)
        plugins.forget()
        os.chdir(directory)
        sys.path.insert(0, str(directory))
        shell = await Shell.start(directory, _environment(commands))
        try:
            yield cls(directory, document, shell)
        finally:
            os.chdir(before)
            sys.path.remove(str(directory))
            await shell.aclose()
            plugins.forget()
            await stop_server(directory / ".foldlog" / "log")
            for name in set(sys.modules) - modules:
                if _lies_in(directory, sys.modules[name]):
                    del sys.modules[name]

    async def carry_out(self, block: Block) -> None:
        """Do what a reader does with the block; raises `AssertionError` that names the line if it does not work."""
        if title := block.attributes.get("title"):
            path = self._directory / title
            assert not path.exists() or path.read_text() == block.text, (
                f"{title} differs from the file that exists"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command in commands(block.text):
                await self._type(command, int(block.attributes.get("exit", "0")), block.line)
        elif block.language == "python":
            await self._execute(block)

    async def _type(self, command: Command, code: int, line: int) -> None:
        printed = await self._shell.run(self._ids.put_in(command.text))
        where = f"{self._document}, block at line {line}: $ {command.text}"
        assert printed.code == code, f"{where}\nended with exit code {printed.code}:\n{printed.text}"
        if command.expected:
            assert self._ids.match(command.expected, printed.text), (
                f"{where}\nshould print\n{command.expected}\nand printed\n{printed.text}"
            )

    async def _execute(self, block: Block) -> None:
        source = "\n" * block.line + block.text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, self._document, "exec", flags=flags, dont_inherit=True)
        outcome = eval(code, self._names)
        if asyncio.iscoroutine(outcome):
            await outcome


def _environment(commands: Path) -> dict[str, str]:
    """Return the shell's environment, without variables that lead to another log or account."""
    inherited = {name: value for name, value in os.environ.items() if name in KEPT}
    path = os.pathsep.join([str(commands), str(INSTALLED), os.environ["PATH"]])
    terminal = {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
    return {**inherited, **terminal, "PATH": path, "FOLDLOG_KEEPER_IDLE_S": "30"}


def _lies_in(directory: Path, module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(directory)
