"""Nothing that a model writes as a path leads out of the workspace, and no race does."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foldlog.adapters.builtin.workspace import (
    DEPTH_MAX,
    LINKS_MAX,
    OutsideWorkspace,
    Workspace,
    WorkspaceError,
    shown,
)
from foldlog.eventlog.errors import ConfigError
from foldlog.runtime import ToolFailed

SECRET = b"secret\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret.txt").write_bytes(SECRET)
    return place


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    root = tmp_path / "ws"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"a\n")
    (root / "sub" / "b.txt").write_bytes(b"b\n")
    return Workspace(root)


def names_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


OPERATIONS: dict[str, Callable[[Workspace, str], object]] = {
    "resolve": Workspace.resolve,
    "kind": Workspace.kind,
    "read": Workspace.read,
    "write": lambda ws, path: ws.write(path, b"owned"),
    "remove": Workspace.remove,
    "entries": Workspace.entries,
}


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Callable[[Workspace, str], object]:
    return OPERATIONS[request.param]


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside",
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "./sub/./../../outside/secret.txt",
        "sub//..//..//outside/secret.txt",
        "../ws/a.txt",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        "/dev/null",
        "/proc/self/root/etc/passwd",
        "{outside}/secret.txt",
        "{root}/../outside/secret.txt",
        "{root}x/secret.txt",
    ],
)
def test_a_path_that_leads_out_is_refused_by_every_operation(
    ws: Workspace, outside: Path, operation: Callable[[Workspace, str], object], path: str
) -> None:
    path = path.format(outside=outside, root=ws.root)
    with pytest.raises(OutsideWorkspace, match="is outside the workspace"):
        operation(ws, path)
    assert (outside / "secret.txt").read_bytes() == SECRET


@pytest.mark.parametrize("target", ["../outside", "{outside}", "sub/../../outside", "/", ".."])
def test_a_link_to_a_directory_outside_is_refused_by_every_operation(
    ws: Workspace, outside: Path, operation: Callable[[Workspace, str], object], target: str
) -> None:
    (ws.root / "link").symlink_to(target.format(outside=outside))
    with pytest.raises(OutsideWorkspace):
        operation(ws, "link/secret.txt")
    assert (outside / "secret.txt").read_bytes() == SECRET


@pytest.mark.parametrize("name", ["resolve", "kind", "read", "write", "entries"])
def test_a_link_to_a_file_outside_is_refused(ws: Workspace, outside: Path, name: str) -> None:
    (ws.root / "link").symlink_to(outside / "secret.txt")
    with pytest.raises(OutsideWorkspace):
        OPERATIONS[name](ws, "link")
    assert (outside / "secret.txt").read_bytes() == SECRET


def test_removing_a_link_removes_the_link_alone(ws: Workspace, outside: Path) -> None:
    (ws.root / "link").symlink_to(outside / "secret.txt")
    ws.remove("link")
    assert not (ws.root / "link").is_symlink()
    assert (outside / "secret.txt").read_bytes() == SECRET


def test_a_dangling_link_out_creates_nothing(ws: Workspace, outside: Path) -> None:
    (ws.root / "link").symlink_to(outside / "new.txt")
    (ws.root / "dir").symlink_to(outside / "new")
    for path in ("link", "dir/new.txt"):
        with pytest.raises(OutsideWorkspace):
            ws.write(path, b"owned")
    assert names_in(outside) == ["secret.txt"]


def test_a_chain_of_links_is_followed_to_its_end_and_refused_there(ws: Workspace, outside: Path) -> None:
    (ws.root / "one").symlink_to("two")
    (ws.root / "two").symlink_to("sub/three")
    (ws.root / "sub" / "three").symlink_to("../../outside/secret.txt")
    with pytest.raises(OutsideWorkspace):
        ws.read("one")


def test_links_within_the_workspace_work_relative_and_absolute(ws: Workspace) -> None:
    (ws.root / "relative").symlink_to("sub/b.txt")
    (ws.root / "absolute").symlink_to(ws.root / "sub")
    (ws.root / "sub" / "up").symlink_to("../a.txt")
    (ws.root / "sub" / "again").symlink_to(ws.root / "sub")
    assert ws.read("relative") == b"b\n"
    assert ws.read("absolute/b.txt") == b"b\n"
    assert ws.read("sub/up") == b"a\n"
    assert ws.read("sub/again/b.txt") == b"b\n"
    assert ws.resolve("sub/again/again/../a.txt") == ws.root / "a.txt"
    ws.write("absolute/new/c.txt", b"c\n")
    assert (ws.root / "sub" / "new" / "c.txt").read_bytes() == b"c\n"
    assert ws.resolve("absolute/up") == ws.root / "a.txt"


def test_writing_to_a_link_writes_what_it_points_to(ws: Workspace) -> None:
    (ws.root / "link").symlink_to("sub/b.txt")
    ws.write("link", b"new\n")
    assert (ws.root / "link").is_symlink()
    assert (ws.root / "sub" / "b.txt").read_bytes() == b"new\n"


def test_links_in_a_circle_end_in_an_error(ws: Workspace) -> None:
    (ws.root / "x").symlink_to("y")
    (ws.root / "y").symlink_to("x")
    with pytest.raises(WorkspaceError, match="too many symbolic links"):
        ws.read("x")
    (ws.root / f"l{LINKS_MAX}").write_bytes(b"end")
    for n in range(LINKS_MAX):
        (ws.root / f"l{n}").symlink_to(f"l{n + 1}")
    assert ws.read("l0") == b"end"


def after_looks(monkeypatch: pytest.MonkeyPatch, name: str, looks: int, exchange: Callable[[], None]) -> None:
    """The moment of a race, hit every time: the exchange happens directly after the file was looked at so often."""
    real_lstat, seen = os.lstat, list[str]()

    def lstat(path: str, *, dir_fd: int) -> os.stat_result:
        found = real_lstat(path, dir_fd=dir_fd)
        seen.append(path)
        if path == name and seen.count(name) == looks:
            exchange()
        return found

    monkeypatch.setattr(os, "lstat", lstat)


@pytest.mark.parametrize(
    ("victim", "path", "looks"), [("sub", "sub/secret.txt", 1), ("a.txt", "a.txt", 1), ("a.txt", "a.txt", 2)]
)
def test_what_becomes_a_link_between_the_look_and_the_use_is_not_followed(
    ws: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch, victim: str, path: str, looks: int
) -> None:
    def exchange() -> None:
        (ws.root / victim).rename(ws.root / "moved")
        (ws.root / victim).symlink_to(outside if victim == "sub" else outside / "secret.txt")

    after_looks(monkeypatch, victim, looks, exchange)
    with pytest.raises(WorkspaceError):
        ws.read(path)
    assert (ws.root / victim).is_symlink()


def test_a_file_that_becomes_a_link_before_it_is_written_is_replaced_not_followed(
    ws: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_rename = os.rename

    def rename(*args: str, **directories: int) -> None:
        (ws.root / "a.txt").unlink()
        (ws.root / "a.txt").symlink_to(outside / "secret.txt")
        real_rename(*args, **directories)

    monkeypatch.setattr(os, "rename", rename)
    ws.write("a.txt", b"new\n")
    assert (outside / "secret.txt").read_bytes() == SECRET
    assert not (ws.root / "a.txt").is_symlink()
    assert (ws.root / "a.txt").read_bytes() == b"new\n"


def test_a_directory_replaced_by_a_link_is_not_entered(
    ws: Workspace, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_mkdir = os.mkdir

    def mkdir(name: str, *, dir_fd: int) -> None:
        (ws.root / name).symlink_to(outside)
        real_mkdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(WorkspaceError):
        ws.write("new/file.txt", b"owned")
    assert names_in(outside) == ["secret.txt"]


@pytest.mark.parametrize("looks", [1, 2])
def test_a_regular_file_that_becomes_a_fifo_is_refused_without_waiting(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    def exchange() -> None:
        (ws.root / "a.txt").unlink()
        os.mkfifo(ws.root / "a.txt")

    after_looks(monkeypatch, "a.txt", looks, exchange)
    with pytest.raises(WorkspaceError, match="not a regular file"):
        ws.read("a.txt")


FLIPPER = """
import os, sys
os.symlink(sys.argv[1], "link")
print("ready", flush=True)
while True:
    os.rename("sub", "away")
    os.rename("link", "sub")
    os.rename("sub", "link")
    os.rename("away", "sub")
