"""No example of a property fails because the machine is busy: hypothesis' own deadlines are off for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.forked.commands import commands

settings.register_profile("foldlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foldlog")


@pytest.fixture(scope="session")
def forked_commands() -> Iterator[Path]:
    """A directory with a `foldlog` that starts at once."""
    with commands() as directory:
        yield directory
