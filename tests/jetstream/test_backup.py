"""Backups on real servers: taken beside writers, restored elsewhere, and what a restore lets go on (W54, W55, W56)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import BackupDamaged, ConfigError, LogUnavailable, RunFailed
from foldlog.eventlog.backup import Manifest, check_files, open_backup, restoring, take_backup
from foldlog.eventlog.conformance.suite import Writer
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.jetstream.opening import Namespace
from foldlog.eventlog.jetstream.streams import read_all
from foldlog.eventlog.jetstream.wire import Done, Wire
from foldlog.eventlog.names import run_subject
from foldlog.eventlog.ports import Wakeup, WakeWrite
from foldlog.replay import check_log, check_trace, load_trace
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.driving.host import Host
from foldlog.runtime.restored import hold_everything

SHARDS = 2


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[Wire]:
    wire = await Wire.open(url, inbox=b"_INBOX.default.caller", name="test")
    try:
        yield wire
    finally:
        await wire.close()


async def taken(url: str, place: Path) -> tuple[Path, Manifest]:
    async with wired(url) as wire:
        return await take_backup(wire, Layout("default"), SHARDS, place)


async def restored(url: str, backup: tuple[Path, Manifest], namespace: str = "default") -> tuple[str, ...]:
    """Restore, and return the runs that are held."""
    async with restoring(url, *backup, namespace) as work:
        held = await hold_everything(work.log, time.time())
        await work.finish()
    return held.runs


class Bank:
    """Counts payments, outside of every log."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.may_go_on = asyncio.Event()

    def agent(self, place: Path) -> Agent[Any]:
        @tool(effect="unsafe")
        async def pay(invoice: int) -> str:
            """Pay an invoice."""
            self.paid.append(invoice)
            return "paid"

        @tool(effect="idempotent")
        async def look_up(invoice: int) -> str:
            """Look an invoice up."""
            await self.may_go_on.wait()
            return "due"

        turns = [
            {"tool_calls": [{"id": "1", "name": "look_up", "arguments": {"invoice": 7}}]},
            {"tool_calls": [{"id": "2", "name": "pay", "arguments": {"invoice": 7}}]},
            {"text": "done"},
        ]
        script = place / "bank.json"
        script.write_text(json.dumps({"turns": turns}))
        return Agent("teller", model=f"scripted:{script}", tools=[look_up, pay])


@asynccontextmanager
async def worker(log: JetStreamLog, registry: Registry) -> AsyncIterator[None]:
    serving = Worker(Host(log=log, registry=registry, worker="w1"), grace_s=2.0)
    task = asyncio.create_task(serving.serve())
    try:
        yield
    finally:
        serving.stop()
        await asyncio.wait_for(task, 120)


async def until_in_step(runtime: Runtime, run: str, step: int) -> None:
    journal = await runtime.get_run(run)._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: state.step >= step and bool(state.calls))


async def test_a_run_that_paid_after_the_backup_does_not_pay_again_unasked(
    server: EphemeralServer, tmp_path: Path
) -> None:
    bank = Bank()
    teller = bank.agent(tmp_path)
    registry = Registry(agents=[teller])
    async with (
        JetStreamLog.open(server.url, shards=SHARDS) as log,
        Runtime.open(log=log, registry=registry) as runtime,
        worker(log, registry),
    ):
        run = await runtime.start(
            teller, "invoice 7", executor="durable", idempotency_key="invoice-7", session="desk"
        )
        await until_in_step(runtime, run.run_id, 1)
        backup = await taken(server.url, tmp_path / "backups")
        bank.may_go_on.set()
        assert (await run.result()).output == "done"
    assert bank.paid == [7]

    async with (
        EphemeralServer() as elsewhere,
        asyncio.timeout(120),
    ):
        assert await restored(elsewhere.url, backup) == (run.run_id,)
        async with (
            JetStreamLog.open(elsewhere.url) as log,
            Runtime.open(log=log, registry=registry) as runtime,
            worker(log, registry),
        ):
            again = await runtime.start(
                teller, "invoice 7", executor="durable", idempotency_key="invoice-7", session="desk"
            )
            assert again.run_id == run.run_id  # the key holds
            after = await runtime.start(teller, "invoice 7", executor="durable", session="desk")
            assert (await after.pending()).behind == (run.run_id,)  # the session remembers who is before it
            for _ in range(20):  # a run that went on would pay within this time
                await asyncio.sleep(0.05)
                assert bank.paid == [7]
            pending = await again.pending()
            assert (pending.status, pending.paused) == ("paused", "manual")
            audit = await log.audit()
            assert audit.losses == ()
            assert (await check_log(log)).missing == ()

            await again.resume()  # a person has looked, and wants it to go on
            assert (await again.result()).output == "done"
            assert bank.paid == [7, 7]
            assert (await after.result()).output == "done"
            assert check_trace(await load_trace(log, run.run_id)) == []


