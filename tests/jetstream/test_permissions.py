"""The permissions of docs/how-to/permissions.md on a real server: enough for each role, and nothing of others."""

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from foldlog.adapters.cli.app import app
from foldlog.eventlog import NEW, CommitWrite, ConfigError, RunGone, Subject
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, Worker, tool
from foldlog.runtime.driving.host import Host
from typer.testing import CliRunner

from tests.docs.markdown import ROOT, blocks
from tests.runtime.conftest import call, calls, says

ROLES = ("reader", "client", "retention", "worker", "operator")
NAMESPACES = ("shop", "office")


def users(namespace: str, directory: Path) -> str:
    """The users of the page, for a namespace, with the permissions that its command makes."""
    (directory / namespace).mkdir()
    for role in ROLES:
        done = CliRunner().invoke(app, ["-n", namespace, "log", "permissions", "--role", role])
        assert done.exit_code == 0, done.output
        (directory / namespace / f"{role}.conf").write_text(done.stdout)
    (block,) = [b for b in blocks(ROOT / "docs/how-to/permissions.md") if b.attributes.get("title")]
    listed = block.text.split("users: [", 1)[1].rpartition("]")[0].replace("shop", namespace)
    listed = re.sub(r"\$SHOP_(\w+)", lambda found: f"{found[1].lower()}-of-the-{namespace}", listed)
    return listed.replace(f"include ./{namespace}/", f"include ../{namespace}/")


@pytest.fixture(scope="module")
async def guarded(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EphemeralServer]:
    """One account with both namespaces, and a user who hears and does everything."""
    directory = tmp_path_factory.mktemp("permissions")
    listed = [users(namespace, directory) for namespace in NAMESPACES]
    everybody = "\n".join([*listed, "      {user: all, password: all}"])
    config = f"accounts {{ FOLDLOG {{ jetstream: enabled, users: [{everybody}] }} }}"
    async with EphemeralServer(directory / "server", extra_config=config) as server:
        for namespace in NAMESPACES:
            async with JetStreamLog.open(
                url(server, "operator", namespace), namespace=namespace, role="operator"
            ):
                pass
        yield server
        server.kill()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def url(server: EphemeralServer, role: str, namespace: str = "shop") -> str:
    return server.url.replace("nats://", f"nats://{namespace}-{role}:{role}-of-the-{namespace}@")


@asynccontextmanager
async def overheard(server: EphemeralServer) -> AsyncIterator[set[str]]:
    """The subjects of all answers that go over the server meanwhile, without their last two tokens."""
    found: set[str] = set()

    async def note(message: Any) -> None:
        if message.subject.startswith("_INBOX."):  # a wake-up is handed over under its own subject
            found.add(".".join(message.subject.split(".")[:3]))

    connection = await nats.connect(server.url.replace("nats://", "nats://all:all@"), inbox_prefix=b"ALL")
    try:
        await connection.subscribe("_INBOX.>", cb=note)
        await connection.flush()
        yield found
        await connection.flush()
    finally:
        await connection.close()


def script_of(tmp_path: Path) -> Callable[..., str]:
    from tests.runtime.conftest import script

    made: Callable[..., str] = script.__wrapped__(tmp_path)  # type: ignore[attr-defined]
    return made


