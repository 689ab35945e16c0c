"""Where the embedded server keeps its files: `<project>/.foldlog/log/`, for its user alone."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from .errors import DirectoryUnusable

_MARKERS = (".foldlog", "pyproject.toml", ".git")


def project_directory() -> Path:
    """The nearest directory, from the working directory upwards, that looks like a project; else the working directory.

    A project has a `.foldlog`, a `pyproject.toml` or a `.git`.
    """
    here = Path.cwd()
    return next((place for place in (here, *here.parents) if _is_project(place)), here)


def _is_project(place: Path) -> bool:
    return any((place / marker).exists() for marker in _MARKERS)


def log_directory() -> Path:
    """Where the log of this project lies: `$FOLDLOG_HOME/log`, else `<project>/.foldlog/log`."""
    home = os.environ.get("FOLDLOG_HOME")
    return (Path(home).expanduser().absolute() if home else project_directory() / ".foldlog") / "log"


class Layout(Struct, frozen=True):
    """The files of one log directory.

    `store` is the server's; `config` what it was started with; `info` (`server.json`) says how to reach it while it
    runs; `identity` keeps port, token and name over restarts; `high_water` the last sequence seen in each stream.
    """

    directory: Path

    @property
    def store(self) -> Path:
        """The store of the server."""
        return self.directory / "store"

    @property
    def config(self) -> Path:
        """The configuration that the server was last started with."""
        return self.directory / "server.conf"

    @property
    def info(self) -> Path:
        """How to reach the server; there while it runs."""
        return self.directory / "server.json"

    @property
    def identity(self) -> Path:
        """Port, token and name, kept over restarts."""
        return self.directory / "identity.json"

    @property
    def lock(self) -> Path:
        """Locked as long as a keeper or a server of this directory lives."""
        return self.directory / "lock"

    @property
    def high_water(self) -> Path:
        """The last sequence seen in each stream."""
        return self.directory / "high_water.json"

    @property
    def clean_stop(self) -> Path:
        """What the files of the store were when the server last ended cleanly; gone while it runs."""
        return self.directory / "clean_stop.json"

    @property
    def server_log(self) -> Path:
        """What the server says."""
        return self.directory / "server.log"

    @property
    def keeper_log(self) -> Path:
        """What the keeper says."""
        return self.directory / "keeper.log"

    def create(self) -> None:
        """Make the directory, readable by its user alone and ignored by git. Raises `DirectoryUnusable`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.directory.stat().st_mode & 0o077:
                self.directory.chmod(0o700)
            ignore = self.directory / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as cause:
            raise DirectoryUnusable.because(self.directory, cause) from cause


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once and for good (fsynced), readable by its user alone. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
