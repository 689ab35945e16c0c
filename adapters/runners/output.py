"""Keep the head and the tail of an output of any length, in bounded memory."""

from __future__ import annotations

import codecs
from typing import Final

_CONTINUATION: Final = range(0x80, 0xC0)


class HeadAndTail:
    """Takes bytes and keeps the first and last ones, `size_bytes_max` in total. `size_bytes` counts all of them."""

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes = 0
        self._head_bytes = size_bytes_max // 2
        self._tail_bytes = size_bytes_max - self._head_bytes
        self._head, self._tail = bytearray(), bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size_bytes += len(data)
        free = self._head_bytes - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        if len(self._tail) > 2 * self._tail_bytes:
            self._trim()

    def text(self) -> str:
        """Return the kept bytes as text: no character is split, and bytes that are not UTF-8 are replaced."""
        self._trim()
        kept = bytes(self._head + self._tail)
        if self.size_bytes == len(kept):
            return kept.decode(errors="replace")
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = _from_a_whole_character(bytes(self._tail)).decode(errors="replace")
        return f"{head}\n[... {self.size_bytes - len(kept):,} bytes are left out here ...]\n{tail}"

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]


def _from_a_whole_character(data: bytes) -> bytes:
    """Remove the rest of a split character at the beginning: up to three continuation bytes."""
    start = next((n for n, byte in enumerate(data[:3]) if byte not in _CONTINUATION), 3)
    return data[start:]
