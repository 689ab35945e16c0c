"""Files and standard input read with a bound: what has no end, as `/dev/zero`, is refused, and not read into memory."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import BinaryIO

from .errors import ConfigError

TEXT_BYTES_MAX = 64 * 1024 * 1024
"""More than any script, configuration or list of messages has."""
ARCHIVE_BYTES_MAX = 1 << 30
"""More than an export or a golden trace has."""
_PIECE_BYTES = 64 * 1024


def read_bounded(path: str | Path, most: int = TEXT_BYTES_MAX, *, begins: bytes = b"") -> bytes:
    """All bytes of a file; of standard input for `-`. Of one that does not begin with `begins`, no more than shows it.

    Raises `OSError`, and `ConfigError` for more than `most`.
    """
    if str(path) == "-":
        data = _read(sys.stdin.buffer, most, begins)
    else:
        with Path(path).open("rb") as file:
            data = _read(file, most, begins)
    if len(data) > most:
        raise ConfigError(
            f"{path} holds more than the {most:,} bytes that are read of such a file, or has no end"
        )
    return data


def read_regular(path: str | Path, most: int = ARCHIVE_BYTES_MAX) -> bytes:
    """All bytes of a regular file: nobody has written into the others just now, and they may never end.

    Raises `OSError`, and `ConfigError` for another file or more than `most`.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ConfigError(f"{path} is not a regular file")
    return read_bounded(path, most)


def _read(file: BinaryIO, most: int, begins: bytes) -> bytes:
    first = file.read(min(_PIECE_BYTES, most + 1))
    if not first.lstrip().startswith(begins) and first:
        return first
    return first + file.read(most + 1 - len(first))
