"""The lock of a store: held while a keeper, or a server started by one, is alive.

nats-server does not lock its store, and two servers on one store lose data without an error. The lock is a flock, which
belongs to the open file: the process that starts a keeper takes it and passes it on to the keeper, which passes it on
to its server. It is free when the last of them has ended, in whatever way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, Self

import msgspec
from msgspec import Struct

from .errors import DirectoryUnusable, PlatformUnsupported

if sys.platform != "win32":
    import fcntl

Role = Literal["starter", "keeper", "ephemeral"]


class Holder(Struct, frozen=True):
    """The holder of the lock, as written into the lock file."""

    pid: int
    role: Role


class StoreLock:
    """The lock, held by this process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path, role: Role) -> Self | None:
        """Return the lock, or None if another process holds it. Raises `DirectoryUnusable`, `PlatformUnsupported`."""
        if sys.platform == "win32":
            raise PlatformUnsupported(
                "The embedded server needs Linux or macOS. Start nats-server yourself and set NATS_URL."
            )
        try:
            return cls._take(path, role)
        except OSError as cause:  # permissions, a full disk, a file system without locks
            raise DirectoryUnusable.because(path.parent, cause) from cause

    @classmethod
    def _take(cls, path: Path, role: Role) -> Self | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock = cls(descriptor)
            lock.sign(role)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return lock

    def sign(self, role: Role) -> None:
        """Write this process into the lock file as its holder. Raises OSError."""
        content = msgspec.json.encode(Holder(os.getpid(), role))
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def is_at(self, path: Path) -> bool:
        """Return whether the locked file is still the one at `path`; otherwise the lock has no effect any more."""
        try:
            there = path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))

    def hand_over(self) -> None:
        """Close the file without unlocking it, because a child has inherited it."""
        os.close(self.descriptor)

    def release(self) -> None:
        """Release the lock, unless a child that has inherited it is still alive."""
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


def holder_of(path: Path) -> Holder | None:
    """Return the last process that took the lock; only meaningful while the lock is held."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None
