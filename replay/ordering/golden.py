"""Golden traces: files that the traces of tests must equal.

The files are `*.jsonl` as written by `foldlog events export`, so `foldlog replay --golden DIR` and
`foldlog diff golden:NAME RUN` can read them too. A file is written only with `update`: otherwise a test without a
golden trace would pass although nothing was checked.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...eventlog.files import read_regular
from ..traces.archive import from_jsonl, to_jsonl
from ..traces.trace import Trace, trace_of
from .comparison import Comparison, compare
from .rule_texts import explain

_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


class GoldenMismatch(AssertionError):
    """A trace differs from the golden one. `comparison` has the first difference."""

    def __init__(self, path: Path, comparison: Comparison) -> None:
        found = comparison.first_difference
        where = f"level {found.level}: {found.why}; {explain(found.rule)}" if found is not None else ""
        super().__init__(
            f"the trace (right) differs from {path} (left): {where}; "
            "if the new trace is correct, update the golden one"
        )
        self.comparison = comparison


class GoldenMissing(AssertionError):
    """The golden trace is missing. Attribute: `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no golden trace {path}: the trace was not compared")
        self.path = path


def hold_golden(trace: Trace, directory: Path, name: str, *, update: bool = False) -> Path:
    """Compare the trace with the golden one of this name (on the left), and return the path of its file.

    With `update`, a golden trace that is missing or differs is written; an equal one is left alone. Without it, raises
    `GoldenMissing` or `GoldenMismatch`. A damaged file raises `LogCorrupted` or `ConfigError`.
    """
    path = directory / f"{_FOREIGN.sub('-', name).strip('-')}.jsonl"
    if path.exists():
        golden = from_jsonl(read_regular(path))
        comparison = compare(golden, trace_of(trace.stored))  # both with artifacts as references
        if comparison.equal:
            return path
        if not update:
            raise GoldenMismatch(path, comparison)
    elif not update:
        raise GoldenMissing(path)
    directory.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_jsonl(trace))
    return path
