"""The keys of users, sessions and runs: made on first use, stored wrapped, and erased for good.

The owner of a family's key is its user, else its session, else the root run itself. The record of an owner is one value
of the port `Keys`; each key has a number, so that an owner whose key was erased gets another one for later runs. A
family keeps the key with which it began.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import msgspec

from ..errors import Conflict, KeyErased, KeyMissing, LogCorrupted, LogUnavailable
from ..events import Submitted
from ..names import digest_of
from ..ports import NEW, At, Log
from .cipher import KEY_BYTES, Cipher
from .wrapping import KeyWrapper

KNOWN_S = 30.0
"""The time that a process uses a key without looking whether it was erased meanwhile."""
_DIGITS, _ATTEMPTS = 20, 64


class WrappedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as stored: wrapped by the wrapping key `by`."""

    number: int
    made_at: float
    by: str
    data: bytes


class ErasedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was erased: the time (Unix seconds), by whom and why."""

    number: int
    at: float
    by: str = ""
    reason: str = ""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an owner: at most one that can be used, and those that were erased, oldest first."""

    owner: str
    key: WrappedKey | None = None
    erased: tuple[ErasedKey, ...] = ()

    @property
    def name(self) -> str:
        """The name of the record, of the owner."""
        return name_of(self.owner)

    def id_of(self, number: int) -> str:
        """Return the id of a key, as sealed values have it."""
        return f"{self.name}.{number}"


class Added(NamedTuple):
    """The records that an import has stored, and the owners whose key is here although the file says it was erased."""

    stored: int
    outlived: tuple[str, ...] = ()


_RECORDS = msgspec.json.Decoder(KeyRecord)
_ENCODER = msgspec.json.Encoder()


def name_of(owner: str) -> str:
    """Return the name of an owner's record."""
    return digest_of(owner)[:_DIGITS]


def owner_of(submitted: Submitted, root: str) -> str:
    """Return the owner of the key of a root run: `user:NAME`, else `session:NAME`, else `run:ID`."""
    return owner_in_list(user_in(submitted), submitted.session, root)


def owner_in_list(user: str | None, session: str | None, root: str) -> str:
    """Return the owner of the key of a root run by what the run list has of it."""
    if user is not None:
        return f"user:{user}"
    return f"session:{session}" if session is not None else f"run:{root}"


