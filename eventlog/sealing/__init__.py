"""Sealed values: the content of events and artifacts under a key for each user, session or run, which can be erased.

`content` says what is sealed, `cipher` how, `wrapping` is the port to the key that wraps all others, `keyring` has the
keys, and `log` puts it together: a `SealedLog` around any log.
"""

from __future__ import annotations

from .keyring import ErasedKey, KeyRecord, Keyring, WrappedKey
from .log import SealedLog, sealed_log
from .wrapping import HeldKeys, KeyWrapper, generated, wrapper_at

__all__ = [
    "ErasedKey",
    "HeldKeys",
    "KeyRecord",
    "KeyWrapper",
    "Keyring",
    "SealedLog",
    "WrappedKey",
    "generated",
    "sealed_log",
    "wrapper_at",
]
