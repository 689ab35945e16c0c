"""The suite for `Snapshots`."""

from __future__ import annotations

import pytest

from ..ports import Log
from .suite import Suite, new_name

_CHUNKED_BYTES = 1_200_000


class SnapshotsSuite(Suite):
    """Subclass it and override `log` and `reopened`."""

    def content(self, size_bytes: int = 0) -> bytes:
        """Return bytes that no other test stores."""
        return new_name("state").encode() + b"\x00\xff" + bytes(range(256)) * (size_bytes // 256)

    @pytest.mark.parametrize("size_bytes", [0, 40_000, _CHUNKED_BYTES])
    async def test_what_was_put_is_found_under_its_run(self, log: Log, size_bytes: int) -> None:
        run, data = new_name("run"), self.content(size_bytes)
        await log.snapshots.put(run, data)
        assert await log.snapshots.get(run) == data

    @pytest.mark.parametrize(
        ("before", "after"), [(0, 0), (_CHUNKED_BYTES, 0), (0, _CHUNKED_BYTES)], ids=["alike", "less", "more"]
    )
    async def test_the_next_one_takes_the_place_of_the_last(self, log: Log, before: int, after: int) -> None:
        run = new_name("run")
        await log.snapshots.put(run, self.content(before))
        await log.snapshots.put(run, data := self.content(after))
        assert await log.snapshots.get(run) == data

    async def test_an_earlier_one_may_come_back(self, log: Log) -> None:
        run, data = new_name("run"), self.content()
        for each in (data, self.content(), data):
            await log.snapshots.put(run, each)
        assert await log.snapshots.get(run) == data

    async def test_each_run_has_its_own(self, log: Log) -> None:
        contents = {new_name("run"): self.content() for _ in range(3)}
        for run, data in contents.items():
            await log.snapshots.put(run, data)
        assert {run: await log.snapshots.get(run) for run in contents} == contents

    async def test_a_run_without_one_has_none(self, log: Log) -> None:
        run = new_name("run")
        await log.snapshots.put(run, self.content())
        assert await log.snapshots.get(run) is not None
        assert await log.snapshots.get(new_name("run")) is None

    async def test_snapshots_survive_as_declared(self, log: Log) -> None:
        run, data = new_name("run"), self.content()
        await log.snapshots.put(run, data)
        assert await log.snapshots.get(run) == data
        async with self.reopened(log) as again:
            assert await again.snapshots.get(run) == (data if self.durable else None)

    async def test_a_purged_one_is_gone_and_those_of_others_are_not(self, log: Log) -> None:
        run, other, data = new_name("run"), new_name("run"), self.content(1_100_000)
        for each in (run, other):
            await log.snapshots.put(each, data)
        for _ in range(2):
            await log.snapshots.purge(run)
        assert await log.snapshots.get(run) is None
        assert await log.snapshots.get(other) == data
