"""A log whose content is sealed: the artifacts of each family know its key, and with it those who write and read.

`offload.spill` seals what is stored and `offload.restore` opens what was read, both by the artifacts of the family, so
that each event passes one place on its way into the log, and one on its way out.
"""

from __future__ import annotations

from typing import Any

from ..clock import Clock
from ..commits import decode, digest_of_bytes
from ..errors import KeyMissing, LogCorrupted
from ..events import Submitted
from ..names import run_subject, shard_in, shard_of
from ..ports import (
    Artifacts,
    Drafts,
    EventLog,
    FamilyArtifacts,
    Keys,
    Leases,
    Log,
    Snapshots,
    Timers,
    Wakeups,
)
from .cipher import Cipher, is_sealed, key_of
from .keyring import Keyring, owner_of
from .wrapping import KeyWrapper

FAMILIES_MAX = 10_000
"""The most families of which a process knows the key without a look at the log."""
STALE_READ_S = 0.1
STALE_READS_MAX = 50
"""The most stale reads in a row: a replica may lag a moment, but not five seconds."""


class SealedLog:
    """`Log` around another one. Its `ring` has the keys."""

    def __init__(self, inner: Log, wrapper: KeyWrapper | None) -> None:
        self.inner = inner
        self.ring = Keyring(inner, wrapper)
        self.sealed_artifacts = SealedArtifacts(inner, self.ring)

    def __getattr__(self, name: str) -> Any:
        """Return what only this kind of log has."""
        return getattr(self.inner, name)

    def over(self, copy: Log) -> SealedLog:
        """Return a log that holds copies of families of this one, opened by its keys."""
        other = SealedLog(copy, None)
        other.ring = self.ring
        other.sealed_artifacts = SealedArtifacts(copy, self.ring)
        return other

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.inner.namespace

    @property
    def clock(self) -> Clock:
        """The clock for time stamps and waiting."""
        return self.inner.clock

    @property
    def events(self) -> EventLog:
        """Commits."""
        return self.inner.events

    @property
    def wakeups(self) -> Wakeups:
        """Obligations to look at runs."""
        return self.inner.wakeups

    @property
    def timers(self) -> Timers:
        """Wake-ups at a given time."""
        return self.inner.timers

    @property
    def leases(self) -> Leases:
        """Hints on which worker drives which run."""
        return self.inner.leases

    @property
    def drafts(self) -> Drafts:
        """Text that models are writing."""
        return self.inner.drafts

    @property
    def artifacts(self) -> Artifacts:
        """Large values, sealed under the key of their family."""
        return self.sealed_artifacts

    @property
    def snapshots(self) -> Snapshots:
        """Cached states of runs; who takes one seals it."""
        return self.inner.snapshots

    @property
    def keys(self) -> Keys:
        """The wrapped keys."""
        return self.inner.keys


class SealedArtifacts:
    """`Artifacts` whose bytes are sealed."""

    def __init__(self, log: Log, ring: Keyring) -> None:
        self._log, self._ring = log, ring
        self._families: dict[str, str] = {}

    def of(self, root: str) -> SealedFamily:
        """Return the artifacts of the family of `root`."""
        return SealedFamily(self._log, self._ring, root, self._families)

    async def find(self, digest: str) -> bytes:
        """Return the bytes, whatever family has them. Raises what `get` of a family raises."""
        data = await self._log.artifacts.find(digest)
        if digest_of_bytes(data) == digest:
            return data
        return await _opened(self._ring, data, digest)

    async def purge(self, root: str) -> None:
        """Remove all artifacts of a family."""
        await self._log.artifacts.purge(root)


