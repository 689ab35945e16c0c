"""The conformance suites mean something: a log that does nothing fails every one of their tests."""

import inspect

import pytest
from foldlog.eventlog import conformance

pytest_plugins = ("pytester",)

SUITES = [
    conformance.ArtifactsSuite,
    conformance.DraftsSuite,
    conformance.EventLogSuite,
    conformance.KeysSuite,
    conformance.LeasesSuite,
    conformance.SnapshotsSuite,
    conformance.TimersSuite,
    conformance.WakeupsSuite,
]
ON_NOTHING = """
from contextlib import asynccontextmanager

import pytest

from foldlog.eventlog import conformance


class Test{suite}(conformance.{suite}):
    patience_s = 2.0
    ack_wait_s = 0.1

    @pytest.fixture
    def log(self):
        return conformance.NothingLog()

    @asynccontextmanager
    async def reopened(self, log):
        yield conformance.NothingLog()

    @asynccontextmanager
    async def mortal(self, log, worker):
        async def kill():
            pass

        yield log, kill
"""


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_a_log_that_does_nothing_fails_every_test(
    pytester: pytest.Pytester, suite: type[conformance.Suite]
) -> None:
    pytester.makepyfile(ON_NOTHING.format(suite=suite.__name__))
    outcomes = pytester.runpytest_inprocess("-o", "anyio_mode=auto", "-p", "no:cacheprovider").parseoutcomes()
    tests = [name for name, _ in inspect.getmembers(suite) if name.startswith("test_")]
    assert set(outcomes) == {"failed"}
    assert outcomes["failed"] >= len(tests) > 0


def test_every_suite_is_held_to_it() -> None:
    exported = {getattr(conformance, name) for name in conformance.__all__}
    suites = {thing for thing in exported if inspect.isclass(thing) and issubclass(thing, conformance.Suite)}
    assert suites - {conformance.Suite} == set(SUITES)
