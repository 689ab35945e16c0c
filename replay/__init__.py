"""The proof: canonical traces, the monitor of their rules and parity between executors."""

from .canonical import Boundary, Canonical, canonical
from .comparison import Comparison, Difference, compare, differing_fields, is_prefix
from .monitor import Monitor, Violation, check_trace
from .trace import Trace, find_run, from_jsonl, load_trace, to_jsonl, trace_of

__all__ = [
    "Boundary",
    "Canonical",
    "Comparison",
    "Difference",
    "Monitor",
    "Trace",
    "Violation",
    "canonical",
    "check_trace",
    "compare",
    "differing_fields",
    "find_run",
    "from_jsonl",
    "is_prefix",
    "load_trace",
    "to_jsonl",
    "trace_of",
]
