"""Golden traces: the first trace of a test is kept as a file, and every later one has to equal it.

The files are `*.jsonl` as `foldlog events export` writes them, so that `foldlog replay --golden DIR` and
`foldlog diff golden:NAME RUN` read them too. They are only added: to accept a change, remove the file.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from .archive import from_jsonl, to_jsonl
from .comparison import Comparison, compare
from .trace import Trace, trace_of

_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


class GoldenMismatch(AssertionError):
    """A trace is not the golden one. `comparison` says where they part."""

    def __init__(self, path: Path, comparison: Comparison) -> None:
        found = comparison.first_difference
        where = f"level {found.level}, rule {found.rule}: {found.why}" if found is not None else ""
        super().__init__(f"the trace is not that of {path}: {where}; remove the file if the new one is right")
        self.comparison = comparison


class Golden(msgspec.Struct, frozen=True):
    """What became of a trace: the file, and whether it is new."""

    path: Path
    added: bool


def hold_golden(trace: Trace, directory: Path, name: str) -> Golden:
    """Compare the trace with the golden one of this name (left: the golden one), or keep it if there is none.

    Raises `GoldenMismatch`, and `LogCorrupted` or `ConfigError` for a file that is damaged.
    """
    path = directory / f"{_FOREIGN.sub('-', name).strip('-')}.jsonl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_jsonl(trace))
        return Golden(path, added=True)
    comparison = compare(
        from_jsonl(path.read_bytes()), trace_of(trace.stored)
    )  # both with artifacts as references
    if not comparison.equal:
        raise GoldenMismatch(path, comparison)
    return Golden(path, added=False)
