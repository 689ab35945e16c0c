"""The suite for `Keys` (W58)."""

from __future__ import annotations

import pytest

from ..errors import Conflict
from ..ports import NEW, At, Log
from .suite import Suite, new_name


class KeysSuite(Suite):
    """Subclass it and override `log` and `reopened`."""

    async def test_a_value_is_found_under_its_name_with_its_position(self, log: Log) -> None:
        name, other = new_name("key"), new_name("key")
        position = await log.keys.put(name, b"\x00wrapped\xff", NEW)
        assert position > 0
        assert await log.keys.get(name) == (position, b"\x00wrapped\xff")
        assert await log.keys.get(other) is None
        assert await log.keys.in_use()

    async def test_a_value_at_another_position_is_a_conflict_and_changes_nothing(self, log: Log) -> None:
        name = new_name("key")
        first = await log.keys.put(name, b"first", NEW)
        second = await log.keys.put(name, b"second", At(first))
        for stale in (NEW, At(first)):
            with pytest.raises(Conflict):
                await log.keys.put(name, b"third", stale)
        await log.keys.tidy(name)
        assert await log.keys.get(name) == (second, b"second")

    async def test_all_yields_the_last_value_of_each_name(self, log: Log) -> None:
        names = [new_name("key") for _ in range(3)]
        for name in names:
            await log.keys.put(name, b"second", At(await log.keys.put(name, b"first", NEW)))
        found = {name: data async for name, _, data in log.keys.all()}
        assert {name: found.get(name) for name in names} == dict.fromkeys(names, b"second")

    async def test_keys_survive_as_declared(self, log: Log) -> None:
        name = new_name("key")
        await log.keys.put(name, b"wrapped", NEW)
        assert await log.keys.get(name) is not None
        async with self.reopened(log) as again:
            found = await again.keys.get(name)
        assert (found is not None) == self.durable
