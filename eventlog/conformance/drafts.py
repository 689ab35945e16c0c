"""The suite for `Drafts`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from ..ports import DraftPiece, Log
from .suite import Suite, new_name


def piece_of(run: str, number: int = 0, text: str = "") -> DraftPiece:
    """Return the n-th piece, of one character."""
    return DraftPiece(run=run, step=1, attempt=1, epoch=1, channel="text", offset=number, text=text or "x")


class DraftsSuite(Suite):
    """Subclass it and override `log`."""

    async def publish(self, log: Log, root: str, *numbers: int) -> list[DraftPiece]:
        """Publish pieces of the root run and return them."""
        pieces = [piece_of(root, number) for number in numbers]
        for piece in pieces:
            await log.drafts.publish(root, piece)
        return pieces

    async def characters(self, pieces: AsyncIterator[DraftPiece], count: int) -> list[DraftPiece]:
        """Return the next pieces, of one character each; joined ones are split again."""
        cut = list[DraftPiece]()
        while len(cut) < count:
            [piece] = await self.take(pieces, 1)
            cut += [
                msgspec.structs.replace(piece, offset=piece.offset + at, text=character)
                for at, character in enumerate(piece.text)
            ]
        return cut

    async def test_everything_published_after_entering_is_seen_in_order(self, log: Log) -> None:
        root = new_name("run")
        async with log.drafts.follow(root) as pieces:
            published = await self.publish(log, root, *range(300))
            assert await self.characters(pieces, 300) == published

    async def test_a_piece_of_any_length_arrives_whole_or_in_parts_that_continue_one_another(
        self, log: Log
    ) -> None:
        root = new_name("run")
        whole = msgspec.structs.replace(piece_of(root, 7), text="\x00é" * 600_000)
        nameless = msgspec.structs.replace(piece_of(root), channel="tool_calls", tool_name="n" * 2_000_000)
        last = piece_of(new_name("run"), 3, "last")
        async with log.drafts.follow(root) as pieces:
            for piece in (whole, nameless, last):
                await log.drafts.publish(root, piece)
            arrived = list[DraftPiece]()
            while not arrived or arrived[-1] != last:
                [piece] = await self.take(pieces, 1)
                arrived.append(piece)
        parts = [piece for piece in arrived if piece.channel == "text" and piece.run == root]
        assert "".join(part.text for part in parts) == whole.text
        assert [part.offset for part in parts] == [
            7 + sum(len(p.text) for p in parts[:at]) for at in range(len(parts))
        ]

    async def test_a_piece_arrives_with_all_that_it_says(self, log: Log) -> None:
        root = new_name("run")
        full = DraftPiece(
            run=new_name("run"),
            step=3,
            attempt=2,
            epoch=4,
            channel="tool_calls",
            offset=17,
            text='{"q": "é✓\n',
            index=1,
            tool_name="search",
            at=1.5,
        )
        async with log.drafts.follow(root) as pieces:
            await log.drafts.publish(root, full)
            assert await self.take(pieces, 1) == [full]

    async def test_a_late_reader_gets_the_recent_pieces_and_then_the_new_ones(self, log: Log) -> None:
        root = new_name("run")
        recent = await self.publish(log, root, *range(20))
        async with log.drafts.follow(root) as pieces:
            assert await self.characters(pieces, 20) == recent
            new = await self.publish(log, root, *range(20, 40))
            assert await self.characters(pieces, 20) == new

    async def test_a_reader_that_comes_right_after_the_pieces_misses_none(self, log: Log) -> None:
        for _ in range(40):
            root = new_name("run")
            recent = await self.publish(log, root, *range(5))
            async with log.drafts.follow(root) as pieces:
                assert await self.characters(pieces, 5) == recent

    async def test_a_reader_that_comes_between_two_pieces_gets_each_once(self, log: Log) -> None:
        root = new_name("run")
        first = await self.publish(log, root, *range(5))
        async with log.drafts.follow(root) as pieces:
            second = await self.publish(log, root, *range(5, 10))
            async with log.drafts.follow(root) as later:
                third = await self.publish(log, root, *range(10, 15))
                assert await self.characters(later, 15) == first + second + third
            assert await self.characters(pieces, 15) == first + second + third

    async def test_families_do_not_hear_each_other(self, log: Log) -> None:
        root, stranger = new_name("run"), new_name("run")
        async with log.drafts.follow(root) as pieces:
            await self.publish(log, stranger, *range(5))
            mine = await self.publish(log, root, 7)
            assert await self.take(pieces, 1) == mine

    async def test_a_family_hears_all_of_its_runs(self, log: Log) -> None:
        root = new_name("run")
        async with log.drafts.follow(root) as pieces:
            published = [piece_of(new_name("run"), number) for number in range(5)]
            for piece in published:
                await log.drafts.publish(root, piece)
            assert await self.characters(pieces, 5) == published

    async def test_publishing_waits_for_no_reader(self, log: Log) -> None:
        root = new_name("run")
        async with log.drafts.follow(root) as slow, log.drafts.follow(root) as fast:
            published = await self.publish(log, root, *range(500))
            assert await self.characters(fast, 500) == published
            assert await self.characters(slow, 500) == published

    async def test_a_late_reader_gets_nothing_of_what_was_purged(self, log: Log) -> None:
        root, other = new_name("run"), new_name("run")
        await self.publish(log, root, *range(5))
        kept = await self.publish(log, other, *range(5))
        async with log.drafts.follow(root) as pieces:  # the log has taken them in
            assert len(await self.characters(pieces, 5)) == len(kept)
        await log.drafts.purge(root)
        async with log.drafts.follow(root) as pieces:
            new = await self.publish(log, root, 5)
            assert await self.characters(pieces, 1) == new
        async with log.drafts.follow(other) as pieces:
            assert await self.characters(pieces, 5) == kept
