"""`foldlog runs`: look at runs, and say something to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .exits import NO, OK, PAUSED
from .settings import Settings, settings_of

if TYPE_CHECKING:
    from ...projections.family_totals import FamilyTotals
    from ...projections.pending import Pending, PendingCall
    from ...projections.run_list import RunRow
    from ...projections.run_state import RunState
    from .terminal import Part, Screen
    from .timeline import Row
    from .watching import Watch

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Runs: list, show, stream, and steer them."
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.")]


@app.command("list")
def list_(
    context: typer.Context,
    *,
    status: Annotated[
        Literal["queued", "running", "paused", "completed", "error", "cancelled"] | None,
        typer.Option(help="Only runs that stand so."),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this conversation.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    json: Json = False,
) -> int:
    """List the runs, newest first."""
    from .loops import run_async

    return run_async(_list(settings_of(context), status, session, limit, json=json))


@app.command()
def show(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show what a run did: its steps, tool calls, attempts and how long each took."""
    from .loops import run_async

    return run_async(_show(settings_of(context), run, json=json))


@app.command()
def stream(
    context: typer.Context,
    run: RunId,
    *,
    detailed: Annotated[bool, typer.Option("--detailed", help="Steps, usage and reasoning too.")] = False,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Only what follows this event.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop waiting (exit 4).")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Exit 5 when the run is paused.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout: one event a line.")] = False,
) -> int:
    """Show a run from its beginning until it is over, whoever drives it. Ctrl-C leaves it alone."""
    from .loops import run_async
    from .watching import Watch

    how = Watch(json=json, detailed=detailed, after=after, timeout_s=timeout, wait=not no_wait)
    return run_async(_stream(settings_of(context), run, how))


@app.command()
def drive(
    context: typer.Context,
    run: RunId,
    path: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:REGISTRY]", help="Drive it in this process, with what is there."),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout: one event a line.")] = False,
) -> int:
    """Get a run driven that nobody drives: in this process, or (without a registry) by a worker."""
    from .loops import run_async
    from .watching import Watch

    how = Watch(json=json, drives=path)
    return run_async(_drive(settings_of(context), run, path, how))


@app.command()
def cancel(
    context: typer.Context,
    run: RunId,
    *,
    reason: Annotated[str, typer.Option(help="Why; the run's status says it.")] = "",
    by: Annotated[str, typer.Option(help="Who.")] = "",
    json: Json = False,
) -> int:
    """Cancel a run and all runs below it. Exit 1 if it had ended otherwise."""
    from .loops import run_async

    return run_async(_cancel(settings_of(context), run, reason, by, json=json))


@app.command()
def inject(
    context: typer.Context,
    run: RunId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to tell it.")],
) -> int:
    """Queue a message for a run's next step."""
    from .loops import run_async

    return run_async(_tell(settings_of(context), run, "inject", "queued for the next step", message))


@app.command()
def pause(context: typer.Context, run: RunId, *, by: Annotated[str, typer.Option(help="Who.")] = "") -> int:
    """Pause a run at its next step."""
    from .loops import run_async

    return run_async(_tell(settings_of(context), run, "pause", "pauses at its next step", by=by))


@app.command()
def resume(context: typer.Context, run: RunId) -> int:
    """Let a run go on that was paused by hand. Exit 5: it still waits for somebody's answer."""
    from .loops import run_async

    return run_async(_resume(settings_of(context), run))


@app.command()
def history(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show the messages of a run, as its next model call would be told them."""
    from .loops import run_async

    return run_async(_history(settings_of(context), run, json=json))


@app.command()
def pending(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show what a run waits for and what is going on in it. Exit 1 when nothing is."""
    from .loops import run_async

    return run_async(_pending(settings_of(context), run, json=json))


@app.command("refresh-tools")
def refresh_tools(
    context: typer.Context,
    run: RunId,
    *,
    mcp_servers: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='A JSON file of further servers: {"mcpServers": {...}}.'),
    ] = None,
    by: Annotated[str, typer.Option(help="Who.")] = "",
) -> int:
    """Have a run's tools listed anew before its next step."""
    from .loops import run_async

    return run_async(_refresh(settings_of(context), run, mcp_servers, by))


