"""Everything here runs on asyncio; each scenario is played once."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
from foldlog.replay import Archive, export, read_archive

from tests.replay.scenarios import SCENARIOS, World


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@functools.cache
def played(name: str) -> tuple[World, Archive]:
    """The world of a scenario, and all that its log holds."""

    async def play() -> tuple[World, Archive]:
        world = World()
        await SCENARIOS[name](world)
        return world, read_archive(b"".join([line async for line in export(world.log, artifacts=True)]))

    with ThreadPoolExecutor(1) as thread:  # a test that asks may have a loop of its own
        return thread.submit(lambda: asyncio.run(play())).result()


@pytest.fixture(scope="session", autouse=True)
def _all_played() -> None:
    """Before any test: some change the code that plays, to see the change found."""
    for name in SCENARIOS:
        played(name)