async def test_what_was_spent_before_the_backup_is_spent_where_it_is_restored(
    server: EphemeralServer, tmp_path: Path
) -> None:
    script = tmp_path / "clerk.json"
    usage = {"input_tokens": 3, "output_tokens": 2}
    script.write_text(json.dumps({"turns": [{"text": "done", "usage": usage}]}))
    clerk = Agent("clerk", model=f"scripted:{script}")
    budgets = {"user:*": {"tokens": 10, "per": "total"}}

    @asynccontextmanager
    async def opened(namespace: str) -> AsyncIterator[Runtime]:
        async with (
            JetStreamLog.open(server.url, namespace=namespace, shards=SHARDS) as log,
            Runtime.open(log=log, registry=Registry(agents=[clerk]), budgets=budgets) as runtime,
        ):
            yield runtime

    async with opened("default") as runtime:
        await runtime.run(clerk, "question", user="ada")
        backup = await taken(server.url, tmp_path / "backups")
        await runtime.run(clerk, "after the backup", user="ada")
    await restored(server.url, backup, "copy")
    async with opened("copy") as runtime:
        (row,) = (await runtime.operations.budgets(runtime.budgets)).page()
        assert (row.owner, row.calls, row.tokens, row.left_tokens) == ("user:ada", 1, 5, 5)
        await runtime.run(clerk, "question", user="ada")
        with pytest.raises(RunFailed, match="is used up"):
            await runtime.run(clerk, "question", user="ada")


async def keep_starting(
    runtime: Runtime, clerk: Agent[Any], started: list[str], enough: asyncio.Event
) -> None:
    while not enough.is_set():
        run = await runtime.start(clerk, f"question {len(started)}", idempotency_key=f"k{len(started)}")
        await run.result()
        started.append(run.run_id)


@pytest.mark.parametrize("namespace", ["default", "copy"])
async def test_a_backup_taken_beside_writers_is_whole_wherever_it_is_restored(
    server: EphemeralServer, tmp_path: Path, namespace: str
) -> None:
    script = tmp_path / "clerk.json"
    script.write_text(json.dumps({"turns": [{"text": "answer " * 2000}]}))
    clerk = Agent("clerk", model=f"scripted:{script}")
    registry = Registry(agents=[clerk])
    started: list[str] = []
    enough = asyncio.Event()
    async with (
        JetStreamLog.open(server.url, shards=SHARDS) as log,
        Runtime.open(log=log, registry=registry) as runtime,
        asyncio.TaskGroup() as writers,
    ):
        writers.create_task(keep_starting(runtime, clerk, started, enough))
        async with asyncio.timeout(120):
            while len(started) < 5:  # noqa: ASYNC110 - the runs say nothing when they end
                await asyncio.sleep(0.01)
        before = list(started)
        backup = await taken(server.url, tmp_path / "backups")
        enough.set()
    check_files(*backup)
    held = await restored(server.url if namespace != "default" else await fresh(server), backup, namespace)
    async with (
        JetStreamLog.open(server.url, namespace=namespace) as log,
        Runtime.open(log=log, registry=registry) as runtime,
    ):
        audit = await log.audit()
        assert audit.losses == ()
        found = await check_log(log)
        assert found.missing == ()
        assert set(found.open) == set(held)
        assert {each.run_id for each in await runtime.list_runs()} >= set(before)
        assert (await runtime.get_run(before[0]).result()).output.startswith("answer")
        with_key = await runtime.start(clerk, "question 0", idempotency_key="k0")
        assert with_key.run_id == before[0]
        new = await runtime.start(clerk, "one more")
        assert (await new.result()).output.startswith("answer")


async def fresh(server: EphemeralServer) -> str:
    """Delete all that the server has, and return its address."""
    async with wired(server.url) as wire:
        for name in ("00", "01", "artifacts", "snapshots", "leases", "drafts"):
            await wire.api(f"STREAM.DELETE.FL_default_{name}", None, Done)
    return server.url


