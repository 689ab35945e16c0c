"""The audit of a namespace: checks that every assigned position of a stream is there, or is known to be removed.

NATS drops messages that it cannot read, and at best mentions that in its own log. What foldlog removes is announced:
schedules by the message before them, all else by a note (`removals`). So every other missing position is a loss.
Positions that a stream lost at its end and assigned again are found by the seals of the shard (`seals`), which are in
another stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import get_args

import msgspec

from ..commits import ORIGIN, Head, before, decode, digest_of_bytes, is_intact, verify_envelope
from ..errors import LogCorrupted, RunGone
from ..events import Buried
from ..losses import Audit, Loss, MissingRun
from ..offload import references
from ..ports import RegisterKind, Shard, Stored
from .known_losses import known_losses
from .layout import SHARDS_KEY, Layout
from .removals import Removed, removed
from .seals import Reckoning, Seal, read_seals
from .streams import Message, read_stream
from .wire import Refused, Wire

_STREAM_NOT_FOUND = 10059
_CHUNK_TOKENS = 6
_NAMED = re.compile(rb'"run":"([A-Za-z0-9_-]{1,64})"')
_CHILD = re.compile(rb'"child_run":"([A-Za-z0-9_-]{1,64})"')
_BEHIND_EVENTS = b',"path":"'
_REFERENCE = re.compile(rb'"\$artifact":"([0-9a-f]{64})"')
_COMMITS = {b"run", *(kind.encode() for kind in get_args(RegisterKind))}
_KNOWN_BY = {
    b"wake": "a wake-up",
    b"due": "a wake-up",
    b"key": "an idempotency key",
    b"lane": "a session",
    b"slots": "the slots of its agent",
}
LAG_ATTEMPTS, LAG_S = 20, 0.1
_GONE = "the messages stored there are lost"


class _State(msgspec.Struct, frozen=True):
    last_seq: int


class _Config(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}


class _Info(msgspec.Struct, frozen=True):
    state: _State
    config: _Config


class _Names(msgspec.Struct, frozen=True):
    total: int = 0
    streams: list[str] | None = None


async def audit(wire: Wire, layout: Layout, shards: int) -> Audit:
    """Read all streams of a namespace and account for every position. Raises `LogUnavailable`."""
    return await _Auditor(wire, layout, shards).audit()


async def namespaces(wire: Wire) -> dict[str, int]:
    """Return the namespaces that have a stream on the server, with their number of shards."""
    found: dict[str, int] = {}
    for stream in await _streams(wire):
        match = re.fullmatch(r"FL_(.+)_(?:[0-9a-f]{2}|artifacts)", stream)
        if match is not None and match[1] not in found:
            noted = (await wire.api(f"STREAM.INFO.{stream}", None, _Info)).config.metadata.get(SHARDS_KEY, "")
            if noted.isdigit():
                found[match[1]] = int(noted)
    return found


async def shards_of(wire: Wire, layout: Layout) -> int | None:
    """Return the number of shards of a namespace, None if it does not exist. Asks for its own streams only."""
    for stream in (layout.shard(0), layout.artifacts):
        try:
            noted = (await wire.api(f"STREAM.INFO.{stream}", None, _Info)).config.metadata.get(SHARDS_KEY, "")
        except Refused as refused:
            if refused.err_code != _STREAM_NOT_FOUND:
                raise
        else:
            return int(noted) if noted.isdigit() else None
    return None


async def _streams(wire: Wire) -> list[str]:
    names: list[str] = []
    while True:
        page = await wire.api("STREAM.NAMES", {"offset": len(names)}, _Names)
        names += page.streams or []
        if not page.streams or len(names) >= page.total:
            return names


class _Auditor:
    def __init__(self, wire: Wire, layout: Layout, shards: int) -> None:
        self._wire, self._layout, self._shards = wire, layout, shards
        self._losses: list[Loss] = []
        self._accepted: list[Loss] = []
        self._there: set[str] = set()
        self._named: dict[str, str] = {}
        self._artifacts: set[str] = set()
        self._has_artifacts = True
        self._referring: list[tuple[int, Message]] = []
        self._positions = 0
        self._noted: dict[str, list[tuple[int, int]]] = {}
        self._removed: dict[str, Removed] = {}
        self._buried: set[str] = set()

    async def audit(self) -> Audit:
        await self._audit_artifacts()
        sealed = [await self._audit_shard(shard) for shard in range(self._shards)]
        self._check_references()
        damaged: dict[str, str] = {}
        for shard in dict.fromkeys(loss.shard for loss in [*self._losses, *self._accepted]):
            if shard is not None:
                damaged |= await self._damaged(shard)
        missing = [
            MissingRun(run=run, known_by=by)
            for run, by in self._named.items()
            if run not in self._there and run not in self._buried
        ]
        return Audit(
            losses=tuple(_joined(self._losses)),
            accepted=tuple(self._accepted),
            missing=tuple(missing) if self._losses or self._accepted else (),
            damaged=damaged,
            positions=self._positions,
            sealed=tuple(sealed),
        )

    # ---- the artifacts

    async def _audit_artifacts(self) -> None:
        stream, position = self._layout.artifacts, 0
        last = await self._last(stream)
        self._has_artifacts = last is not None
        if last is None:
            self._lost(stream, None, 0, 0, "the stream is lost, with all large values and seals")
            return
        await self._read_notes()
        async for message in read_stream(self._wire, stream, self._layout.all_artifacts):
            self._missing(stream, None, position + 1, message.position - 1)
            position = message.position
            tokens = message.subject.split(b".")
            if len(tokens) == _CHUNK_TOKENS:  # others are seals and notes
                self._artifacts.add(tokens[3].decode())
        self._missing(stream, None, position + 1, last)
        self._positions += last

    def _check_references(self) -> None:
        """Check that all artifacts to which commits refer are there."""
        for shard, message in self._referring:
            subject = self._layout.parse(shard, message.subject)
            for digest in references(decode(message.data).events):
                if digest not in self._artifacts:
                    problem = f"run {subject.id} refers to artifact {digest}, which is lost"
                    self._lost(self._layout.shard(shard), shard, message.position, message.position, problem)

    # ---- a shard

    async def _audit_shard(self, shard: int) -> int:
        """Account for the assigned positions of a shard; returns its last sealed position."""
        stream = self._layout.shard(shard)
        seals = [each async for each in self._seals(shard)]
        last = await self._last(stream)
        if last is None:
            self.lost(seals, shard, 0, 0, "the stream is lost")
            return 0
        scan = _Scan(self, self._layout, shard, seals)
        for _ in range(LAG_ATTEMPTS):
            async for message in read_stream(
                self._wire, stream, self._layout.everything(shard), scan.read_to
            ):
                scan.take(message)
                self._know(shard, message)
                if message.position >= last:
                    break
            if scan.read_to >= last or not self._wire.clustered:
                break
            await asyncio.sleep(LAG_S)  # the replica that answers may be behind
        scan.end(last)
        self._positions += last
        return seals[-1].last if seals else 0

    async def _seals(self, shard: int) -> AsyncIterator[Seal]:
        number, digest = 0, ""
        if not self._has_artifacts:
            return
        async for message, seal in read_seals(self._wire, self._layout, shard):
            if seal is None or seal.number != number + 1 or seal.before != digest or seal.shard != shard:
                problem = f"it is not the seal that follows seal {number} of shard {shard}"
                self._lost(self._layout.artifacts, None, message.position, message.position, problem)
            if seal is not None:
                number, digest = seal.number, digest_of_bytes(message.data)
                yield seal

    def _know(self, shard: int, message: Message) -> None:
        """Note the run of a commit as present, and the runs that a message names."""
        kind, _, rest = message.subject.removeprefix(self._layout.everything(shard)[:-1]).partition(b".")
        if kind in _COMMITS and not is_intact(message.data):
            problem = f"the commit of {kind.decode()} {rest.decode()} does not match its checksum"
            self._lost(self._layout.shard(shard), shard, message.position, message.position, problem)
        elif kind == b"run":
            run = rest.rpartition(b".")[2].decode()
            self._there.add(run)
            if b'"type":"buried"' in message.data:
                events = decode(message.data).events
                self._buried.update(
                    run for event in events if isinstance(event, Buried) for run in event.members
                )
            if any(each.decode() not in self._artifacts for each in _REFERENCE.findall(message.data)):
                self._referring.append((shard, message))
            for child in _CHILD.findall(message.data):
                self._named.setdefault(child.decode(), f"its parent {run}")
        elif kind == b"sched":  # named by its wake-ups, as a run is
            self._there.add(rest.decode())
        elif kind in {b"wake", b"due"}:
            self._named.setdefault(rest.rpartition(b".")[2].decode(), _KNOWN_BY[kind])
        elif kind in _KNOWN_BY:
            for run in _NAMED.findall(message.data.rpartition(_BEHIND_EVENTS)[0]):
                self._named.setdefault(run.decode(), _KNOWN_BY[kind])

    async def _damaged(self, shard: int) -> dict[str, str]:
        """Return the runs of a shard whose commits are not all there, with what is wrong. An end is not missed."""
        heads, found = dict[str, Head](), dict[str, str]()
        stream = self._layout.shard(shard)
        if await self._last(stream) is None:
            return found
        async for message in read_stream(self._wire, stream, self._layout.selected(Shard(shard))):
            subject = self._layout.parse(shard, message.subject)
            run = subject.id
            stored = Stored(subject, message.position, message.data)
            try:
                _, heads[run] = verify_envelope(stored, heads.get(run, ORIGIN))
            except RunGone:
                found.pop(run, None)
            except LogCorrupted as error:
                found.setdefault(run, f"from revision {error.revision}: {error.expected}")
                with contextlib.suppress(LogCorrupted, RunGone):
                    _, heads[run] = verify_envelope(stored, before(stored))
        return {run: problem for run, problem in found.items() if run not in self._buried}

    def _name_sealed(self, seals: list[Seal], first: int, last: int) -> None:
        """Note the runs named by all seals that overlap these positions."""
        for seal in seals:
            if seal.first <= last and seal.last >= first:
                for run in seal.runs:
                    self._named[run] = f"seal {seal.number} of shard {seal.shard}"

    # ---- losses

    async def _last(self, stream: str) -> int | None:
        try:
            return (await self._wire.api(f"STREAM.INFO.{stream}", None, _Info)).state.last_seq
        except Refused as refused:
            if refused.err_code == _STREAM_NOT_FOUND:
                return None
            raise

    async def _read_notes(self) -> None:
        """Read the accepted losses."""
        async for stream, first, last in known_losses(self._wire, self._layout, ">"):
            self._noted.setdefault(stream, []).append((first, last))
        streams = [self._layout.artifacts, *map(self._layout.shard, range(self._shards))]
        self._removed = {each: await removed(self._wire, self._layout, each) for each in streams}

    def is_noted(self, shard: int, first: int, last: int) -> bool:
        """Return whether an accepted loss or a removal overlaps these positions of a shard."""
        stream = self._layout.shard(shard)
        accepted = any(begin <= last and end >= first for begin, end in self._noted.get(stream, []))
        return accepted or self._removed.get(stream, Removed()).overlaps(first, last)

    def _missing(self, stream: str, shard: int | None, first: int, last: int) -> bool:
        """Report those of these positions as lost that were not removed; return whether there are any."""
        lost = list(self._removed.get(stream, Removed()).without(first, last))
        for span in lost:
            self._lost(stream, shard, *span)
        return bool(lost)

    def _lost(self, stream: str, shard: int | None, first: int, last: int, problem: str = _GONE) -> None:
        loss = Loss(stream=stream, shard=shard, first=first, last=last, problem=problem)
        known = any(begin <= first and last <= end for begin, end in self._noted.get(stream, []))
        (self._accepted if known else self._losses).append(loss)

    def gap(self, seals: list[Seal], shard: int, first: int, last: int) -> bool:
        """Report what is lost of the positions missing in a shard; return whether anything is."""
        lost = self._missing(self._layout.shard(shard), shard, first, last)
        if lost:
            self._name_sealed(seals, first, last)
        return lost

    def lost(self, seals: list[Seal], shard: int, first: int, last: int, problem: str = _GONE) -> None:
        """Report a loss in a shard, and note the runs that were there."""
        self._name_sealed(seals, first, last)
        self._lost(self._layout.shard(shard), shard, first, last, problem)


def _joined(losses: list[Loss]) -> list[Loss]:
    """Join consecutive losses of the same kind."""
    joined: list[Loss] = []
    for loss in losses:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.last
            and loss == msgspec.structs.replace(before, first=before.last + 1, last=loss.last)
        ):
            joined[-1] = msgspec.structs.replace(before, last=loss.last)
        else:
            joined.append(loss)
    return joined


class _Scan:
    """The positions of one shard in order, compared with its seals."""

    def __init__(self, auditor: _Auditor, layout: Layout, shard: int, seals: list[Seal]) -> None:
        self._auditor, self._shard, self._seals = auditor, shard, seals
        self._left = iter(seals)
        self._seal = next(self._left, None)
        self._reckoning = Reckoning(layout, shard)
        self._whole = True
        self.read_to = 0

    def take(self, message: Message) -> None:
        """Take the next message."""
        while self._seal is not None and message.position > self._seal.last:
            self._close(self._seal)
        self._tell(self._reckoning.take(message))
        self.read_to = message.position

    def end(self, last: int) -> None:
        """End the scan: no message follows, and the server has assigned positions up to `last`."""
        while self._seal is not None:
            self._close(self._seal)
        self._tell(self._reckoning.gap(last))

    def _tell(self, gap: tuple[int, int] | None) -> None:
        if gap is not None:
            self._whole = not self._auditor.gap(self._seals, self._shard, *gap) and self._whole

    def _close(self, seal: Seal) -> None:
        """Compare the messages up to the end of a seal with it."""
        self._tell(self._reckoning.gap(seal.last))
        found = self._reckoning.seal(seal.shard, seal.number, seal.before, seal.last)
        if self._whole and found != seal and not self._auditor.is_noted(self._shard, seal.first, seal.last):
            problem = f"they differ from seal {seal.number} ({seal.messages} messages, "
            problem += f"{len(seal.runs)} runs); the stream has lost its end and was written again"
            self._auditor.lost(self._seals, self._shard, seal.first, seal.last, problem)
        self._seal, self._whole = next(self._left, None), True
