"""When an unsafe call may start: under a lease that held since the log showed the run to be its driver's (W20)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from foldlog.runtime.driving.driver import Driver


class Guard:
    """The driver of the run above, whose lease covers this one."""

    def __init__(self, below: Standing, renew: Any, lease: int, answer: bool) -> None:
        self.below, self.renew, self.lease_in_force, self.answer = below, renew, lease, answer

    async def is_in_force(self) -> bool:
        return await self.below._says("above", self.answer)


class Standing:
    """What a driver knows of its run; `looks` counts the looks into the log."""

    def __init__(self, *, own: bool = True, above: bool = True, beats: bool = True, lease: int = 1) -> None:
        self.looks: list[str] = []
        self.clock = SimpleNamespace(monotonic=lambda: 100.0)
        self.state = SimpleNamespace(head=SimpleNamespace(position=5))
        self._told_position, self._proven_position = 5, 5
        self._proven_at, self._proven_under = 100.0, lease

        async def renew() -> None:
            self.looks.append("lease")

        self.guard = Guard(self, renew if beats else None, lease, above)
        self.own = own

    async def _says(self, what: str, answer: bool) -> bool:
        self.looks.append(what)
        return answer

    def _ending(self) -> None:
        return None

    async def is_in_force(self) -> bool:
        return await self._says("own", self.own)

    async def _prove(self) -> bool:
        self._proven_position = self._told_position
        return await Driver._prove(self)  # type: ignore[arg-type] # as much of a driver as it needs

    def told(self, position: int) -> None:
        self._told_position = position


async def may_start(standing: Any) -> bool:
    return await Driver._may_start(standing)


async def test_a_proof_that_is_fresh_needs_no_look() -> None:
    standing = Standing()
    assert await may_start(standing)
    assert standing.looks == []


async def test_whoever_was_told_of_more_than_the_proof_has_seen_looks_again() -> None:
    standing = Standing()
    standing.told(6)
    assert await may_start(standing)
    assert standing.looks == ["above", "own"]


async def test_a_lease_that_is_let_go_is_renewed_before_the_look() -> None:
    standing = Standing(lease=0)

    async def renew() -> None:
        standing.looks.append("lease")
        standing.guard.lease_in_force = 1

    standing.guard.renew = renew
    assert await may_start(standing)
    assert standing.looks == ["lease", "above", "own"]


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize(("own", "above"), [(False, True), (True, False)])
async def test_neither_a_run_nor_what_covers_it_may_be_another_ones(
    own: bool, above: bool, beats: bool
) -> None:
    standing = Standing(own=own, above=above, beats=beats)
    standing._proven_at = -1e9
    before = standing._proven_at
    assert not await may_start(standing)
    assert standing._proven_at == before, "what was not shown is believed by the next call"
