"""A directory that file tools cannot leave: every path is walked from its root, directory by directory.

The kernel never follows a link. Each component is opened relative to the directory before it, with `O_NOFOLLOW`; a
symbolic link is read and its target walked in the same way, so a link may point anywhere inside the workspace and
nowhere else. There is no time-of-check to time-of-use gap: the opened file is the one that is read, and if another
process replaces a directory by a link meanwhile, the call fails.

    ws = Workspace(Path("project"))
    ws.write("src/new.py", b"...")  # the whole file or nothing; creates parents
    ws.read("src/new.py")
    ws.read("../secret")            # OutsideWorkspace

Paths are relative to the root, or absolute and below it. `..` stops at the root. A hard link cannot be distinguished
from any other file of the workspace. Since a write replaces the file, the other names of a hard link keep the old
content.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EACCES, EISDIR, ENOENT, ENOTDIR
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from ...eventlog.errors import ConfigError
from ...runtime.ports.tools import ToolFailed

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Default limit of one file, for reading and writing."""
DEPTH_MAX: Final = 100
"""Directories below the root in one path; each is open while the path is walked."""
LINKS_MAX: Final = 40
"""Symbolic links in one path, as in the kernel."""

Kind = Literal["file", "directory", "link", "other"]

_CONFINABLE: Final = {os.open, os.mkdir, os.unlink, os.readlink, os.rename} <= os.supports_dir_fd
_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a FIFO without a writer must not block; it has no effect on a regular file.
_READ: Final = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
)
_PERMISSIONS: Final = 0o777
"""The mode bits that a written file keeps: as after any write, no set-user-ID and no set-group-ID."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class WorkspaceError(ToolFailed):
    """A file cannot be used as requested.

    Attributes: `path` (as given), `problem` (in words), `number` (of the operating system's error, or None).
    """

    def __init__(self, path: str, problem: str, number: int | None = None) -> None:
        super().__init__(f"{shown(path)}: {problem}")
        self.path, self.problem, self.number = path, problem, number


class OutsideWorkspace(WorkspaceError):
    """The path, or a link on its way, leads out of the workspace."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "is outside the workspace")


class Entry(msgspec.Struct, frozen=True):
    """One entry of a directory. `name` is the system's; `size_bytes` is 0 for all but files."""

    name: str
    kind: Kind
    size_bytes: int


class Workspace:
    """The directory `root` (its real path is kept), and race-free access to the files below it.

    Every method takes a path as a model writes it and raises `WorkspaceError`, which a tool may propagate: it is a
    `ToolFailed` whose message names the path and the problem. Blocking; nothing is held open between calls.
    Raises `ConfigError` if the root is not a directory, or the system has no `openat` (Windows).
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not _CONFINABLE:
            raise ConfigError("the built-in file tools need a POSIX system: paths cannot be confined here")
        self._given = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow links, which is done below
        try:
            self.root = Path(root).resolve(strict=True)
        except OSError as error:
            raise ConfigError(f"the workspace {str(root)!r} cannot be used: {error.strerror}") from None
        if not self.root.is_dir():
            raise ConfigError(f"the workspace {str(root)!r} is not a directory")

    def __repr__(self) -> str:
        return f"<Workspace {self.root}>"

    def resolve(self, path: str) -> Path:
        """Return the real path, without links and `..`; the last component need not exist.

        For passing on to a process. The file at that path may have changed by then: to read and write, use the methods
        below.
        """
        with self._place(path) as place:
            return self.root.joinpath(*place.parts)

    def check(self, path: str) -> None:
        """Raise `WorkspaceError` if the path leads out, as far as its directories exist."""
        try:
            self.resolve(path)
        except WorkspaceError as error:
            if error.number != ENOENT:
                raise

    def kind(self, path: str) -> Kind | None:
        """Return the kind of the file, following a link at the end; None if it or a parent directory is missing."""
        try:
            with self._place(path) as place:
                return place.kind()
        except WorkspaceError as error:
            if error.number not in {ENOENT, ENOTDIR}:
                raise
            return None

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading; the caller closes it. Refuses directories, devices, FIFOs and sockets."""
        with self._place(path) as place:
            place.check_regular(path)
            descriptor = os.open(place.name, _READ, dir_fd=place.directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced meanwhile
            os.close(descriptor)
            raise WorkspaceError(path, "is not a regular file")
        return os.fdopen(descriptor, "rb")

    def read(self, path: str, size_bytes_max: int = FILE_BYTES_MAX) -> bytes:
        """Return the whole file. Raises `WorkspaceError` if it is larger than `size_bytes_max`."""
        with self.open(path) as file, _told(path):
            content = file.read(size_bytes_max + 1)
        if len(content) > size_bytes_max:
            raise WorkspaceError(path, f"is larger than {size_bytes_max:,} bytes")
        return content

    def write(self, path: str, content: bytes, *, parents: bool = True) -> None:
        """Write the file atomically: a reader sees the old content or the new. Creates parents unless told not to.

        An existing file keeps its mode. Raises `WorkspaceError` if it is not a regular file or not writable.
        """
        with self._place(path, create=parents) as place:
            mode = place.check_writable(path)
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                _fill(os.open(temporary, _CREATE, 0o666, dir_fd=place.directory), content, mode)
                os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=place.directory)
                raise

    def make_parents(self, path: str) -> None:
        """Create the missing directories that lead to the path."""
        with self._place(path, create=True):
            pass

    def is_same(self, path: str, other: str) -> bool:
        """Return whether `path` itself (if it is a link: the link) is the file that `other` leads to."""
        with self._place(path, follow=False) as one, self._place(other) as two:
            return one.identity() == two.identity()

    def remove(self, path: str) -> None:
        """Delete a file. A link is deleted itself, not what it points to; a directory is refused."""
        with self._place(path, follow=False) as place:
            os.unlink(place.name, dir_fd=place.directory)

    def entries(self, path: str) -> list[Entry]:
        """Return the entries of a directory, sorted by name; links are not followed."""
        with self._place(path) as place:
            directory = os.open(place.name, _DIRECTORY, dir_fd=place.directory)
            try:
                with os.scandir(directory) as found:
                    return sorted((_entry(each) for each in found), key=lambda entry: entry.name)
            finally:
                os.close(directory)

    @contextmanager
    def _place(self, path: str, *, create: bool = False, follow: bool = True) -> Iterator[_Place]:
        """Yield the place of a path, with its directory open. An `OSError` becomes `WorkspaceError`."""
        with ExitStack() as stack, _told(path):
            yield _Walk(self.root, self._given, path, stack).to_end(create=create, follow=follow)


class _Place(msgspec.Struct, frozen=True):
    """A name in an open directory, which was not a link when it was checked; `parts` lead to it from the root."""

    directory: int
    name: str
    parts: tuple[str, ...]

    def mode(self) -> int | None:
        try:
            return os.lstat(self.name, dir_fd=self.directory).st_mode
        except FileNotFoundError:
            return None

    def identity(self) -> tuple[int, int]:
        status = os.lstat(self.name, dir_fd=self.directory)
        return status.st_dev, status.st_ino

    def kind(self) -> Kind | None:
        mode = self.mode()
        return None if mode is None else _kind(mode)

    def check_regular(self, path: str) -> None:
        """Raise unless it is a regular file or missing; called before opening, which may have effects on a device."""
        mode = self.mode()
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if mode is not None and not stat.S_ISREG(mode):
            raise WorkspaceError(path, "is not a regular file")

    def check_writable(self, path: str) -> int | None:
        """Return the permission bits of the file, None if it does not exist."""
        self.check_regular(path)
        mode = self.mode()
        if mode is not None and not os.access(self.name, os.W_OK, dir_fd=self.directory):
            raise PermissionError(EACCES, os.strerror(EACCES))
        return None if mode is None else mode & _PERMISSIONS


class _Walk:
    """A walk along a path: the open directories from the root to here, and the remaining components."""

    def __init__(self, root: Path, given: Path, path: str, stack: ExitStack) -> None:
        self._bases, self._path, self._stack = (root, given), path, stack
        self._open = [self._opened(os.open(root, _DIRECTORY))]
        self._names: list[str] = []
        self._todo: deque[str] = deque()
        self._links = 0
        self._insert(_checked(path))

    def to_end(self, *, create: bool, follow: bool) -> _Place:
        while self._todo:
            name = self._todo.popleft()
            if name == "..":
                self._up()
                continue
            mode = self._mode(name)
            if mode is not None and stat.S_ISLNK(mode) and (self._todo or follow):
                self._follow(name)
            elif not self._todo:
                return _Place(self._open[-1], name, (*self._names, name))
            else:
                self._down(name, create=create and mode is None)
        return _Place(self._open[-1], ".", tuple(self._names))

    def _mode(self, name: str) -> int | None:
        try:
            return os.lstat(name, dir_fd=self._open[-1]).st_mode
        except FileNotFoundError:
            return None

    def _up(self) -> None:
        if not self._names:
            raise OutsideWorkspace(self._path)
        self._names.pop()
        self._open.pop()

    def _down(self, name: str, *, create: bool) -> None:
        if len(self._open) > DEPTH_MAX:
            raise WorkspaceError(self._path, f"is more than {DEPTH_MAX} directories deep")
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._open[-1])
        self._open.append(self._opened(os.open(name, _DIRECTORY, dir_fd=self._open[-1])))
        self._names.append(name)

    def _follow(self, name: str) -> None:
        self._links += 1
        if self._links > LINKS_MAX:
            raise WorkspaceError(self._path, "has too many symbolic links")
        self._insert(os.readlink(name, dir_fd=self._open[-1]))

    def _insert(self, path: str) -> None:
        """Put a path before the remaining components. An absolute one restarts at the root and must be below it."""
        if path.startswith("/"):
            path = self._below_root(path)
            del self._open[1:]
            self._names.clear()
        self._todo.extendleft(reversed([part for part in path.split("/") if part not in {"", "."}]))

    def _below_root(self, path: str) -> str:
        for base in self._bases:
            prefix = f"{str(base).rstrip('/')}/"
            if f"{path}/".startswith(prefix):
                return path[len(prefix) :]
        raise OutsideWorkspace(self._path)

    def _opened(self, descriptor: int) -> int:
        self._stack.callback(os.close, descriptor)
        return descriptor


def shown(name: str) -> str:
    """Return a name for display: undecodable bytes and control characters as escapes."""
    return "".join(each if each.isprintable() else _escaped(each) for each in name)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def _checked(path: str) -> str:
    if not path:
        raise WorkspaceError(path, "the path is empty")
    if "\0" in path:
        raise WorkspaceError(path, "a path cannot hold a NUL character")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise WorkspaceError(path, "the path cannot be written in the file system's encoding") from None
    return path


def _fill(descriptor: int, content: bytes, mode: int | None) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())


def _entry(found: os.DirEntry[str]) -> Entry:
    status = found.stat(follow_symlinks=False)
    kind = _kind(status.st_mode)
    return Entry(found.name, kind, status.st_size if kind == "file" else 0)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkspaceError(path, error.strerror or str(error), error.errno) from None