def user_in(submitted: Submitted) -> str | None:
    """Return the user of a submission: its `user`, otherwise its `metadata["memory"]["scope"]["user_id"]`."""
    if submitted.user is not None:
        return submitted.user
    found: object = submitted.metadata
    for key in ("memory", "scope", "user_id"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


class Keyring:
    """The keys of a namespace, opened by a wrapper; without one (null), each use raises `KeyMissing`."""

    def __init__(self, log: Log, wrapper: KeyWrapper | None) -> None:
        self._log, self._wrapper = log, wrapper
        self._known: dict[str, tuple[float, Cipher]] = {}

    async def cipher_for(self, owner: str) -> Cipher:
        """Return the cipher for new families of an owner, whose key is made if it has none.

        Raises `KeyMissing`, `LogUnavailable`.
        """
        wrapper = self._must_have(f"a run of {owner} cannot be stored")
        for _ in range(_ATTEMPTS):
            position, record = await self._read(owner)
            if record.key is not None:
                return await self._opened(record, record.key)
            key = os.urandom(KEY_BYTES)
            made = WrappedKey(
                number=len(record.erased) + 1,
                made_at=self._log.clock.now(),
                by=wrapper.name,
                data=await wrapper.wrap(key, owner),
            )
            try:
                await self._store(msgspec.structs.replace(record, key=made), position)
            except Conflict:
                continue
            return self._remembered(Cipher(record.id_of(made.number), key))
        raise LogUnavailable(f"the key of {owner} cannot be stored; try again")

    async def cipher(self, key_id: str, run: str) -> Cipher:
        """Return the cipher of a key; `run` is named in errors. Raises `KeyMissing`, `KeyErased`, `LogUnavailable`."""
        known = self._known.get(key_id)
        if known is not None and self._log.clock.monotonic() - known[0] < KNOWN_S:
            return known[1]
        self._must_have(f"run {run} cannot be read")
        name, _, number = key_id.partition(".")
        stored = await self._log.keys.get(name)
        if stored is None:
            raise KeyMissing(
                f"run {run} is sealed under the key {key_id}, which namespace {self._log.namespace!r} does not have: "
                "it came from another log, or its keys were not restored"
            )
        record = decoded(name, stored[1])
        if record.key is not None and str(record.key.number) == number:
            return await self._opened(record, record.key)
        self._known.pop(key_id, None)
        gone = next((each for each in record.erased if str(each.number) == number), None)
        if gone is None:
            raise KeyMissing(f"run {run} is sealed under the key {key_id}, which {record.owner} never had")
        raise KeyErased(run, "made unreadable", gone.at, by=gone.by, reason=gone.reason)

    async def records(self) -> AsyncIterator[KeyRecord]:
        """Yield the records of all owners. Raises `LogUnavailable`."""
        async for name, _position, data in self._log.keys.all():
            yield decoded(name, data)

    async def record(self, owner: str) -> KeyRecord:
        """Return the record of an owner, empty for one without keys. Raises `LogUnavailable`."""
        return (await self._read(owner))[1]

    async def erase(self, owner: str, by: str = "", reason: str = "") -> bool:
        """Erase the key of an owner for good, and return whether there was one. Needs no wrapping key.

        What was sealed under it is unreadable from then on, in each copy. Raises `LogUnavailable`.
        """
        for _ in range(_ATTEMPTS):
            position, record = await self._read(owner)
            if record.key is None:
                if position:  # an earlier attempt may have died before the bytes were overwritten
                    await self._log.keys.tidy(record.name)
                return False
            gone = ErasedKey(number=record.key.number, at=self._log.clock.now(), by=by, reason=reason)
            try:
                await self._store(
                    KeyRecord(owner=owner, erased=(*record.erased, gone)),
                    position,
                )
            except Conflict:
                continue
            self._known.pop(record.id_of(gone.number), None)
            return True
        raise LogUnavailable(f"the key of {owner} changes all the time; try again")

    async def rotate(self) -> int:
        """Wrap all keys by the wrapping key of now, and return how many were not. Repeat it after a failure.

        Raises `KeyMissing`, `LogUnavailable`.
        """
        wrapper, rotated = self._must_have("keys cannot be rotated"), 0
        async for record in self.records():
            rotated += await self._rotated(wrapper, record.owner)
        return rotated

    async def _rotated(self, wrapper: KeyWrapper, owner: str) -> bool:
        for _ in range(_ATTEMPTS):
            position, record = await self._read(owner)
            if record.key is None or record.key.by == wrapper.name:
                return False
            plain = await wrapper.unwrap(record.key.data, owner, record.key.by)
            wrapped = await wrapper.wrap(plain, owner)
            key = msgspec.structs.replace(record.key, by=wrapper.name, data=wrapped)
            try:
                await self._store(msgspec.structs.replace(record, key=key), position)
            except Conflict:
                continue
            return True
        raise LogUnavailable(f"the key of {owner} changes all the time; try again")

    async def add(self, records: Iterable[KeyRecord]) -> Added:
        """Store the records of owners that have none here. Raises `LogUnavailable`.

        A key that is here is not erased because of a file: keys of another log have the same numbers.
        """
        added, outlived = 0, list[str]()
        for record in records:
            position, found = await self._read(record.owner)
            if not position:
                with contextlib.suppress(Conflict):  # another process made one
                    await self._store(record, 0)
                    added += 1
            elif found.key is not None and any(each.number == found.key.number for each in record.erased):
                outlived.append(record.owner)
        return Added(added, tuple(outlived))

    async def check(self, record: KeyRecord) -> None:
        """Raise `KeyMissing` if the key of a record cannot be unwrapped here."""
        if record.key is not None:
            await self._must_have("keys cannot be checked").unwrap(
                record.key.data, record.owner, record.key.by
            )

    def _must_have(self, what: str) -> KeyWrapper:
        if self._wrapper is None:
            raise KeyMissing(
                f"{what}: namespace {self._log.namespace!r} has sealed values, and this process has no wrapping key; "
                "set [seal] in foldlog.toml, or FOLDLOG_SEAL, as its workers have it"
            )
        return self._wrapper

    async def _opened(self, record: KeyRecord, key: WrappedKey) -> Cipher:
        plain = await self._must_have("keys cannot be read").unwrap(key.data, record.owner, key.by)
        return self._remembered(Cipher(record.id_of(key.number), plain))

    def _remembered(self, cipher: Cipher) -> Cipher:
        self._known[cipher.id] = self._log.clock.monotonic(), cipher
        return cipher

    async def _read(self, owner: str) -> tuple[int, KeyRecord]:
        name = name_of(owner)
        stored = await self._log.keys.get(name)
        if stored is None:
            return 0, KeyRecord(owner=owner)
        record = decoded(name, stored[1])
        if record.owner != owner:
            raise LogCorrupted(f"(key {name})", 0, f"it belongs to {record.owner}, not to {owner}")
        return stored[0], record

    async def _store(self, record: KeyRecord, position: int) -> None:
        await self._log.keys.put(record.name, _ENCODER.encode(record), At(position) if position else NEW)


def exported(record: KeyRecord) -> bytes:
    """Return the line of a record in a file of keys."""
    return _ENCODER.encode(record) + b"\n"


def imported(data: bytes) -> list[KeyRecord]:
    """Return the records in a file of keys. Raises `ValueError`."""
    try:
        return [_RECORDS.decode(line) for line in data.splitlines() if line.strip()]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def decoded(name: str, data: bytes) -> KeyRecord:
    """Return the record of this name. Raises `LogCorrupted`."""
    try:
        return _RECORDS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupted(f"(key {name})", 0, f"its record is unreadable ({error})") from error