"""


@contextlib.contextmanager
def flipping(place: Path, outside: Path) -> Iterator[None]:
    """A process that exchanges the directory `sub` for a link to the outside and back, as fast as it can."""
    command = [sys.executable, "-I", "-S", "-c", FLIPPER, str(outside)]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE) as flipper:
        assert flipper.stdout is not None
        assert flipper.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            flipper.kill()


def test_a_directory_that_flips_to_a_link_and_back_never_gives_or_takes_anything_outside(
    ws: Workspace, outside: Path
) -> None:
    (ws.root / "sub" / "secret.txt").write_bytes(b"inside\n")
    read, refused, rounds = set[bytes](), set[type[WorkspaceError]](), 0
    with flipping(ws.root, outside):
        while rounds < 300 or not read or OutsideWorkspace not in refused:
            rounds += 1
            for use in (
                lambda: read.add(ws.read("sub/secret.txt")),
                lambda: ws.write("sub/new", b"x", parents=False),
            ):
                try:
                    use()
                except WorkspaceError as error:
                    refused.add(type(error))
    assert read == {b"inside\n"}
    assert names_in(outside) == ["secret.txt"]


def special_files(place: Path) -> dict[str, Path]:
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(place)  # the name of a socket must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(before)
    return {"fifo": place / "fifo", "socket": place / "socket"}


@pytest.mark.parametrize("name", ["fifo", "socket"])
def test_what_is_not_a_regular_file_is_neither_read_nor_written(ws: Workspace, name: str) -> None:
    before = special_files(ws.root)[name].lstat()
    with pytest.raises(WorkspaceError, match="is not a regular file"):
        ws.read(name)
    with pytest.raises(WorkspaceError, match="is not a regular file"):
        ws.write(name, b"x")
    assert (ws.root / name).lstat() == before
    assert ws.kind(name) == "other"


def test_a_workspace_of_devices_gives_none_of_them() -> None:
    devices = Workspace("/dev")
    for name in ("null", "zero", "tty"):
        with pytest.raises(WorkspaceError, match="is not a regular file"):
            devices.read(name)
    with pytest.raises(WorkspaceError, match="is not a regular file"):
        devices.write("null", b"x")
    with pytest.raises(OutsideWorkspace):
        devices.read("fd/0")  # a link to /proc


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "the path is empty"),
        ("a\0b", "a path cannot hold a NUL character"),
        ("a.txt\0.png", "a path cannot hold a NUL character"),
        ("\ud800", "the path cannot be written in the file system's encoding"),
        ("none.txt", "No such file or directory"),
        ("none/none.txt", "No such file or directory"),
        ("a.txt/none", "Not a directory"),
        ("sub", "Is a directory"),
        (".", "Is a directory"),
        ("sub/..", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("/".join(["sub"] + [".", "..", "sub"] * 300), "Is a directory"),
    ],
)
def test_a_path_that_cannot_be_read_is_told_with_its_problem(ws: Workspace, path: str, problem: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        ws.read(path)
    assert str(caught.value) == f"{shown(path)}: {problem}"
    assert isinstance(caught.value, ToolFailed)


def test_a_path_that_is_too_deep_is_refused_and_makes_nothing_open_for_long(ws: Workspace) -> None:
    before = len(names_in(Path("/dev/fd")))
    with pytest.raises(WorkspaceError, match="directories deep"):
        ws.write("/".join(["d"] * (DEPTH_MAX + 2)), b"")
    assert len(names_in(Path("/dev/fd"))) == before


def test_a_file_that_is_too_large_is_refused_also_when_its_size_is_not_told(ws: Workspace) -> None:
    (ws.root / "big").write_bytes(b"x" * 11)
    with pytest.raises(WorkspaceError, match="is larger than 10 bytes"):
        ws.read("big", 10)
    assert ws.read("big", 11) == b"x" * 11
    with pytest.raises(WorkspaceError, match="is larger than 1 bytes"):
        Workspace("/proc/self").read("status", 1)  # of size 0, by its own account


def test_absolute_paths_below_the_root_are_paths_of_the_workspace(tmp_path: Path, ws: Workspace) -> None:
    (tmp_path / "alias").symlink_to(ws.root)
    alias = Workspace(tmp_path / "alias")
    assert alias.root == ws.root
    assert alias.read(f"{tmp_path}/alias/sub/b.txt") == b"b\n"
    assert alias.read(f"{ws.root}/sub/b.txt") == b"b\n"
    assert alias.resolve(str(ws.root)) == ws.root


def test_the_root_may_be_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n")
    assert Workspace("/").read(str(tmp_path / "a.txt")) == b"a\n"
    with pytest.raises(OutsideWorkspace):
        Workspace("/").read("../etc")


def test_a_write_makes_parents_and_keeps_the_mode_of_a_file(ws: Workspace) -> None:
    ws.write("new/deep/c.txt", b"c\n")
    assert (ws.root / "new/deep/c.txt").read_bytes() == b"c\n"
    (ws.root / "a.txt").chmod(0o750)
    ws.write("a.txt", b"changed\n")
    assert stat.S_IMODE((ws.root / "a.txt").stat().st_mode) == 0o750
    assert names_in(ws.root) == ["a.txt", "new", "sub"]


def test_a_written_file_runs_with_nobodys_rights(ws: Workspace) -> None:
    (ws.root / "tool").touch()
    (ws.root / "tool").chmod(0o6755)
    ws.write("tool", b"new")
    assert stat.S_IMODE((ws.root / "tool").stat().st_mode) == 0o755


def test_a_new_file_gets_the_mode_of_the_umask(ws: Workspace) -> None:
    before = os.umask(0o027)
    try:
        ws.write("new.txt", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ws.root / "new.txt").stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="No space left on device"):
        ws.write("a.txt", b"half")
    assert (ws.root / "a.txt").read_bytes() == b"a\n"
    assert names_in(ws.root) == ["a.txt", "sub"]


def test_a_file_that_may_not_be_written_is_not_replaced(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_args, **_more: False)  # for root every file is writable
    with pytest.raises(WorkspaceError, match="Permission denied"):
        ws.write("a.txt", b"x")
    assert (ws.root / "a.txt").read_bytes() == b"a\n"


def test_a_write_leaves_the_other_names_of_a_hard_link_alone(ws: Workspace, outside: Path) -> None:
    os.link(outside / "secret.txt", ws.root / "hard")
    ws.write("hard", b"changed\n")
    assert (ws.root / "hard").read_bytes() == b"changed\n"
    assert (outside / "secret.txt").read_bytes() == SECRET


def test_a_directory_is_not_removed(ws: Workspace) -> None:
    with pytest.raises(WorkspaceError):
        ws.remove("sub")
    assert (ws.root / "sub").is_dir()


def test_entries_are_sorted_with_their_kinds_and_links_unfollowed(ws: Workspace, outside: Path) -> None:
    (ws.root / "link").symlink_to(outside)
    os.mkfifo(ws.root / "z-fifo")
    assert [(each.name, each.kind, each.size_bytes) for each in ws.entries(".")] == [
        ("a.txt", "file", 2),
        ("link", "link", 0),
        ("sub", "directory", 0),
        ("z-fifo", "other", 0),
    ]


def test_a_name_that_is_not_text_is_listed_and_can_be_read_and_is_shown_with_escapes(ws: Workspace) -> None:
    Path(os.fsdecode(os.fsencode(ws.root) + b"/caf\xe9\n.txt")).write_bytes(b"x")
    (name,) = [each.name for each in ws.entries(".") if "caf" in each.name]
    assert ws.read(name) == b"x"
    assert shown(name) == "caf\\xe9\\n.txt"


@pytest.mark.parametrize(("root", "problem"), [("none", "No such file"), ("ws/a.txt", "is not a directory")])
def test_a_workspace_that_is_not_a_directory_is_refused(
    tmp_path: Path, ws: Workspace, root: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        Workspace(tmp_path / root)