class SealedFamily:
    """`FamilyArtifacts` whose bytes are sealed, with the cipher of the family."""

    def __init__(self, log: Log, ring: Keyring, root: str, families: dict[str, str]) -> None:
        self.root, self.plain = root, log.artifacts.of(root)
        self._log, self._ring, self._families = log, ring, families

    async def put(self, data: bytes, digest: str = "") -> str:
        """Seal and store the bytes, and return the digest of what they were. Raises `KeyMissing`, `KeyErased`."""
        if digest and is_sealed(data):
            return await self.plain.put(data, digest)
        digest = digest_of_bytes(data)
        cipher = await self.cipher()
        await self.plain.put(cipher.seal(data, digest, alike=True), digest)
        return digest

    async def get(self, digest: str) -> bytes:
        """Return the bytes as they were. Raises what `FamilyArtifacts.get` raises, `KeyMissing`, `KeyErased`."""
        data = await self.plain.get(digest)
        if digest_of_bytes(data) == digest:
            return data
        return await _opened(self._ring, data, digest)

    async def opened(self, data: bytes, digest: str) -> bytes:
        """Return the content of a sealed artifact that is not stored here. Raises what `get` raises."""
        return await _opened(self._ring, data, digest)

    async def begin(self, submitted: Submitted) -> None:
        """Choose the key of a new family: that of its owner, or of the family of which it is a fork.

        Raises `KeyMissing`, `KeyErased`, `LogUnavailable`.
        """
        if submitted.fork is not None and (shared := await self._stored(submitted.fork.root)):
            self._note(shared)
        elif await self._stored(self.root) is None:
            self._note((await self._ring.cipher_for(owner_of(submitted, self.root))).id)

    async def cipher(self) -> Cipher:
        """Return the cipher for what the family stores. Raises `KeyMissing`, `KeyErased`, `LogUnavailable`."""
        key_id = self._families.get(self.root) or await self._chosen()
        self._note(key_id)
        return await self._ring.cipher(key_id, self.root)

    async def _chosen(self) -> str:
        """Return the key that the submission of the family names, or that of its owner for one from before the seal.

        Raises what `cipher` raises, `LogCorrupted`.
        """
        submitted = await self._submitted(self.root)
        for _ in range(STALE_READS_MAX):
            if submitted is not None or not await self._is_there():
                break
            await self._log.clock.sleep(STALE_READ_S)
            submitted = await self._submitted(self.root)
        if submitted is None:
            raise LogCorrupted(self.root, 1, "its key is chosen with its submission, which is missing")
        if submitted.sealed is not None:
            return submitted.sealed.key
        return (await self._ring.cipher_for(owner_of(submitted, self.root))).id

    async def _is_there(self) -> bool:
        """Return whether the log has the root run, so that a read without it was stale."""
        shards, events = range(self._log.events.shards), self._log.events
        return any([await events.last_position(run_subject(each, self.root, self.root)) for each in shards])

    async def open(self, data: bytes, key_id: str, run: str, rev: int, *, place: str = "") -> bytes:
        """Return the content of sealed bytes, by default those of an event of the family.

        Raises `KeyMissing`, `KeyErased`, `LogCorrupted`.
        """
        cipher = await self._ring.cipher(key_id, run)
        try:
            return cipher.open(data, place or self.root)
        except (ValueError, IndexError) as error:
            raise LogCorrupted(run, rev, f"its sealed content cannot be opened ({error})") from error

    def _note(self, key_id: str) -> None:
        self._families[self.root] = key_id
        if len(self._families) > FAMILIES_MAX:
            del self._families[next(iter(self._families))]

    async def _stored(self, root: str) -> str | None:
        submitted = await self._submitted(root)
        return submitted.sealed.key if submitted is not None and submitted.sealed is not None else None

    async def _submitted(self, root: str) -> Submitted | None:
        """Return the submission of a root run as it is stored; null if the log does not have it."""
        shards = self._log.events.shards
        likely = [
            shard
            for shard in (shard_in(root), shard_of(root, shards))
            if shard is not None and shard < shards
        ]
        for shard in dict.fromkeys([*likely, *range(shards)]):
            async for stored in self._log.events.read(run_subject(shard, root, root)):
                try:
                    first = decode(stored.data).events[0]
                except ValueError:
                    return None
                return first if isinstance(first, Submitted) else None
        return None


async def _opened(ring: Keyring, data: bytes, digest: str) -> bytes:
    """Return the content of a sealed artifact. Raises `KeyMissing`, `KeyErased`, `LogCorrupted`."""
    where = f"(artifact {digest})"
    try:
        opened = (await ring.cipher(key_of(data), where)).open(data, digest)
    except (ValueError, IndexError) as error:
        raise LogCorrupted(where, 0, f"it cannot be opened ({error})") from error
    if digest_of_bytes(opened) != digest:
        raise LogCorrupted(where, 0, "its bytes do not match its digest")
    return opened


async def begin_family(log: Log, root: str, submitted: Submitted) -> None:
    """Choose the key of a new family, before anything of it is stored. Raises what `SealedFamily.begin` raises."""
    family = log.artifacts.of(root)
    if isinstance(family, SealedFamily):
        await family.begin(submitted)


async def check_not_sealed_since(log: Log) -> None:
    """Raise `KeyMissing` if the namespace has keys, and had none when this process opened it (W58)."""
    if not isinstance(log, SealedLog) and await log.keys.in_use():
        raise KeyMissing(
            f"namespace {log.namespace!r} has sealed values since this process opened it: set [seal] in foldlog.toml, "
            "or FOLDLOG_SEAL, as its workers have it, and start the process again; nothing was stored"
        )


def over(held: FamilyArtifacts, log: Log, root: str) -> FamilyArtifacts:
    """Return artifacts from elsewhere, such as a file, opened by the keys of the log."""
    family = log.artifacts.of(root)
    if isinstance(family, SealedFamily):
        family.plain = held
        return family
    return held


def as_stored(log: Log) -> Artifacts:
    """Return the artifacts of a log as they are stored: sealed ones stay sealed."""
    return log.inner.artifacts if isinstance(log, SealedLog) else log.artifacts


async def sealed_bytes(data: bytes, artifacts: FamilyArtifacts, place: str) -> bytes:
    """Return bytes sealed for a place, if the family's content is. Raises `KeyMissing`, `KeyErased`."""
    if not isinstance(artifacts, SealedFamily):
        return data
    return (await artifacts.cipher()).seal(data, place)


async def opened_bytes(data: bytes, artifacts: FamilyArtifacts, place: str) -> bytes:
    """Return what `sealed_bytes` was given. Raises `KeyMissing`, `KeyErased`, `LogCorrupted`."""
    if not is_sealed(data):
        return data
    if not isinstance(artifacts, SealedFamily):
        raise KeyMissing(f"what is stored of {place} is sealed, and this process has no wrapping key")
    return await artifacts.open(data, key_of(data), place, 0, place=place)


async def sealed_log(log: Log, wrapper: KeyWrapper | None) -> Log:
    """Return the log to use: sealed, if there is a wrapper, or if the namespace has keys already.

    Raises `LogUnavailable`.
    """
    if isinstance(log, SealedLog) or (wrapper is None and not await log.keys.in_use()):
        return log
    return SealedLog(log, wrapper)