# --- list -------------------------------------------------------------------------------------------------------------


async def _list(
    settings: Settings, status: str | None, session: str | None, limit: int, *, json: bool
) -> int:

    from .opening import opened
    from .terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = (await runtime.list_runs(status=status, session=session))[:limit]
        totals = await (await runtime.index()).totals(found)
    if json:
        screen.json([_row_document(row, totals[row.run_id]) for row in found])
        return OK
    if not found:
        screen.say("no runs")
        return OK
    screen.table(_COLUMNS, [_cells(row, totals[row.run_id]) for row in found])
    return OK


_COLUMNS = (
    "run",
    "agent",
    "status",
    "executor",
    "submitted",
    "took",
    "runs",
    "steps",
    "tokens",
    "cost",
    "session",
    "told",
)
_STYLES = {"completed": "green", "error": "red", "cancelled": "red", "paused": "yellow", "running": "cyan"}


def _row_document(row: RunRow, family: FamilyTotals) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(row), "family": msgspec.to_builtins(family)}


def _cells(row: RunRow, family: FamilyTotals) -> list[Part]:
    """What a run took is told with all below it: a swarm or a loop does nothing in its own name."""
    from .escaping import one_line
    from .times import moment

    told = f"{row.error_type}: {row.error}" if row.error_type else row.reason
    return [
        (row.run_id, "bold"),
        row.agent_path,
        (row.status, _STYLES.get(row.status, "")),
        row.executor,
        moment(row.submitted_at),
        f"{max(0.0, row.updated_at - row.submitted_at):.1f} s",
        str(family.runs),
        str(family.steps),
        f"{family.usage.total_tokens:,}",
        _cost(family.cost_usd),
        row.session or "",
        one_line(told),
    ]


def _cost(cost_usd: str | None) -> str:
    return "?" if cost_usd is None else f"${cost_usd}"


# --- show -------------------------------------------------------------------------------------------------------------


