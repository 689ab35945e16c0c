"""The file tools of an agent, confined to one workspace. Models read the tools' docstrings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...runtime.ports.tools import Tool, ToolFailed
from ...runtime.tools.decorator import tool
from .listing import ENTRIES_MAX, list_entries
from .patch_language import parse
from .patching import apply, check
from .reading import LINES_MAX, read_lines
from .searching import MATCHES_MAX, search
from .workspace import FILE_BYTES_MAX, Workspace

AtLeastOne = Annotated[int, Field(ge=1)]


def file_tools(workspace: Workspace, *, slot: str | None = None) -> tuple[Tool, ...]:
    """Return `read_file`, `list_dir`, `grep_files` (pure), `write_file` (idempotent) and `apply_patch` (unsafe).

    The last two run alone among the calls of a round, and with a `slot` among all calls of tools with the same slot.
    """
    tools = _FileTools(workspace)
    return (
        tool(effect="pure")(tools.read_file),
        tool(effect="pure")(tools.list_dir),
        tool(effect="pure")(tools.grep_files),
        tool(effect="idempotent", parallel=False, slot=slot)(tools.write_file),
        tool(effect="unsafe", parallel=False, slot=slot)(tools.apply_patch),
    )


class _FileTools:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read_file(self, path: str, offset: AtLeastOne = 1, limit: AtLeastOne = LINES_MAX) -> str:
        """Read a text file. Each line is shown as `L<number>: <text>`; long lines and files are cut, with a mark.

        Args:
            path: The file, relative to the workspace.
            offset: The first line to read, from 1.
            limit: How many lines at most.
        """
        return read_lines(self._workspace, path, offset, limit)

    def list_dir(self, path: str = ".", depth: AtLeastOne = 1, limit: AtLeastOne = ENTRIES_MAX) -> str:
        """List a directory, sorted. A directory ends in /, a symbolic link in @, a device or pipe in ?.

        Args:
            path: The directory, relative to the workspace.
            depth: How many levels; 1 is the directory alone.
            limit: How many entries at most.
        """
        return list_entries(self._workspace, path, depth, limit)

    def grep_files(
        self, pattern: str, path: str = ".", include: list[str] | None = None, limit: AtLeastOne = MATCHES_MAX
    ) -> str:
        """Find the lines of files that match a regular expression. Each is shown as `<path>:<number>: <text>`.

        Args:
            pattern: As for Python, looked for in each line; (?i) ignores case.
            path: A directory, which is searched with all below, or a file; relative to the workspace.
            include: Shell patterns such as *.py or src/*.md, one of which a file's name or path must match.
            limit: How many lines at most.
        """
        return search(self._workspace, pattern, path, include or [], limit)

    def write_file(self, path: str, content: str) -> str:
        """Write a whole text file. Missing directories are made, an existing file is replaced.

        Args:
            path: The file, relative to the workspace.
            content: All that is to be in it.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolFailed(f"content: character {error.start} cannot be written as UTF-8") from None
        if len(data) > FILE_BYTES_MAX:
            raise ToolFailed(
                f"content: has {len(data):,} bytes, more than the {FILE_BYTES_MAX:,} of one file"
            )
        self._workspace.write(path, data)
        return f"Wrote {len(data):,} bytes to {path}."

    def apply_patch(self, input: str) -> str:  # noqa: A002 - the name that models know
        """Edit files with a patch.

        *** Begin Patch
        *** Add File: <path>
        +<every line of the new file>
        *** Delete File: <path>
        *** Update File: <path>
        *** Move to: <new path>
        @@ <a line above the change, such as a class or function header>
         <a line that stays>
        -<a line that goes>
        +<a line that comes>
        *** End of File
        *** End Patch

        A patch holds any number of such sections. "Move to" is optional. An update has one or more chunks, each begun
        by @@: give three lines around a change as they are in the file, without line numbers, and behind @@ the header
        above if these lines are not unique; several @@ lines in a row narrow it further. "End of File" says that the
        chunk's lines are the last ones. A chunk of + lines alone is appended. Paths are relative to the workspace.
        A file may be in several sections, each of which sees what those before it made. Nothing is changed if any part
        does not fit.

        Args:
            input: The whole patch, from "*** Begin Patch" to "*** End Patch".
        """
        try:
            changes = parse(input)
            check(self._workspace, changes)
        except ToolFailed as error:
            raise ToolFailed(f"apply_patch verification failed: {error}") from None
        if not changes:
            raise ToolFailed("patch rejected: empty patch")
        return str(apply(self._workspace, changes))
