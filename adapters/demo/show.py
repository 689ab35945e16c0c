"""The demo: one agent on two executors, one worker killed, both traces compared.

    1  a JetStream server in a temporary directory, a model server, two workers
    2  the agent runs in this process
    3  the agent runs on the workers; the one that claimed it is killed during the tool call; the other takes over
    4  both traces are shown side by side, and their canonical forms compared

The demo reads in the log which worker claimed the run, and when the tool call is in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import version

from ...eventlog.commits import Chain, as_read
from ...eventlog.embedded import EphemeralServer
from ...eventlog.events import (
    Claimed,
    Event,
    McpProgress,
    Status,
    Step,
    Text,
    ToolCall,
    ToolResult,
    is_terminal,
)
from ...replay import load_trace
from ...runtime import RunHandle, Runtime
from ..cli.exits import INTERRUPTED, NO, OK
from ..cli.loops import interruption
from ..cli.output.records import show_logs
from ..cli.output.terminal import Part, Screen
from ..cli.settings import Settings
from .processes import DemoFailed, Process, running
from .settings import MODEL_URL, SEARCH_S
from .traces import Line, Proof, Takeover

QUESTION = "Which book has the answer?"
NAMESPACE = "demo"
WORKERS = ("worker-1", "worker-2")
SEARCH_TIME_S = "1.2"
WHOLE_DEMO_S = 120.0
_HERE = __package__ or ""
_CLI = f"{_HERE.rpartition('.')[0]}.cli"


async def show(settings: Settings, *, json: bool) -> int:
    """Run the demo and return the exit code: 0 if the traces are equal. Raises `DemoFailed`."""
    show_logs()
    screen = Screen(settings)
    with interruption() as interrupted:
        acting = asyncio.create_task(_act(Stage(screen)))
        stopping = asyncio.create_task(interrupted.wait())
        try:
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not acting.done():
                screen.say(("stopping all processes", "yellow"))
                return INTERRUPTED
            proof = acting.result()
        finally:
            for task in (acting, stopping):
                task.cancel()
            await asyncio.gather(acting, stopping, return_exceptions=True)
    return conclude(screen, proof, json=json)


def conclude(screen: Screen, proof: Proof, *, json: bool) -> int:
    """Print the proof as JSON or as a table; return the exit code."""
    if json:
        screen.json(proof.document())
    else:
        _tell(screen, proof)
    return OK if proof.comparison.equal else NO


async def _act(stage: Stage) -> Proof:
    try:
        async with asyncio.timeout(WHOLE_DEMO_S), _parts(stage) as (runtime, workers):
            local = await _run_here(stage, runtime)
            durable, takeover = await _run_on_workers(stage, runtime, workers)
            stage.says(
                "read both logs back",
                "and put them into canonical form, which orders concurrent events",
            )
            return Proof(
                await load_trace(runtime.log, local.run_id),
                await load_trace(runtime.log, durable.run_id),
                takeover,
            )
    except TimeoutError:
        raise DemoFailed(f"the demo did not end within {WHOLE_DEMO_S:g} s") from None


class Stage:
    """Prints what happens, when, and why it matters."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._begun = screen, time.monotonic()

    def chapter(self, title: str, why: str) -> None:
        """Print the title of a new part."""
        self._screen.say("")
        self._screen.say((title, "bold"))
        self._screen.say((f"  {why}", "dim"))

    def says(self, what: str, detail: str = "", style: str = "") -> None:
        """Print one thing that happened."""
        at = f"  {time.monotonic() - self._begun:5.2f} s  "
        self._screen.say((at, "dim"), (f"{what}  ", style), (detail, "dim"))


# --- the parts --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _parts(stage: Stage) -> AsyncIterator[tuple[Runtime, dict[str, Process]]]:
    """Start all processes, and end them in order when the context is left."""
    stage.chapter(
        "Real parts, all of them temporary",
        "nothing is mocked: everything goes over sockets and pipes, and to disk",
    )
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(EphemeralServer())
        stage.says("JetStream", f"nats-server at {server.url}, fsync before every acknowledgement")
        model = await stack.enter_async_context(
            running("the model server", f"{_HERE}.model_server", "--port", "0", environ={})
        )
        model_url = await model.line_with("http")
        stage.says(
            "model", f"an HTTP server at {model_url}, called through the openai SDK {version('openai')}"
        )
        environ = {MODEL_URL: model_url, SEARCH_S: SEARCH_TIME_S, "NATS_CREDS": ""}
        workers = {
            name: await stack.enter_async_context(_worker(name, server.url, environ)) for name in WORKERS
        }
        stack.enter_context(_environment(environ))
        from .app import registry

        runtime = await stack.enter_async_context(
            Runtime.open(server.url, namespace=NAMESPACE, registry=registry)
        )
        yield runtime, workers


