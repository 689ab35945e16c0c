"""The proof: traces and archives, their canonical form, comparison, monitor and replay."""

from .alignment import Diff, Row, align, diff
from .archive import (
    Archive,
    Checked,
    Imported,
    check,
    check_log,
    export,
    from_jsonl,
    import_archive,
    read_archive,
    to_jsonl,
)
from .canonical import Boundary, Canonical, canonical
from .comparison import Comparison, Difference, compare, differing_fields, is_prefix
from .monitor import Monitor, Violation, check_trace
from .replaying import Divergence, Point, Replay, replay, state_at
from .trace import Trace, find_run, load_trace, trace_of
from .watching import Watch

__all__ = [
    "Archive",
    "Boundary",
    "Canonical",
    "Checked",
    "Comparison",
    "Diff",
    "Difference",
    "Divergence",
    "Imported",
    "Monitor",
    "Point",
    "Replay",
    "Row",
    "Trace",
    "Violation",
    "Watch",
    "align",
    "canonical",
    "check",
    "check_log",
    "check_trace",
    "compare",
    "diff",
    "differing_fields",
    "export",
    "find_run",
    "from_jsonl",
    "import_archive",
    "is_prefix",
    "load_trace",
    "read_archive",
    "replay",
    "state_at",
    "to_jsonl",
    "trace_of",
]
