"""Show files on the command line: by name, type and size."""

from __future__ import annotations

from collections.abc import Iterable

from ....eventlog.parts import FilePart
from ....projections.timeline.words import file_words
from .escaping import one_line


def told_files(files: Iterable[FilePart]) -> str:
    """Return the files in brackets, each after a space; empty if there are none."""
    told = one_line(file_words(files))
    return f" {told}" if told else ""