def _worker(
    name: str, url: str, environ: Mapping[str, str]
) -> contextlib.AbstractAsyncContextManager[Process]:
    options = ("--server", url, "--namespace", NAMESPACE, "--name", name, "--grace-s", "0")
    return running(name, _CLI, "worker", f"{_HERE}.app:registry", *options, environ=environ)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables in this process, too, while open."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- the acts ---------------------------------------------------------------------------------------------------------


async def _run_here(stage: Stage, runtime: Runtime) -> RunHandle[str]:
    stage.chapter(
        "The agent runs in this process",
        "the local executor: every event is in the log before anything acts on it",
    )
    run = await runtime.start(runtime.registry.agent("librarian"), QUESTION, executor="local")
    async for event in _stored(runtime, run):
        _comment(stage, event)
    await run.result()
    return run


async def _run_on_workers(
    stage: Stage, runtime: Runtime, workers: Mapping[str, Process]
) -> tuple[RunHandle[str], Takeover]:
    stage.chapter(
        "The same agent runs on two workers, and one of them dies",
        "the durable executor: a run belongs to the log, not to a process",
    )
    for name, worker in workers.items():
        stage.says(name, (await worker.line_with("serves")).partition(" serves ")[2])
    run = await runtime.start(runtime.registry.agent("librarian"), QUESTION, executor="durable")
    owner, killed, killed_at = "", "", 0.0
    takeover: Takeover | None = None
    async for event in _stored(runtime, run):
        if isinstance(event, Claimed):
            owner = event.worker
            if killed and takeover is None:
                takeover = _took_over(stage, event, killed, (time.monotonic() - killed_at) * 1000)
            else:
                stage.says(f"{owner} claimed the run", f"epoch {event.epoch}", "cyan")
            continue
        _comment(stage, event)
        if isinstance(event, McpProgress) and not killed:
            killed, killed_at = owner, time.monotonic()
            await workers[owner].kill()
            stage.says(
                f"SIGKILL to {owner}", "in the middle of the tool call: no clean-up, no message", "bold red"
            )
    await run.result()
    if takeover is None:
        raise DemoFailed("the run ended without a takeover: the tool call ended before the worker was killed")
    return run, takeover


def _took_over(stage: Stage, claim: Claimed, killed: str, after_ms: float) -> Takeover:
    stage.says(
        f"{claim.worker} took the run over",
        f"epoch {claim.epoch}, {after_ms:.0f} ms after the kill; the search is declared pure, so it runs again",
        "bold green",
    )
    return Takeover(
        killed=killed,
        by=claim.worker,
        epoch=claim.epoch,
        revision=claim.revision or 0,
        after_ms=round(after_ms, 1),
    )


async def _stored(runtime: Runtime, run: RunHandle[str]) -> AsyncIterator[Event]:
    """Yield the run's stored events, engine events included, as they are stored, until the run ends."""
    chain, subject = Chain(), await runtime.locate(run.run_id)
    async for stored in runtime.log.events.follow(subject):
        for event in as_read(chain.verify(stored)):
            yield event
            if is_terminal(event):
                return


def _comment(stage: Stage, event: Event) -> None:
    match event:
        case Step(status="started", step=1):
            stage.says("the model is called")
        case ToolCall():
            stage.says(f"the model calls {event.tool_name}", "over MCP, in a process of its own")
        case McpProgress():
            stage.says(f"progress {event.progress:g}/{event.total:g}", event.message)
        case ToolResult():
            stage.says("the tool returns", str(event.result))
        case Text():
            stage.says("the model answers", event.text)
        case Status() if is_terminal(event):
            stage.says(event.status, style="green" if event.status == "completed" else "red")
        case _:
            pass


# --- the proof --------------------------------------------------------------------------------------------------------


def _tell(screen: Screen, proof: Proof) -> None:
    """Print the table and the verdict on stdout."""
    screen.say("")
    screen.table(
        ("", "local executor", "durable executor", "driven by"), [_cells(line) for line in proof.lines()]
    )
    takeover = proof.takeover
    screen.tell("")
    screen.tell(
        f"takeover: {takeover.killed} was killed in the middle of the tool call, "
        f"{takeover.by} took over after {takeover.after_ms:.0f} ms (epoch {takeover.epoch})"
    )
    screen.tell((proof.verdict, "bold green" if proof.comparison.equal else "bold red"))
    if proof.difference:
        screen.tell((proof.difference, "red"))


def _cells(line: Line) -> list[Part]:
    if line.takeover is not None:
        return [
            "",
            "",
            (f"✂ {line.takeover.killed} killed", "bold yellow"),
            (f"→ {line.takeover.by}", "bold yellow"),
        ]
    style = "" if line.equal else "red"
    sides: list[Part] = [
        (side.label if side is not None else "—", style) for side in (line.local, line.durable)
    ]
    return [(str(line.number), "dim"), *sides, (line.driver, "dim")]