async def _show(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from ...projections.family_totals import family_totals
    from ...projections.projection import fold
    from ...projections.run_list import RunList
    from ...replay import load_trace
    from .opening import opened
    from .terminal import Screen
    from .timeline import below, timeline

    screen = Screen(settings)
    async with opened(settings) as runtime:
        state = await runtime.get_run(run_id).state()
        trace = await load_trace(runtime.log, run_id)
    family = family_totals(fold(RunList(), trace.commits).values())[run_id]
    rows = timeline(below(run_id, trace.events))
    if json:
        screen.json({**_document(state, rows), "family": msgspec.to_builtins(family)})
        return OK
    _tell_head(screen, state, family)
    many = len({row.agent_path for row in rows}) > 1
    screen.table(
        ("at", "rev", *(("agent",) if many else ()), "what", "took", "detail"),
        [_row_cells(row, many=many) for row in rows],
    )
    return OK


def _document(state: RunState, rows: list[Row]) -> dict[str, Any]:
    import dataclasses

    import msgspec

    submitted, error = state.submitted, state.error
    return {
        "run_id": state.run,
        "root_id": state.root,
        "agent": state.agent,
        "agent_path": state.path,
        "status": state.status,
        "reason": _reason(state),
        "executor": submitted.executor if submitted is not None else "",
        "session": submitted.session if submitted is not None else None,
        "metadata": submitted.metadata if submitted is not None else {},
        "fork": msgspec.to_builtins(submitted.fork) if submitted is not None else None,
        "input": submitted.input if submitted is not None else "",
        "output": state.output,
        "error": {"type": error.error_type, "message": error.error} if error is not None else None,
        "left": list(state.left),
        "submitted_at": state.submitted_at,
        "updated_at": state.updated_at,
        "revision": state.head.rev,
        "epoch": state.epoch,
        "owner": state.owner,
        "steps": state.steps_completed,
        "usage": msgspec.to_builtins(state.usage),
        "pending_approvals": [msgspec.to_builtins(a.request) for a in state.pending_approvals],
        "timeline": [
            {name: value for name, value in dataclasses.asdict(row).items() if name != "style"}
            for row in rows
        ],
    }


def _reason(state: RunState) -> str:
    """Why the run is over, paused, or driven by nobody."""
    if state.terminal is not None:
        return state.terminal.reason
    return next(iter(state.left), state.paused or "")


def _tell_head(screen: Screen, state: RunState, family: FamilyTotals) -> None:
    from .escaping import clean, one_line
    from .views import summary

    submitted = state.submitted
    screen.tell(*summary(state))
    if submitted is not None:
        screen.tell(("agent   ", "dim"), f"{state.path} on the {submitted.executor} executor")
        screen.tell(("input   ", "dim"), one_line(submitted.input))
    if submitted is not None and submitted.fork is not None:
        origin = submitted.fork
        told = (
            f"{origin.run} at revision {origin.revision}, tools: {origin.tools}; shared up to {origin.shared}"
        )
        screen.tell(("fork of ", "dim"), told)
    if family.runs > 1:
        took = f"{family.runs} runs, {family.steps} steps, {family.usage.total_tokens:,} tokens"
        screen.tell(("family  ", "dim"), f"{took}, {_cost(family.cost_usd)}: the run with all below it")
    if state.owner is not None:
        screen.tell(("driver  ", "dim"), f"{state.owner} (epoch {state.epoch})")
    for reason in state.left:
        screen.tell(("left    ", "dim"), (f"to another worker: {one_line(reason)}", "yellow"))
    if state.output:
        screen.tell(("output  ", "dim"), clean(state.output))
    if state.error is not None:
        screen.tell(("error   ", "dim"), (f"{state.error.error_type}: {one_line(state.error.error)}", "red"))
    screen.tell("")


def _row_cells(row: Row, *, many: bool) -> list[Part]:
    took = "" if row.took_s is None else f"{row.took_s:.3f} s"
    agent = [(row.agent_path, "dim")] if many else []
    revision = "" if row.revision is None else str(row.revision)
    return [(f"{row.at_s:.3f} s", "dim"), (revision, "dim"), *agent, (row.what, row.style), took, row.detail]


async def _resume(settings: Settings, run_id: str) -> int:
    from .opening import opened
    from .terminal import Screen
    from .views import answers_to

    screen = Screen(settings)
    async with opened(settings) as runtime:
        run = runtime.get_run(run_id)
        await run.resume()
        found = await run.pending()
    if found.paused is None:
        screen.tell(f"run {run_id}: goes on")
        return OK
    screen.tell(f"run {run_id}: still paused ({found.paused}); it goes on with")
    for approval in found.approvals:
        for answer in answers_to(settings, approval.approval_id, approval.kind, approval.arguments):
            screen.tell(f"    {answer}")
    return PAUSED


# --- history, pending, refresh ---------------------------------------------------------------------------------------


async def _history(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from .conversation import tell_messages
    from .opening import opened
    from .terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        messages = await runtime.get_run(run_id).history()
    if json:
        screen.json({"run_id": run_id, "messages": msgspec.to_builtins(messages)})
    else:
        tell_messages(screen, messages)
    return OK


async def _pending(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from .opening import opened
    from .terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await runtime.get_run(run_id).pending()
    rows = _pending_rows(found)
    if json:
        screen.json({"run_id": run_id, **msgspec.to_builtins(found)})
    else:
        screen.tell(f"run {run_id} is {found.status}, in step {found.step}")
        if rows:
            screen.table(("what", "which", "detail"), rows)
    return OK if rows else NO


def _pending_rows(found: Pending) -> list[list[Part]]:
    from .escaping import one_line
    from .times import moment

    def again(at: float | None) -> str:
        return "" if at is None else f", again at {moment(at)}"

    rows: list[list[Part]] = []
    if (slot := found.slot) is not None:
        held = f"{slot.place}. in line; driven at once: {len(slot.holders)} of {slot.runs_max}"
        rows.append(["slot", one_line(slot.agent), held])
    if found.behind:
        rows.append(["turn", found.behind[0], f"{len(found.behind) + 1}. of its session"])
    if found.unclaimed:
        rows.append(["worker", "", "nobody drives it"])
    rows += [["worker", "left to others", one_line(reason)] for reason in found.left]
    if found.paused is not None:
        rows.append(["pause", found.paused, ""])
    if found.pause_requested:
        rows.append(["pause", "asked for", "before the next step"])
    if found.model is not None:
        asked = found.model
        detail = f"attempt {asked.attempt}{again(asked.retry_at)}"
        rows.append(
            ["model call", one_line(asked.model), detail + (f", {asked.phase}" if asked.phase else "")]
        )
    rows += [
        [
            "tool call",
            one_line(call.tool_name),
            f"attempt {call.attempt}{again(call.retry_at)}{_in_line(call)}",
        ]
        for call in found.calls
    ]
    rows += [["approval", a.approval_id, one_line(a.tool_name or a.kind)] for a in found.approvals]
    rows += [["child run", child, ""] for child in found.children]
    rows += [["message", "", one_line(message)] for message in found.messages]
    if found.refresh is not None:
        rows.append(["tools", "listed anew", "before the next step"])
    return rows


def _in_line(call: PendingCall) -> str:
    return "" if call.slot is None else f", waits for the slot {call.slot!r}"


async def _refresh(settings: Settings, run_id: str, path: str | None, by: str) -> int:
    from .mcp_files import read_servers
    from .opening import opened
    from .terminal import Screen

    servers = read_servers(path) if path is not None else {}
    async with opened(settings) as runtime:
        await runtime.get_run(run_id).refresh_tools(servers, by=by)
    Screen(settings).tell(f"run {run_id}: its tools are listed anew before its next step")
    return OK


# --- stream, drive ----------------------------------------------------------------------------------------------------


async def _stream(settings: Settings, run_id: str, how: Watch) -> int:
    from .loops import interruption
    from .opening import opened
    from .terminal import Screen
    from .watching import Watcher

    async with opened(settings) as runtime:
        with interruption() as interrupted:
            run = runtime.get_run(run_id)
            return await Watcher(runtime, run, Screen(settings), settings, how).watch(interrupted)


async def _drive(settings: Settings, run_id: str, path: str | None, how: Watch) -> int:
    from .loading import load_registry
    from .loops import interruption
    from .opening import opened
    from .terminal import Screen
    from .watching import Watcher

    registry, screen = load_registry(path) if path is not None else None, Screen(settings)
    async with opened(settings, registry) as runtime:
        run = runtime.get_run(run_id)
        state = await run.state()
        if state.over:
            screen.say(f"run {run_id} is over ({state.status})")
            return NO
        await runtime.drive(run_id, executor="durable" if registry is None else "local")
        if registry is None:
            screen.say(f"a worker that serves {state.agent} drives run {run_id} on")
            return OK
        with interruption() as interrupted:
            return await Watcher(runtime, run, screen, settings, how).watch(interrupted)


# --- saying something -------------------------------------------------------------------------------------------------


async def _cancel(settings: Settings, run_id: str, reason: str, by: str, *, json: bool) -> int:
    from .opening import opened
    from .terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await runtime.get_run(run_id).cancel(reason, by=by)
    if json:
        screen.json({"run_id": run_id, "found": found})
    else:
        screen.tell(f"run {run_id}: {found.replace('_', ' ')}")
    return OK if found.endswith("cancelled") else NO


async def _tell(settings: Settings, run_id: str, word: str, told: str, *values: str, **named: str) -> int:
    from .opening import opened
    from .terminal import Screen

    async with opened(settings) as runtime:
        await getattr(runtime.get_run(run_id), word)(*values, **named)
    Screen(settings).tell(f"run {run_id}: {told}")
    return OK
