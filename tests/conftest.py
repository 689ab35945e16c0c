"""No test fails because of its machine: hypothesis' deadlines are off, and nobody's stored knowledge is looked at."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.forked.commands import commands

settings.register_profile("foldlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foldlog")


@pytest.fixture(scope="session", autouse=True)
def no_knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the knowledge and tokens that the user of this machine has stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLDLOG_KNOWLEDGE", str(tmp_path_factory.mktemp("knowledge") / "knowledge.sqlite3"))
        yield


@pytest.fixture(scope="session")
def forked_commands() -> Iterator[Path]:
    """A directory with commands that start at once."""
    with commands() as directory:
        yield directory


@pytest.fixture(scope="session")
def mcp_server(forked_commands: Path) -> dict[str, Any]:
    """The entry of an MCP server over stdio, for tests that do not look at its process."""
    return {"command": str(forked_commands / "mcp_server"), "args": ["stdio"]}
