"""No example of a property fails because the machine is busy: hypothesis' own deadlines are off for all tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.forked.commands import commands

settings.register_profile("foldlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foldlog")


@pytest.fixture(scope="session")
def forked_commands() -> Iterator[Path]:
    """A directory with commands that start at once."""
    with commands() as directory:
        yield directory


@pytest.fixture(scope="session")
def mcp_server(forked_commands: Path) -> dict[str, Any]:
    """The entry of an MCP server over stdio, for tests that do not look at its process."""
    return {"command": str(forked_commands / "mcp_server"), "args": ["stdio"]}
