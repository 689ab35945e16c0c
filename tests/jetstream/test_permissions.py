"""The permissions of docs/how-to/permissions.md on a real server: enough for each role, and nothing of others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from foldlog.eventlog import NEW, CommitWrite, ConfigError, Subject
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, Worker, tool
from foldlog.runtime.driving.host import Host

from tests.docs.markdown import ROOT, blocks
from tests.runtime.conftest import call, calls, says

ROLES = ("reader", "caller", "worker", "operator")
NAMESPACES = ("shop", "office")


def users(namespace: str) -> str:
    """The users of the page, for a namespace."""
    (block,) = [b for b in blocks(ROOT / "docs/how-to/permissions.md") if b.attributes.get("title")]
    return block.text.split("users: [", 1)[1].rpartition("]")[0].replace("shop", namespace)


@pytest.fixture(scope="module")
async def guarded(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """One account with both namespaces, and a user who hears and does everything."""
    everybody = "\n".join([*map(users, NAMESPACES), "      {user: all, password: all}"])
    config = f"accounts {{ FOLDLOG {{ jetstream: enabled, users: [{everybody}] }} }}"
    async with EphemeralServer(extra_config=config) as server:
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
            async with Runtime.open(url(guarded, "caller"), namespace="shop", registry=registry) as caller:
                run = await caller.start(seller, "sell it", executor="durable", session="s")
                told = asyncio.create_task(collect(run))
                other = await caller.start(seller, "sell it", executor="durable")
                await other.cancel("not today")
                await answer(run, None)
                await answer(run, {"price": 7})
                assert (await run.result(timeout_s=60)).output == "sold"
                assert "tool_result" in await told
            worker.stop()
            await serving
        monkeypatch.setenv("FOLDLOG_ROLE", "reader")
        async with Runtime.open(url(guarded, "reader"), namespace="shop") as reader:
            assert {each.run_id for each in await reader.list_runs()} == {run.run_id, other.run_id}
            assert "tool_result" in await collect(reader.get_run(run.run_id))
            assert (await reader.get_run(run.run_id).history())[2].content.startswith("a clock for 7!")
    assert inboxes == {f"_INBOX.shop.{role}" for role in ("worker", "caller", "reader")}
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
        assert (await run.result(timeout_s=60)).output == "fine"
    assert [record.getMessage() for record in caplog.records if "does not allow" in record.getMessage()] == []


@pytest.mark.parametrize("role", ["worker", "operator"])
async def test_workers_and_operators_erase_runs_and_callers_do_not(
    guarded: EphemeralServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    agent = Agent("talker", model=script_of(tmp_path)(says("fine")))
    monkeypatch.setenv("FOLDLOG_ROLE", role)
    async with Runtime.open(url(guarded, role), namespace="shop") as runtime:
        first, second = [
            await runtime.start(agent, "talk", session=role, idempotency_key=f"{role} {n}") for n in "12"
        ]
        await second.result(timeout_s=60)
        await runtime.delete(first.run_id)
        await runtime.log.wakeups.sweep()
        await runtime.log.events.sweep()
    monkeypatch.setenv("FOLDLOG_ROLE", "caller")
    async with Runtime.open(url(guarded, "caller"), namespace="shop") as runtime:
        with pytest.raises(ConfigError, match="does not allow"):
            await runtime.delete(second.run_id)
    monkeypatch.setenv("FOLDLOG_ROLE", role)
    async with Runtime.open(url(guarded, role), namespace="shop") as runtime:
        (erased,) = (await runtime.delete(second.run_id)).erased
        assert erased.before


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
        "$JS.API.STREAM.LIST", "_INBOX.office.caller.x.1",
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


@pytest.mark.parametrize(("role", "namespace"), [("caller", "shop"), ("reader", "office")])
async def test_a_connection_with_the_wrong_role_or_namespace_is_told_so(
    guarded: EphemeralServer, role: str, namespace: str
) -> None:
    with pytest.raises(ConfigError, match=rf"_INBOX\.{namespace}\.{role}.*FOLDLOG_ROLE"):
        async with JetStreamLog.open(url(guarded, "reader"), namespace=namespace, role=role):
            pass
