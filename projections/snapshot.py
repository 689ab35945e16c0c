"""Snapshots: a run's state as bytes and back, a cache that is valid only for the same code.

A snapshot is the JSON object `fold`, `sum`, `state`: the version of the fold that made it, the SHA-256 (hex) of the
state's bytes, and the state. The version is a hash of the source of this package and of the event log's. So every
change of the code makes old snapshots invalid, and no developer has to remember a version number; a snapshot that is
invalid, damaged or of another run is ignored, and the run is folded from its beginning.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

from ..eventlog import commits
from ..eventlog.commits import digest_of_bytes
from ..eventlog.ports import Subject
from .run_state import RunState


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot as stored."""

    fold: str
    sum: str
    state: msgspec.Raw


_SNAPSHOTS = msgspec.json.Decoder(Snapshot)


@cache
def _states() -> msgspec.json.Decoder[RunState]:
    """Return the decoder of states, made with the first: the types of a state take longer than most imports."""
    return msgspec.json.Decoder(RunState)


def encode_state(state: RunState) -> bytes:
    """Encode a state as a snapshot."""
    state.link_messages()  # equal states have equal bytes
    data = msgspec.json.encode(state)
    return msgspec.json.encode(Snapshot(fold=FOLD, sum=digest_of_bytes(data), state=msgspec.Raw(data)))


def decode_state(data: bytes, subject: Subject) -> RunState | None:
    """Decode the state of this run; None if the data is damaged, of another run, or made by other code."""
    state = state_in(data)
    return state if state is not None and (state.run, state.root) == (subject.id, subject.root) else None


def state_in(data: bytes) -> RunState | None:
    """Decode a state of any run; None if the data is damaged or made by other code."""
    try:
        snapshot = _SNAPSHOTS.decode(data)
        if not FOLD or snapshot.fold != FOLD or snapshot.sum != digest_of_bytes(bytes(snapshot.state)):
            return None
        return _states().decode(snapshot.state)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _version() -> str:
    """Return a hash of the code of the fold; empty if its files cannot be found."""
    here = Path(__file__).parent
    folders = here, here / "fold", Path(commits.__file__).parent
    files = [file for folder in folders for file in sorted(folder.glob("*.py*"))]
    digest = hashlib.sha256(msgspec.__version__.encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest() if files else ""


FOLD = _version()
"""The version of this process's fold, computed when the code is loaded, because files may be replaced later."""
