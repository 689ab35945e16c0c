"""Reading of files and standard input up to a limit: endless ones, such as `/dev/zero`, are refused."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import BinaryIO

from .errors import ConfigError

TEXT_BYTES_MAX = 64 * 1024 * 1024
"""The limit for scripts, configurations and lists of messages."""
ARCHIVE_BYTES_MAX = 1 << 30
"""The limit for exports and golden traces."""
_PIECE_BYTES = 64 * 1024


def read_bounded(path: str | Path, most: int = TEXT_BYTES_MAX, *, begins: bytes = b"") -> bytes:
    """Read a file, or standard input for `-`. If it does not begin with `begins`, only its beginning is read.

    Raises `OSError`, and `ConfigError` for more than `most` bytes.
    """
    if str(path) == "-":
        data = _read(sys.stdin.buffer, most, begins)
    else:
        with Path(path).open("rb") as file:
            data = _read(file, most, begins)
    if len(data) > most:
        raise ConfigError(f"{path} has more than {most:,} bytes, the limit for such a file, or has no end")
    return data


def read_regular(path: str | Path, most: int = ARCHIVE_BYTES_MAX) -> bytes:
    """Read a regular file; others, such as pipes, may block or never end.

    Raises `OSError`, and `ConfigError` for another type of file or more than `most` bytes.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ConfigError(f"{path} is not a regular file")
    return read_bounded(path, most)


def _read(file: BinaryIO, most: int, begins: bytes) -> bytes:
    first = file.read(min(_PIECE_BYTES, most + 1))
    if not first.lstrip().startswith(begins) and first:
        return first
    return first + file.read(most + 1 - len(first))
