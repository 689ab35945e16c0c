"""Conformance suites for logs, as pytest classes: subclass a suite and override its `log` fixture.

    class TestMyEventLog(EventLogSuite):
        @pytest.fixture
        async def log(self) -> AsyncIterator[Log]:
            async with MyLog.open(shards=2) as log:
                yield log

There is one suite for each port. The tests need anyio's pytest plugin (`anyio_mode = "auto"`), run in real time, and
use new names for everything, so that all of them may share one namespace. Where logs may differ, a suite has an
attribute to declare it, and asserts the declaration in both directions. `NothingLog` fails every test.
"""

from __future__ import annotations

import pytest

_MODULES = (
    "artifacts",
    "drafts",
    "event_log",
    "keys",
    "leases",
    "snapshots",
    "suite",
    "timers",
    "wakeups",
    "wrapping",
)
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from .artifacts import ArtifactsSuite  # noqa: E402 - asserts are rewritten only in what is imported afterwards
from .drafts import DraftsSuite  # noqa: E402
from .event_log import EventLogSuite  # noqa: E402
from .keys import KeysSuite  # noqa: E402
from .leases import LeasesSuite  # noqa: E402
from .nothing import NothingLog  # noqa: E402
from .snapshots import SnapshotsSuite  # noqa: E402
from .suite import Suite, Writer  # noqa: E402
from .timers import TimersSuite  # noqa: E402
from .wakeups import WakeupsSuite  # noqa: E402
from .wrapping import KeyWrapperSuite  # noqa: E402

__all__ = [
    "ArtifactsSuite",
    "DraftsSuite",
    "EventLogSuite",
    "KeyWrapperSuite",
    "KeysSuite",
    "LeasesSuite",
    "NothingLog",
    "SnapshotsSuite",
    "Suite",
    "TimersSuite",
    "WakeupsSuite",
    "Writer",
]