async def test_each_role_can_do_its_work_and_hears_answers_in_its_own_inbox(
    guarded: EphemeralServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "foldlog")

    @tool(effect="unsafe")
    async def sell(ctx: ToolContext, item: str) -> str:
        """Sell something."""
        await ctx.artifact(b"a receipt")
        answer = await ctx.ask(
            "For how much?", {"type": "object", "properties": {"price": {"type": "integer"}}}
        )
        return f"{item} for {(answer.content or {})['price']}" + "!" * 1_500_000

    model = script_of(tmp_path)(calls(call("sell", item="a clock")), says("so", "ld"))
    seller = Agent("seller", model=model, tools=[sell], hitl_tools=["sell"], approval_timeout_s=600)
    registry = Registry(agents=[seller])
    async with overheard(guarded) as inboxes:
        async with JetStreamLog.open(
            url(guarded, "worker"), namespace="shop", name="w", role="worker"
        ) as log:
            monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", "3")
            host = Host(log=log, registry=registry, worker="w", lease_s=10, snapshot_events=3)
            worker = Worker(host)
            serving = asyncio.create_task(worker.serve())
            async with Runtime.open(url(guarded, "client"), namespace="shop", registry=registry) as caller:
                run = await caller.start(seller, "sell it", executor="durable", session="s")
                told = asyncio.create_task(collect(run))
                other = await caller.start(seller, "sell it", executor="durable")
                await other.cancel("not today")
                await answer(run, None)
                await answer(run, {"price": 7})
                assert (await run.result()).output == "sold"
                assert "tool_result" in await told
            worker.stop()
            await serving
        monkeypatch.setenv("FOLDLOG_ROLE", "reader")
        async with Runtime.open(url(guarded, "reader"), namespace="shop") as reader:
            assert {each.run_id for each in await reader.list_runs()} == {run.run_id, other.run_id}
            assert "tool_result" in await collect(reader.get_run(run.run_id))
            assert (await reader.get_run(run.run_id).history())[2].content.startswith("a clock for 7!")
    assert inboxes == {f"_INBOX.shop.{role}" for role in ("worker", "client", "reader")}
    assert [record.getMessage() for record in caplog.records if "does not allow" in record.getMessage()] == []


@pytest.mark.parametrize("role", ["worker", "operator"])
async def test_a_process_that_drives_its_runs_itself_needs_the_rights_of_a_worker(
    guarded: EphemeralServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    role: str,
) -> None:
    caplog.set_level(logging.WARNING, "foldlog")
    monkeypatch.setenv("FOLDLOG_ROLE", role)
    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", "1")
    agent = Agent("talker", model=script_of(tmp_path)(says("fi", "ne")))
    async with Runtime.open(url(guarded, role), namespace="shop") as runtime:
        run = await runtime.start(agent, "talk")
        assert (await run.result()).output == "fine"
    assert [record.getMessage() for record in caplog.records if "does not allow" in record.getMessage()] == []


@pytest.mark.parametrize("role", ["worker", "operator"])
async def test_workers_and_operators_erase_runs_and_clients_do_not(
    guarded: EphemeralServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    agent = Agent("talker", model=script_of(tmp_path)(says("fine")))
    monkeypatch.setenv("FOLDLOG_ROLE", role)
    async with Runtime.open(url(guarded, role), namespace="shop") as runtime:
        first, second = [
            await runtime.start(agent, "talk", session=role, idempotency_key=f"{role} {n}") for n in "12"
        ]
        await second.result()
        await runtime.delete(first.run_id)
        await runtime.log.wakeups.sweep()
        await runtime.log.events.sweep()
    monkeypatch.setenv("FOLDLOG_ROLE", "client")
    async with Runtime.open(url(guarded, "client"), namespace="shop") as runtime:
        (left,) = (await runtime.delete(second.run_id)).erased
        assert (left.run_id, left.purged, left.before) == (second.run_id, False, False)
        with pytest.raises(RunGone):
            await runtime.get_run(second.run_id).state()
        (left,) = (await runtime.delete(second.run_id)).erased
        assert (left.purged, left.before) == (False, True)
    monkeypatch.setenv("FOLDLOG_ROLE", role)
    async with Runtime.open(url(guarded, role), namespace="shop") as runtime:
        (erased,) = (await runtime.delete(second.run_id)).erased
        assert (erased.before, erased.purged) == (True, True)
        third, fourth = [await runtime.start(agent, "talk", session=role) for _ in "34"]
        await fourth.result()
        await third.result()
    monkeypatch.setenv("FOLDLOG_ROLE", "client")
    command = [sys.executable, "-m", "foldlog.adapters.cli", "-n", "shop", "-s", url(guarded, "client")]
    for run, code in ((second, 0), (third, 1)):
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "runs", "delete", run.run_id],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert ("a worker does, about a minute from now" in done.stdout) is bool(code)


