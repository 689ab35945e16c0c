"""The files of the embedded server: `<project>/.foldlog/log/`, accessible only to their user."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from .errors import DirectoryUnusable

_MARKERS = (".foldlog", "foldlog.toml", "pyproject.toml", ".git")


def project_directory() -> Path:
    """Return the nearest project directory, from the working directory upwards; otherwise the working directory.

    A project directory has a `.foldlog`, a `foldlog.toml`, a `pyproject.toml` or a `.git`.
    """
    here = Path.cwd()
    return next((place for place in (here, *here.parents) if _is_project(place)), here)


def _is_project(place: Path) -> bool:
    return any((place / marker).exists() for marker in _MARKERS)


def log_directory() -> Path:
    """Return the log directory of this project: `$FOLDLOG_HOME/log`, otherwise `<project>/.foldlog/log`."""
    home = os.environ.get("FOLDLOG_HOME")
    return (Path(home).expanduser().absolute() if home else project_directory() / ".foldlog") / "log"


class Layout(Struct, frozen=True):
    """The files of one log directory.

    `store` belongs to the server; `config` is its configuration; `info` (`server.json`) has its address while it runs;
    `identity` has port, token and name over restarts; `high_water` the last sequence seen in each stream.
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
        """The address of the server; exists while it runs."""
        return self.directory / "server.json"

    @property
    def identity(self) -> Path:
        """Port, token and name, kept over restarts."""
        return self.directory / "identity.json"

    @property
    def lock(self) -> Path:
        """The lock file, locked while a keeper or a server of this directory is alive."""
        return self.directory / "lock"

    @property
    def high_water(self) -> Path:
        """The last sequence seen in each stream."""
        return self.directory / "high_water.json"

    @property
    def clean_stop(self) -> Path:
        """The state of the store's files at the last clean stop; missing while the server runs."""
        return self.directory / "clean_stop.json"

    @property
    def server_log(self) -> Path:
        """The log of the server."""
        return self.directory / "server.log"

    @property
    def keeper_log(self) -> Path:
        """The log of the keeper."""
        return self.directory / "keeper.log"

    def create(self) -> None:
        """Create the directory, accessible only to its user and ignored by git. Raises `DirectoryUnusable`."""
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
    """Replace a file atomically and durably (fsync), accessible only to its user. Raises OSError."""
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
