"""Golden traces: files that the traces of tests have to equal.

The files are `*.jsonl` as `foldlog events export` writes them, so that `foldlog replay --golden DIR` and
`foldlog diff golden:NAME RUN` read them too. A file is written only with `update`: a trace without one is not checked,
and must not look as if it were.
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
    """A trace is not the golden one. `comparison` says where they part."""

    def __init__(self, path: Path, comparison: Comparison) -> None:
        found = comparison.first_difference
        where = f"level {found.level}: {found.why}; {explain(found.rule)}" if found is not None else ""
        super().__init__(
            f"the trace (right) is not that of {path} (left): {where}; "
            "if the new one is right, update the golden trace"
        )
        self.comparison = comparison


class GoldenMissing(AssertionError):
    """There is no golden trace to compare with. Attribute: `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no golden trace {path}: the trace was compared with nothing")
        self.path = path


def hold_golden(trace: Trace, directory: Path, name: str, *, update: bool = False) -> Path:
    """Compare the trace with the golden one of this name (left: the golden one), and return the file.

    With `update` a trace that is missing or differs is written; one that is equal is left as it is. Without it they
    raise `GoldenMissing` and `GoldenMismatch`. A damaged file raises `LogCorrupted` or `ConfigError`.
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