async def collect(run: Any) -> list[str]:
    return [event.type async for event in run.stream(detailed=True)]


async def answer(run: Any, arguments: dict[str, Any] | None) -> None:
    """Approve the next thing that the run asks."""
    async for event in run.stream(detailed=True):
        if event.type == "approval_requested":
            pending = (await run.state()).pending_approvals
            if pending and (arguments is None) == (pending[0].request.kind == "tool"):
                await run.resolve(pending[0].request.approval_id, "approved", arguments=arguments)
                return


async def test_a_reader_cannot_write(guarded: EphemeralServer) -> None:
    async with JetStreamLog.open(url(guarded, "reader"), namespace="shop", role="reader") as log:
        with pytest.raises(ConfigError, match=r"does not allow.*fl\.shop"):
            await log.events.append(CommitWrite(Subject(0, "run", "a", "a"), NEW, b"x"))


@pytest.mark.parametrize("role", ROLES)
async def test_a_user_of_one_namespace_hears_and_asks_nothing_of_another(
    guarded: EphemeralServer, role: str
) -> None:
    denied: list[str] = []

    async def note(error: Exception) -> None:
        denied.append(str(error).lower())

    connection = await nats.connect(
        url(guarded, role), error_cb=note, inbox_prefix=f"_INBOX.shop.{role}".encode()
    )
    listened = [
        ">", "*.>", "_INBOX.>", "_INBOX.*.>", "_INBOX.shop.>", "_INBOX.office.>", f"_INBOX.office.{role}.>",
        *(f"_INBOX.shop.{other}.>" for other in ROLES if other != role),
        "live.>", "live.fl.office.>", "draft.office.>", "draft.*.>", "died.office", "died.*", "alive.office.w",
        "fl.office.>", "artifact.office.>", "snapshot.office.>", "lease.office.>", "$JS.API.>", "$JS.ACK.>",
        "$JS.EVENT.ADVISORY.>", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.FL_office_leases.*", "$SYS.>",
    ]  # fmt: skip
    asked = [
        "fl.office.00.run.a.a", "artifact.office.x.1.0", "snapshot.office.a.x.1.0", "draft.office.a.a",
        "lease.office.w.here", "died.office", "alive.office.w", "$JS.API.INFO", "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST", "_INBOX.office.client.x.1",
        *(
            f"$JS.API.{verb}.FL_office_{stream}"
            for verb in (
                "STREAM.INFO", "STREAM.CREATE", "STREAM.PURGE", "STREAM.DELETE", "STREAM.MSG.GET", "DIRECT.GET",
                "CONSUMER.LIST",
            )
            for stream in ("00", "leases", "drafts", "artifacts", "snapshots")
        ),
        "$JS.API.DIRECT.GET.FL_office_00.fl.office.00.run.a.a",
        "$JS.API.CONSUMER.CREATE.FL_office_00.c",
        "$JS.API.CONSUMER.MSG.NEXT.FL_office_00.c",
        "$JS.ACK.FL_office_00.c.1.1.1.1.1",
    ]  # fmt: skip
    for subject in listened:
        await connection.subscribe(subject)
    for subject in asked:
        await connection.publish(subject, b"{}")
    await connection.flush()
    await connection.flush()
    missing = [
        subject
        for subject in listened
        if not any(f'subscription to "{subject.lower()}"' in d for d in denied)
    ]
    missing += [
        subject for subject in asked if not any(f'publish to "{subject.lower()}"' in d for d in denied)
    ]
    await connection.close()
    assert missing == []


@pytest.mark.parametrize(("role", "namespace"), [("client", "shop"), ("reader", "office")])
async def test_a_connection_with_the_wrong_role_or_namespace_is_told_so(
    guarded: EphemeralServer, role: str, namespace: str
) -> None:
    with pytest.raises(ConfigError, match=rf"_INBOX\.{namespace}\.{role}.*FOLDLOG_ROLE"):
        async with JetStreamLog.open(url(guarded, "reader"), namespace=namespace, role=role):
            pass