@pytest.fixture
async def backup(server: EphemeralServer, tmp_path: Path) -> tuple[Path, Manifest]:
    async with JetStreamLog.open(server.url, shards=SHARDS):
        pass
    return await taken(server.url, tmp_path / "backups")


async def test_a_backup_is_not_restored_over_anything(
    server: EphemeralServer, backup: tuple[Path, Manifest]
) -> None:
    async with JetStreamLog.open(server.url) as log:
        await Writer(log, run_subject(0, "r", "r")).append()
    with pytest.raises(ConfigError, match=r"'default' at .* is not empty \(it has FL_default_00\b"):
        await restored(server.url, backup)
    async with JetStreamLog.open(server.url) as log:  # and what is there was not touched
        assert (await log.audit()).losses == ()
        assert await log.events.find(0, "r") is not None


async def test_streams_that_have_never_had_a_message_make_room_for_a_restore(
    server: EphemeralServer, backup: tuple[Path, Manifest]
) -> None:
    """Any command makes them in a namespace without streams, even one whose restore was killed before its first."""
    async with JetStreamLog.open(server.url, namespace="copy", shards=SHARDS + 1):
        pass
    assert await restored(server.url, backup, "copy") == ()
    async with JetStreamLog.open(server.url, namespace="copy") as log:
        assert log.events.shards == SHARDS
        assert (await log.audit()).losses == ()


async def test_a_stream_whose_messages_are_all_gone_is_not_taken_for_one_that_had_none(
    server: EphemeralServer, backup: tuple[Path, Manifest]
) -> None:
    async with JetStreamLog.open(server.url) as log:
        await Writer(log, run_subject(0, "r", "r")).append()
    async with wired(server.url) as wire:
        await wire.api("STREAM.PURGE.FL_default_00", None, Done)
    with pytest.raises(ConfigError, match=r"is not empty \(it has FL_default_00\b"):
        await restored(server.url, backup)


