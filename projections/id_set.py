"""A set of ids in eight bytes each, for a run of thousands of calls that nobody speaks of any more."""

from __future__ import annotations

import hashlib

import msgspec

_BYTES = 8


class IdSet(msgspec.Struct):
    """Ids that were added, known by eight bytes of their SHA-256, which stand in order.

    With a million in it, an unknown one is taken for one of them once in some 10^13 times; never the other way round.
    """

    data: bytearray = msgspec.field(default_factory=bytearray)

    def add(self, text: str) -> None:
        """Add an id; once more changes nothing."""
        key = _key(text)
        at = self._at(key)
        if self.data[at : at + _BYTES] != key:
            self.data[at:at] = key

    def __contains__(self, text: str) -> bool:
        key = _key(text)
        at = self._at(key)
        return self.data[at : at + _BYTES] == key

    def __len__(self) -> int:
        return len(self.data) // _BYTES

    def _at(self, key: bytes) -> int:
        """Where the key stands, or would."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.data[middle * _BYTES : (middle + 1) * _BYTES] < key:
                low = middle + 1
            else:
                high = middle
        return low * _BYTES


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:_BYTES]
