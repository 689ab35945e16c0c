"""The way to a server: the protocol, and what is refused when a log is opened or used without the right."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from anyio import create_task_group
from foldlog.eventlog import (
    NEW,
    CommitWrite,
    ConfigError,
    Lease,
    LogCorrupted,
    LogUnavailable,
    PayloadTooLarge,
    Subject,
)
from foldlog.eventlog.conformance.suite import closing, run_in
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.embedded.process import choose_port
from foldlog.eventlog.jetstream import JetStreamLog, follower, headers
from foldlog.eventlog.jetstream.address import masked
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.jetstream.parser import Parser
from foldlog.eventlog.jetstream.wire import Done, Wire
from foldlog.eventlog.ports import Presence

from tests.jetstream.support import opened

# ---- the protocol


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[bytes, ...]] = []
        self.commands: list[bytes] = []

    def message(self, *parts: bytes) -> None:
        self.messages.append(parts)

    def command(self, line: bytes) -> None:
        self.commands.append(line)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_messages_are_the_same_however_the_bytes_arrive(size: int) -> None:
    header = b"NATS/1.0\r\nA: b\r\n\r\n"
    stream = (
        b"PING\r\nMSG a.b 1 3\r\nx\r\n\r\nMSG a 22 reply.to 0\r\n\r\n"
        b"HMSG s 3 %d %d\r\n%b-ERR\r\n+OK\r\nHMSG s 3 r %d %d\r\n%b\r\n"
    ) % (len(header), len(header) + 4, header, len(header), len(header), header)
    heard = Heard()
    parser = Parser(heard)
    for start in range(0, len(stream), size):
        parser.feed(stream[start : start + size])
    assert heard.messages == [
        (b"1", b"a.b", b"", b"", b"x\r\n"),
        (b"22", b"a", b"reply.to", b"", b""),
        (b"3", b"s", b"", header, b"-ERR"),
        (b"3", b"s", b"r", header, b""),
    ]
    assert heard.commands == [b"PING", b"+OK"]


def test_a_header_is_found_by_its_whole_name_only() -> None:
    header = headers.build((b"Nats-Expected-Last-Sequence", b"7"), (b"Nats-Sequence", b"12"))
    assert headers.number(header, b"Nats-Sequence") == 12
    assert headers.number(header, b"Nats-Last-Sequence") == 0
    assert headers.status(header) == 0
    assert headers.status(b"NATS/1.0 404 Message Not Found\r\n\r\n") == 404


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://me:secret@host:4222", "nats://me:***@host:4222"),
        ("tls://token@host", "tls://***@host"),
        ("me:secret@host", "nats://me:***@host"),
        ("nats://host:4222", "nats://host:4222"),
    ],
)
def test_credentials_in_a_url_are_never_shown(url: str, shown: str) -> None:
    assert masked(url) == shown


# ---- opening


async def test_no_server_is_told_with_the_url_and_what_to_do() -> None:
    url = f"nats://me:secret@127.0.0.1:{choose_port()}"
    with pytest.raises(LogUnavailable, match=r"me:\*\*\*@127\.0\.0\.1.*foldlog log up.*NATS_URL") as trouble:
        async with opened(url, connect_timeout_s=0.3):
            pass
    assert "secret" not in str(trouble.value)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:notaport", "ftp://127.0.0.1", ""])
async def test_what_is_not_a_url_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        async with opened(url, connect_timeout_s=0.3):
            pass


async def test_any_of_several_servers_is_enough(server: EphemeralServer) -> None:
    async with opened(f"nats://127.0.0.1:{choose_port()},{server.url}") as log:
        assert await log.events.head(run_in(log).subject) is None


USERS = """
accounts {
  A { jetstream: enabled, users: [
    {user: me, password: right},
    {user: reader, password: r, permissions: {publish: ["$JS.API.STREAM.INFO.>", "$JS.API.DIRECT.GET.>", "_INBOX.>"]}}
    {user: deaf, password: d, permissions: {subscribe: {deny: ["live.>"]}}}
    {user: unaware, password: u, permissions: {subscribe: {deny: ["died.>", "$SYS.>"]}}}
    {user: alone, password: a, permissions: {subscribe: {deny: ["died.>", "$SYS.>", "$JS.EVENT.>"]}}}
  ]}
  B { users: [{user: poor, password: p}] }
}
no_auth_user: me
"""


@pytest.fixture
async def guarded() -> AsyncIterator[EphemeralServer]:
    async with EphemeralServer(extra_config=USERS) as server:
        yield server


def as_user(server: EphemeralServer, credentials: str) -> str:
    return server.url.replace("nats://", f"nats://{credentials}@")


async def test_wrong_credentials_are_a_config_error_that_does_not_show_them(guarded: EphemeralServer) -> None:
    with pytest.raises(ConfigError, match="refused the credentials") as trouble:
        async with opened(as_user(guarded, "me:wrong")):
            pass
    assert "wrong" not in str(trouble.value)


async def test_an_account_without_jetstream_is_a_config_error(guarded: EphemeralServer) -> None:
    with pytest.raises(ConfigError, match="no JetStream"):
        async with opened(as_user(guarded, "poor:p")):
            pass


async def test_a_denied_append_and_a_denied_follow_say_what_is_not_allowed(guarded: EphemeralServer) -> None:
    async with opened(as_user(guarded, "me:right")) as log:
        run = run_in(log)
        await run.append()
        async with opened(as_user(guarded, "reader:r")) as reader:
            run.log = reader
            with pytest.raises(ConfigError, match=r"does not allow.*fl\.default"):
                await run.append()
            async with closing(reader.events.follow(run.subject)) as commits:
                assert await anext(commits) == run.stored[0]
        async with (
            opened(as_user(guarded, "deaf:d")) as deaf,
            closing(deaf.events.follow(run.subject)) as commits,
        ):
            with pytest.raises(ConfigError, match=r"does not allow.*live\.fl"):
                await anext(commits)


async def test_who_may_not_hear_of_deaths_is_told_so_once_and_goes_on(
    guarded: EphemeralServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "IDLE_S", 0.05)
    caplog.set_level(logging.WARNING, "foldlog")
    async with opened(as_user(guarded, "alone:a")) as log:
        for _ in range(2):
            run = run_in(log)
            await run.append()
            async with closing(log.events.follow(run.subject, to_end=True)) as commits, log.leases.deaths():
                assert await anext(commits) == run.stored[0]
                await run.append()  # and its writer dies
                assert await anext(commits) == run.stored[1]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("the death of a worker is noticed only when its lease expires: ")
    assert 'Subscription to "died.default"' in told


async def test_a_worker_that_may_not_listen_to_others_finds_deaths_out_by_itself(
    guarded: EphemeralServer, caplog: pytest.LogCaptureFixture
) -> None:
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w", token="token")
    async with opened(as_user(guarded, "unaware:u")) as log, log.leases.deaths() as deaths:
        async with AsyncExitStack() as stack:
            mine = await stack.enter_async_context(opened(as_user(guarded, "me:right")))
            await stack.enter_async_context(mine.leases.presence(Presence(worker="w")))
            await mine.leases.vouch(lease, 600)
            await mine._wire.close()  # without a word
            assert await anext(deaths) == lease
        assert not await log.leases.live("r", "w", 1)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_a_credentials_file_that_is_none_is_named(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_CREDS", "/nowhere/me.creds")
    with pytest.raises(ConfigError, match=r"NATS_CREDS.*/nowhere/me\.creds"):
        async with opened(server.url):
            pass


@pytest.mark.parametrize("replicas", ["0", "6", "three"])
async def test_a_number_of_replicas_that_cannot_be_is_named(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch, replicas: str
) -> None:
    monkeypatch.setenv("FOLDLOG_REPLICAS", replicas)
    with pytest.raises(ConfigError, match=f"FOLDLOG_REPLICAS.*{replicas}"):
        async with opened(server.url):
            pass


async def test_more_replicas_than_there_are_servers_are_refused_with_what_to_do(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_REPLICAS", "3")
    with pytest.raises(LogUnavailable, match=r"no room for 3 replicas.*FOLDLOG_REPLICAS"):
        async with opened(server.url, connect_timeout_s=3.0):
            pass


@pytest.mark.parametrize(("given", "found"), [("s2", "s2"), ("none", "none"), (None, "none")])
async def test_streams_on_disk_are_compressed_if_the_environment_says_so(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch, given: str | None, found: str
) -> None:
    if given is not None:
        monkeypatch.setenv("FOLDLOG_COMPRESSION", given)
    layout = Layout(f"compressed-{given}")
    async with opened(server.url, namespace=layout.namespace, shards=1) as log:
        position, *_ = await log.events.append(CommitWrite(Subject(0, "run", "a", "a"), NEW, b"x" * 1000))
        stored = [each async for each in log.events.read(Subject(0, "run", "a", "a"))]
        assert [(each.position, each.data) for each in stored] == [(position, b"x" * 1000)]
        kept = {}
        for stream in (layout.shard(0), layout.artifacts, layout.snapshots, layout.leases, layout.drafts):
            info = await log._wire.api(f"STREAM.INFO.{stream}", None, dict[str, Any])
            kept[stream] = (info["config"]["storage"], info["config"].get("compression", "none"))
    on_disk = dict.fromkeys([layout.shard(0), layout.artifacts, layout.snapshots], ("file", found))
    assert kept == {**on_disk, **dict.fromkeys([layout.leases, layout.drafts], ("memory", "none"))}


async def test_a_compression_that_cannot_be_is_named(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "zip")
    with pytest.raises(ConfigError, match="FOLDLOG_COMPRESSION is 'zip'"):
        async with opened(server.url):
            pass


async def test_a_server_without_jetstream_is_a_config_error(
    monkeypatch: pytest.MonkeyPatch, server: EphemeralServer
) -> None:
    monkeypatch.setattr(Wire, "has_jetstream", False)
    with pytest.raises(ConfigError, match="no JetStream"):
        async with opened(server.url):
            pass


@pytest.mark.parametrize("version", ["2.11.9", "1.0.0", "2.9.0-beta.1"])
async def test_an_old_server_is_a_config_error(
    server: EphemeralServer, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(Wire, "server_version", version)
    with pytest.raises(ConfigError, match=rf"{version}.*2\.12"):
        async with opened(server.url):
            pass


async def test_the_number_of_shards_is_fixed_when_the_namespace_is_made(server: EphemeralServer) -> None:
    async with opened(server.url, namespace="n", shards=3):
        pass
    async with opened(server.url, namespace="n") as log:
        assert log.events.shards == 3
    with pytest.raises(ConfigError, match=r"shards=3.*shards=2"):
        async with opened(server.url, namespace="n", shards=2):
            pass
    async with opened(server.url, namespace="other", shards=2) as log:
        assert log.events.shards == 2


async def test_processes_that_create_a_namespace_at_once_agree_or_get_an_error(
    server: EphemeralServer,
) -> None:
    made: list[int] = []
    refused: list[ConfigError] = []

    async def make(shards: int) -> None:
        try:
            async with opened(server.url, namespace="raced", shards=shards) as log:
                made.append(log.events.shards)
        except ConfigError as error:
            refused.append(error)

    async with create_task_group() as tasks:
        for shards in (2, 3, 2, 3, 2, 3):
            tasks.start_soon(make, shards)
    assert len(made) == len(refused) == 3
    assert len(set(made)) == 1


async def test_a_namespace_that_was_begun_and_left_is_completed(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    for shard in (2, 1):
        config = Layout("begun").shard_config(shard, 3, 1)
        await log._wire.api(f"STREAM.CREATE.{config['name']}", config, Done)
    with pytest.raises(ConfigError, match=r"shards=3.*shards=2"):
        async with opened(server.url, namespace="begun", shards=2):
            pass
    async with opened(server.url, namespace="begun") as begun:
        assert begun.events.shards == 3
        await run_in(begun, shard=2).append()


async def test_a_shard_that_is_gone_is_not_created_again(server: EphemeralServer, log: JetStreamLog) -> None:
    await log._wire.api("STREAM.DELETE.FL_default_01", None, Done)
    with pytest.raises(LogCorrupted, match="no stream FL_default_01"):
        async with opened(server.url):
            pass


async def test_a_server_without_tls_is_refused_for_a_url_that_requires_it(server: EphemeralServer) -> None:
    with pytest.raises(ConfigError, match="TLS"):
        async with opened(server.url.replace("nats://", "tls://")):
            pass


@pytest.mark.parametrize("namespace", ["", "a.b", "a b", "a*", "x" * 65])
async def test_a_namespace_has_a_plain_name(server: EphemeralServer, namespace: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        async with opened(server.url, namespace=namespace):
            pass


async def test_ids_that_are_not_names_never_reach_the_server(log: JetStreamLog) -> None:
    for name in ("a.b", "a b", "*", ">", ""):
        with pytest.raises(ConfigError):
            await log.events.append(CommitWrite(Subject(0, "run", name, name), NEW, b"x"))
        with pytest.raises(ConfigError):
            await log.events.find(0, name)


async def test_a_stream_that_loses_what_it_acknowledged_is_refused(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    config = Layout("loose").shard_config(0, 1, 1) | {"persist_mode": "async", "allow_atomic": False}
    await log._wire.api("STREAM.CREATE.FL_loose_00", config, Done)
    with pytest.raises(ConfigError, match="persist_mode async"):
        async with opened(server.url, namespace="loose"):
            pass


@pytest.mark.parametrize("shards", [0, 257])
async def test_a_namespace_has_one_to_256_shards(server: EphemeralServer, shards: int) -> None:
    with pytest.raises(ConfigError, match="shards"):
        async with opened(server.url, shards=shards):
            pass


async def test_what_a_server_with_small_messages_cannot_take_is_refused_before_it_is_sent() -> None:
    async with EphemeralServer(extra_config="max_payload: 65536") as server, opened(server.url) as log:
        run = run_in(log)
        with pytest.raises(PayloadTooLarge):
            await log.events.append(run.write(size_bytes=65_500))
        await run.store(run.write(size_bytes=65_000))
        data = bytes(200_000)
        assert await log.artifacts.find(await log.artifacts.of("run-1").put(data)) == data