FINE = """
from foldlog import Agent, Registry

fine = Agent("fine", model="scripted:fine.json")
registry = Registry(agents=[fine])
"""


def command(
    server: EphemeralServer, place: Path, role: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    foldlog = Path(sys.executable).with_name("foldlog")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("FOLDLOG_", "NATS_"))},
        "NATS_URL": url(server, role),
        "FOLDLOG_ROLE": role,
        "FOLDLOG_HOME": str(place),
        "PYTHONPATH": str(place),
    }
    return subprocess.run(
        [foldlog, "-n", "shop", *arguments],
        cwd=place,
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.nightly
async def test_the_commands_of_each_role_work_and_no_others(
    guarded: EphemeralServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands of dashboards, callers, the job that erases, and operators, as processes with their users."""
    (tmp_path / "fine.json").write_text('{"turns": [{"text": "Fine."}]}')
    (tmp_path / "fine_agents.py").write_text(FINE)

    async def run(role: str, *arguments: str, code: int = 0) -> str:
        done = await asyncio.to_thread(command, guarded, tmp_path, role, *arguments)
        assert done.returncode == code, (role, arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        if code == 0:
            assert "does not allow" not in done.stderr, (role, arguments, done.stderr)
        return done.stdout + done.stderr

    await run("worker", "run", "fine_agents:fine", "x", "--run-id", "first", "--idempotency-key", "k")
    monkeypatch.setenv("FOLDLOG_ROLE", "client")
    async with Runtime.open(url(guarded, "client"), namespace="shop") as caller:
        fine = Agent("fine", model=f"scripted:{tmp_path}/fine.json")
        await caller.start(fine, "x", executor="durable", run_id="kept")
    reading = (
        ("runs", "list"), ("runs", "show", "first"), ("runs", "history", "first"), ("runs", "stream", "first"),
        ("runs", "pending", "kept"), ("events", "verify", "--all"), ("events", "export", "first"),
        ("monitor", "--once"), ("replay", "first"), ("schedules", "list"), ("approvals", "list"),
        ("preflight", "fine_agents:registry"), ("doctor", "--json"),
    )  # fmt: skip
    for role in ("reader", "client"):
        for arguments in reading:
            # a run waits for a worker, and doctor says so
            await run(role, *arguments, code=1 if arguments[0] == "doctor" else 0)
    refused = await run("reader", "runs", "cancel", "kept", code=2)
    assert "does not allow" in refused
    await run("client", "runs", "cancel", "kept")
    assert "does not allow" in await run("client", "runs", "delete", "first", code=2)
    await run("retention", "runs", "delete", "first")
    await run("operator", "doctor")
    await run("operator", "backup", "create", str(tmp_path / "backups"))
    await run("operator", "backup", "verify", str(tmp_path / "backups"))


async def test_a_user_with_an_inbox_of_its_own_is_not_heard_by_others_of_its_role(tmp_path: Path) -> None:
    entries = []
    for name in ("one", "two"):
        made = CliRunner().invoke(app, ["log", "permissions", "--role", "operator", "--name", name])
        (tmp_path / f"{name}.conf").write_text(made.stdout)
        entries.append(f"{{user: {name}, password: {name}, include ../{name}.conf}}")
    config = f"accounts {{ FOLDLOG {{ jetstream: enabled, users: [{', '.join(entries)}] }} }}"
    async with EphemeralServer(tmp_path / "server", extra_config=config) as server:
        at = server.url.replace("nats://", "nats://one:one@")
        async with JetStreamLog.open(at, role="one") as log:
            assert await log.leases.present() == ()
        with pytest.raises(ConfigError, match=r"_INBOX\.default\.two"):
            async with JetStreamLog.open(at, role="two"):
                pass
        server.kill()
