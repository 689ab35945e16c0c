"""Show files on the command line: by name, type and size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....eventlog.events import ToolResult
from ....eventlog.parts import FilePart
from ....projections.call_texts import result_text
from ....projections.content_files import files_in
from .escaping import one_line


def told_files(files: Iterable[FilePart]) -> str:
    """Return each file in brackets, after a space; empty for none."""
    return "".join(f" [{one_line(str(file))}]" for file in files)


def told_result(event: ToolResult) -> Any:
    """Return a result for display: the text of its content, and its files by name."""
    if not event.in_parts:
        return event.result
    text = result_text(event.result, in_parts=True)
    return (text + told_files(files_in(event))).strip()