async def test_a_stream_that_gets_its_first_message_while_room_is_made_is_kept(
    server: EphemeralServer, backup: tuple[Path, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks = Wire.api, list[str]()
    async with JetStreamLog.open(server.url) as log:

        async def api(wire: Wire, command: str, *rest: Any) -> Any:
            looks.append(command)
            # The second look is the one right before the deletion.
            if command == "STREAM.INFO.FL_default_00" and looks.count(command) == 2:
                await Writer(log, run_subject(0, "r", "r")).append()
            return await look(wire, command, *rest)

        monkeypatch.setattr(Wire, "api", api)
        with pytest.raises(ConfigError, match=r"is not empty \(it has FL_default_00\)"):
            await restored(server.url, backup)
        assert await log.events.find(0, "r") is not None


async def test_a_restore_that_fails_leaves_nothing_and_one_that_was_killed_is_begun_again(
    server: EphemeralServer, backup: tuple[Path, Manifest]
) -> None:
    class Killed(Exception):
        """Stands for anything that goes wrong in the middle."""

    with pytest.raises(Killed):  # noqa: PT012 - what fails is the block itself
        async with restoring(server.url, *backup, "copy"):
            with pytest.raises(LogUnavailable, match="is being restored from a backup"):
                async with JetStreamLog.open(server.url, namespace="copy", connect_timeout_s=1.0):
                    pass
            raise Killed
    async with wired(server.url) as wire:
        for shard in range(SHARDS):  # as a process leaves them that is killed
            config = {
                "name": f"FL_copy_0{shard}",
                "subjects": [f"gate.fl.copy.0{shard}.>"],
                "metadata": {"foldlog.restoring": "gate"},
            }
            await wire.api(f"STREAM.CREATE.{config['name']}", config, Done)
    assert await restored(server.url, backup, "copy") == ()
    async with JetStreamLog.open(server.url, namespace="copy") as log:
        assert (await log.audit()).losses == ()


@pytest.mark.parametrize(
    "left", [{"artifacts": True, "01": True}, {"artifacts": False, "01": False, "00": True}]
)
async def test_a_namespace_whose_restore_was_killed_is_opened_by_nobody_and_restored_again(
    server: EphemeralServer, backup: tuple[Path, Manifest], left: dict[str, bool]
) -> None:
    """It was killed before the first shard was there, or while it took the marks away, that of the first shard last."""
    async with wired(server.url) as wire:
        for name, is_marked in left.items():
            config = {
                "name": f"FL_copy_{name}",
                "subjects": [f"gate.copy.{name}.>"],
                "metadata": {"foldlog.restoring": "gate"} if is_marked else {},
            }
            await wire.api(f"STREAM.CREATE.{config['name']}", config, Done)
        with pytest.raises(LogUnavailable, match="is being restored from a backup"):
            await Namespace(wire, Layout("copy")).settle(None, 0.0)
    assert await restored(server.url, backup, "copy") == ()
    async with JetStreamLog.open(server.url, namespace="copy") as log:
        assert (await log.audit()).losses == ()


async def test_no_process_writes_to_a_namespace_before_its_open_runs_are_held(
    server: EphemeralServer, backup: tuple[Path, Manifest]
) -> None:
    async with (
        wired(server.url) as stranger,
        restoring(server.url, *backup, "copy"),
    ):
        with pytest.raises(LogUnavailable, match="no responder"):
            stranger.answered(b"fl", await stranger.request(b"fl.copy.00.run.r.r", b"{}"))


async def test_what_was_altered_in_a_backup_is_named_before_anything_is_restored(
    backup: tuple[Path, Manifest],
) -> None:
    directory, manifest = backup
    file = directory / manifest.streams[0].file
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BackupDamaged, match="its content was altered"):
        check_files(directory, manifest)
    file.write_bytes(whole[:-1])
    with pytest.raises(BackupDamaged, match="bytes, and had"):
        check_files(directory, manifest)
    file.unlink()
    with pytest.raises(BackupDamaged, match="No such file"):
        check_files(directory, manifest)
    document = json.loads((directory / "manifest.json").read_text())
    for change, told in [
        ({"format": 2}, "this release reads format 1"),
        ({"namespace": "other"}, "it was altered"),
        ({"streams": "none"}, "it is not a manifest"),
    ]:
        (directory / "manifest.json").write_text(json.dumps(document | change))
        with pytest.raises((BackupDamaged, ConfigError), match=told):
            open_backup(directory)
    (directory / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="has no backup"):
        open_backup(directory)


async def test_a_backup_that_cannot_be_written_leaves_nothing(
    server: EphemeralServer, tmp_path: Path
) -> None:
    async with JetStreamLog.open(server.url, shards=SHARDS):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        await taken(server.url, tmp_path / "file")
    (place := tmp_path / "backups").mkdir()
    async with wired(server.url) as wire:
        with pytest.raises(LogUnavailable):  # a shard that does not exist
            await take_backup(wire, Layout("default"), SHARDS + 1, place)
    assert list(place.iterdir()) == []


async def keep_batching(log: JetStreamLog, stop: asyncio.Event) -> None:
    """Append a commit together with 40 wake-ups, all or none, again and again."""
    writer = Writer(log, run_subject(0, "batched", "batched"))
    wakeup = Wakeup(shard=0, agent="a", root="batched", run="batched", cause=1)
    while not stop.is_set():
        write = writer.write("x")
        position, *_ = await log.events.append(write, *[WakeWrite(wakeup)] * 40)
        writer.accept(write, position)


async def test_a_batch_that_a_snapshot_has_cut_is_restored_as_a_whole_or_not_at_all(
    server: EphemeralServer, tmp_path: Path
) -> None:
    stop = asyncio.Event()
    async with JetStreamLog.open(server.url, shards=SHARDS) as log, asyncio.TaskGroup() as writers:
        writers.create_task(keep_batching(log, stop))
        async with aclosing(log.events.follow(run_subject(0, "batched", "batched"))) as commits:
            await anext(commits)
        backups = [await taken(server.url, tmp_path / "backups") for _ in range(4)]
        stop.set()
    for number, backup in enumerate(backups):
        async with restoring(server.url, *backup, f"copy{number}") as work, wired(server.url) as wire:
            stream, prefix = f"FL_copy{number}_00", f"fl.copy{number}.00".encode()
            wakes = [each async for each in read_all(wire, stream, prefix + b".wake.>")]
            commits = [each async for each in read_all(wire, stream, prefix + b".run.>")]
            assert len(wakes) == 40 * len(commits) > 0
            assert (await work.log.audit()).losses == ()
