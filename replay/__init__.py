"""The proof: traces and archives, their canonical form, comparison, monitor, replay, and parity between executors.

Names that need the runtime are loaded lazily, so that the pytest plugin, which is in this package, costs nothing.
"""

import typing

from ..eventlog.lazy_names import lazy_names as _lazy_names
from .canonical.canonical import Boundary, Canonical, canonical
from .ordering.alignment import Diff, Row, align, diff
from .ordering.comparison import Comparison, Difference, begins_with, compare, differing_fields, is_prefix
from .ordering.monitor import Monitor, Violation, check_trace
from .ordering.watching import Watch
from .traces.archive import (
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
from .traces.trace import Trace, find_run, load_trace, trace_of

if typing.TYPE_CHECKING:
    from .parity.inputs import Answer, Cancel, WaitEnd
    from .parity.parity import ParityReport, ParityViolation, assert_parity, check_parity
    from .replaying.prompts import SentPrompt, prompt_at
    from .replaying.replaying import Divergence, Point, Replay, replay, state_at
    from .rerunning.recorded import rerun
    from .simulation import SimulationReport, simulate

__all__ = [
    "Answer",
    "Archive",
    "Boundary",
    "Cancel",
    "Canonical",
    "Checked",
    "Comparison",
    "Diff",
    "Difference",
    "Divergence",
    "Imported",
    "Monitor",
    "ParityReport",
    "ParityViolation",
    "Point",
    "Replay",
    "Row",
    "SentPrompt",
    "SimulationReport",
    "Trace",
    "Violation",
    "WaitEnd",
    "Watch",
    "align",
    "assert_parity",
    "begins_with",
    "canonical",
    "check",
    "check_log",
    "check_parity",
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
    "prompt_at",
    "read_archive",
    "replay",
    "rerun",
    "simulate",
    "state_at",
    "to_jsonl",
    "trace_of",
]

_LOADED_LATER = {
    "Answer": "parity.inputs",
    "Cancel": "parity.inputs",
    "Divergence": "replaying.replaying",
    "ParityReport": "parity.parity",
    "ParityViolation": "parity.parity",
    "Point": "replaying.replaying",
    "Replay": "replaying.replaying",
    "SentPrompt": "replaying.prompts",
    "SimulationReport": "simulation",
    "WaitEnd": "parity.inputs",
    "assert_parity": "parity.parity",
    "check_parity": "parity.parity",
    "prompt_at": "replaying.prompts",
    "replay": "replaying.replaying",
    "rerun": "rerunning.recorded",
    "simulate": "simulation",
    "state_at": "replaying.replaying",
}

if not typing.TYPE_CHECKING:  # for a checker, a name that is not imported above does not exist
    __getattr__ = _lazy_names(__name__, _LOADED_LATER)
