"""Tests of clusters run in one event loop for each module, so that three servers are shared by it."""

import pytest

from tests.runtime.conftest import script as script  # noqa: PLC0414 - a fixture


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"
