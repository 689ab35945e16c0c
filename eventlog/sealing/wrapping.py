"""Wrapping: the port to the key that wraps all others, and its implementation with keys that the process holds."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Protocol

from ..errors import ConfigError, KeyMissing
from ..files import read_bounded
from .cipher import KEY_BYTES, aead

_NONCE_BYTES, _NAME_DIGITS, _FILE_BYTES_MAX = 12, 12, 64 * 1024


class KeyWrapper(Protocol):
    """A key management service, as far as foldlog needs it: it wraps keys of 32 bytes, and unwraps them again."""

    @property
    def name(self) -> str:
        """The name of the key that wraps now; it changes when the key is rotated, and tells nothing of the key."""
        ...

    async def wrap(self, key: bytes, owner: str) -> bytes:
        """Return the wrapped key, bound to its owner. Raises `LogUnavailable`: the service cannot be reached."""
        ...

    async def unwrap(self, wrapped: bytes, owner: str, name: str) -> bytes:
        """Return the key that was wrapped under the wrapping key `name`, now or before a rotation.

        Raises `KeyMissing` if that key is not there, or if these bytes are not what it wrapped for this owner.
        """
        ...


class HeldKeys:
    """`KeyWrapper` with keys that the process holds: the first wraps, all unwrap."""

    def __init__(self, keys: tuple[bytes, ...], source: str) -> None:
        self._source = source
        self._keys = {hashlib.sha256(key).hexdigest()[:_NAME_DIGITS]: aead(key) for key in keys}
        self.name = next(iter(self._keys))

    async def wrap(self, key: bytes, owner: str) -> bytes:
        """Return the wrapped key."""
        nonce = os.urandom(_NONCE_BYTES)
        wrapped: bytes = nonce + self._keys[self.name].encrypt(nonce, key, owner.encode())
        return wrapped

    async def unwrap(self, wrapped: bytes, owner: str, name: str) -> bytes:
        """Return the key. Raises `KeyMissing`."""
        from cryptography.exceptions import InvalidTag

        if name not in self._keys:
            raise KeyMissing(
                f"the key of {owner} is wrapped by the key {name}, which {self._source} does not have (it has: "
                f"{', '.join(self._keys)}): add it there; nothing is lost"
            )
        try:
            key: bytes = self._keys[name].decrypt(
                wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], owner.encode()
            )
        except (InvalidTag, ValueError):
            raise KeyMissing(
                f"the stored key of {owner} is not what the key {name} has wrapped for it: it was altered"
            ) from None
        return key


def wrapper_at(source: str) -> KeyWrapper:
    """Return the wrapper of `env:NAME` or `file:PATH`: keys as `foldlog keys generate` prints them, the newest first.

    They are separated by commas or line breaks. Raises `ConfigError`, which never shows a key.
    """
    scheme, _, rest = source.partition(":")
    match scheme:
        case "env" if rest:
            if not os.environ.get(rest):
                raise ConfigError(
                    f"the environment variable {rest}, which holds the wrapping key, is not set"
                )
            text = os.environ[rest]
        case "file" if rest:
            try:
                text = read_bounded(rest, _FILE_BYTES_MAX).decode()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise ConfigError(f"the file {rest} of the wrapping key cannot be read: {reason}") from None
        case _:
            raise ConfigError(
                f"the source of the wrapping key is env:NAME, file:PATH or kms:NAME, not {source!r:.80}"
            )
    given = [line for line in text.replace(",", "\n").split() if line]
    return HeldKeys(tuple(_parsed(source, line) for line in given) or _none(source), source)


def generated() -> str:
    """Return a new wrapping key as text."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def _parsed(source: str, line: str) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{source} holds something that is not a wrapping key: 32 bytes in base64, as `foldlog keys generate` "
            "prints them"
        )
    return key


def _none(source: str) -> tuple[bytes, ...]:
    raise ConfigError(f"{source} holds no wrapping key: `foldlog keys generate` makes one")
