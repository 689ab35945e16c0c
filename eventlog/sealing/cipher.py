"""The cipher of one key: AES-256-GCM, bound to the place that the bytes belong to: a family, or an artifact.

Sealed bytes are a header and the rest: `FLS1`, the SHA-256 of the rest, then the length of the key's id in one byte,
the id, 12 random bytes, and what AES-GCM returns. So damage is found without the key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_MAGIC, _SHA_BYTES, _NONCE_BYTES = b"FLS1", 32, 12
_HEADER_BYTES = len(_MAGIC) + _SHA_BYTES


class Cipher:
    """Seals and opens bytes under the key `id`. Raises `ConfigError` without the extra `foldlog[seal]`."""

    def __init__(self, id: str, key: bytes) -> None:  # noqa: A002 - the word of the stored field
        self.id = id
        self._aead, self._mixing = aead(key), hmac.digest(key, b"nonce", "sha256")

    def seal(self, data: bytes, place: str, *, alike: bool = False) -> bytes:
        """Return the sealed bytes, which can only be opened for the same `place`.

        `alike`: the same bytes again give the same again, so that an interrupted write can be repeated.
        """
        nonce = (
            hmac.digest(self._mixing, data, "sha256")[:_NONCE_BYTES] if alike else os.urandom(_NONCE_BYTES)
        )
        name = self.id.encode()
        rest = bytes((len(name),)) + name + nonce + self._aead.encrypt(nonce, data, place.encode())
        return _MAGIC + hashlib.sha256(rest).digest() + rest

    def open(self, data: bytes, place: str) -> bytes:
        """Return the bytes as they were. Raises `ValueError` for those of another key or place, or damaged ones."""
        from cryptography.exceptions import InvalidTag

        begin = _HEADER_BYTES + 1 + data[_HEADER_BYTES]
        nonce, rest = data[begin : begin + _NONCE_BYTES], data[begin + _NONCE_BYTES :]
        try:
            opened: bytes = self._aead.decrypt(nonce, rest, place.encode())
        except (InvalidTag, ValueError):
            raise ValueError("it was altered, or sealed for another place") from None
        return opened


def is_sealed(data: bytes) -> bool:
    """Return whether these are intact sealed bytes."""
    if not data.startswith(_MAGIC) or len(data) <= _HEADER_BYTES:
        return False
    rest = memoryview(data)[_HEADER_BYTES:]
    return hashlib.sha256(rest).digest() == data[len(_MAGIC) : _HEADER_BYTES]


def key_of(data: bytes) -> str:
    """Return the id of the key of sealed bytes. Raises `ValueError`."""
    size = data[_HEADER_BYTES]
    return data[_HEADER_BYTES + 1 : _HEADER_BYTES + 1 + size].decode()


def aead(key: bytes) -> AESGCM:
    """Return AES-256-GCM with this key. Raises `ConfigError` without the library."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError("sealed values need cryptography: pip install 'foldlog[seal]'") from None
    return AESGCM(key)
