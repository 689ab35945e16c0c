"""`foldlog runs`: list, show and steer runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import bulk as bulk_options
from ..actors import operator, user_name
from ..exits import NO, OK
from ..options import Detailed, Files, Json, JsonLines
from ..settings import Settings, settings_of
from . import listing
from .prompts import prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ....eventlog.events import Actor
    from ....projections.family_totals import FamilyTotals
    from ....projections.operating.why import Why
    from ....projections.pending import Pending, PendingCall
    from ....projections.run_state import RunState
    from ....runtime import Runtime
    from ..output.tables import Cell
    from ..output.terminal import Screen
    from ..output.timeline import Row
    from ..output.watching import Watch

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, stream and steer runs.")
SomeRun = Annotated[str | None, typer.Argument(metavar="RUN", help="A run; or select runs by options.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the selected runs.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Name to record; default: your user name.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a unique prefix or suffix of it.")]


@app.command("list")
@listing.filtered
def list_(
    context: typer.Context,
    *,
    filters: listing.Filters,
    children: Annotated[
        bool, typer.Option("--children", help="Include child runs, each below its root.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of families, newest first.")] = 50,
    json: Json = False,
) -> int:
    """List runs, newest first. Each family is one line, that of its root, unless --children is given.

    Exit 1 if the log of a run is damaged, which is named whatever the options select.
    """
    from ..loops import run_async

    return run_async(
        _list(settings_of(context), filters, limit, children=children or filters.root is not None, json=json)
    )


@app.command()
def show(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show what a run did. Lists its steps, tool calls and attempts, and how long each took."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), run, json=json))


@app.command()
def stream(
    context: typer.Context,
    run: RunId,
    *,
    detailed: Detailed = False,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Only events after this cursor.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop waiting (exit 4).")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Exit 5 when the run pauses.")] = False,
    json: JsonLines = False,
) -> int:
    """Show a run from its beginning to its end. Ctrl-C does not affect the run."""
    from ..loops import run_async
    from ..output.watching import Watch

    how = Watch(json=json, detailed=detailed, after=after, timeout_s=timeout, wait=not no_wait)
    return run_async(_stream(settings_of(context), run, how))


@app.command()
def drive(
    context: typer.Context,
    run: RunId,
    path: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:REGISTRY", help="Drive it in this process, with this registry."),
    ] = None,
    *,
    executor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Executor; default: local with a registry, else durable."),
    ] = None,
    json: JsonLines = False,
) -> int:
    """Drive a run that has no driver. In this process or, without a registry, on a worker."""
    from ..loading import check_executor
    from ..loops import run_async

    check_executor(executor)
    return run_async(_drive(settings_of(context), run, path, executor, json=json))


@app.command()
@listing.filtered
@bulk_options.in_bulk
def cancel(
    context: typer.Context,
    run: SomeRun = None,
    *,
    filters: listing.Filters,
    bulk: bulk_options.Bulk,
    reason: Annotated[str, typer.Option(help="Reason, stored with the run's status.")] = "",
    by: By = "",
) -> int:
    """Cancel a run, or the open runs that options select.

    All runs below them are cancelled, too. Exit 1 if one had already ended otherwise, or no run is selected.
    """
    from ..loops import run_async
    from .steering import cancel_runs

    return run_async(cancel_runs(settings_of(context), run, filters, bulk, reason, by))


@app.command()
@listing.filtered
@bulk_options.in_bulk
def retry(
    context: typer.Context,
    run: SomeRun = None,
    path: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:REGISTRY", help="Drive it in this process, with this registry."),
    ] = None,
    *,
    filters: listing.Filters,
    bulk: bulk_options.Bulk,
    from_failure: Annotated[
        bool,
        typer.Option("--from-failure", help="Fork the run before what failed, with its recorded results."),
    ] = False,
    executor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Executor; default: local with a registry, else durable."),
    ] = None,
) -> int:
    """Retry a run that has ended, or the failed and cancelled runs that options select.

    A retry is a new run of the same job, with the configuration and input of the first. Selected runs are retried once
    each, however often the command is repeated. Exit 1 if one could not be retried, or no run is selected.
    """
    from ..loading import check_executor
    from ..loops import run_async
    from .steering import retry_runs

    check_executor(executor)
    how = (path, executor)
    return run_async(retry_runs(settings_of(context), run, filters, bulk, how, from_failure=from_failure))


@app.command()
def inject(
    context: typer.Context,
    run: RunId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Text of the message.")],
    *,
    file: Files = None,
    by: By = "",
) -> int:
    """Queue a message for a run's next step."""
    from ..files import with_files
    from ..loops import run_async

    content = with_files(message, file or ())
    return run_async(
        _tell(settings_of(context), run, "inject", "queued for the next step", content, by=operator(by))
    )


@app.command()
def signal(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run; or answer a callback by --token.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the signal.")] = None,
    *,
    data: Annotated[str | None, typer.Option(metavar="JSON", help="Data of the signal.")] = None,
    key: Annotated[str, typer.Option(metavar="KEY", help="Store the signal once for this key.")] = "",
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Answer a callback by its token; - reads it from stdin."),
    ] = None,
    by: By = "",
) -> int:
    """Send a signal to a run, for the tool call that waits for it or will; or answer a callback.

    Exit 1 if the run is over, or the signal is refused.
    """
    from ..json_options import json_option
    from ..loops import run_async

    given = json_option("--data", data, an_object=False)
    if token is not None:
        if run is not None or key:
            raise typer.BadParameter("--token says where the answer goes: give no RUN, NAME or --key")
        if token == "-":  # noqa: S105 - standard input
            import sys

            token = sys.stdin.readline()
        return run_async(_answer_callback(settings_of(context), token, given, by))
    if run is None or name is None:
        raise typer.BadParameter("give a RUN and the NAME of the signal, or --token")
    return run_async(_signal(settings_of(context), run, name, given, key, by))


async def _answer_callback(settings: Settings, token: str, data: object, by: str) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        sent = await runtime.answer_callback(token, data, by=by or user_name())
    Screen(settings).tell(
        "the callback is answered" if sent.is_new else "the callback is answered, as before"
    )
    return OK


async def _signal(settings: Settings, run_id: str, name: str, data: object, key: str, by: str) -> int:
    from ..opening import opened, run_named
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        sent = await runtime.get_run(run_id).signal(name, data, key=key, by=by or user_name())
    known = "" if sent.is_new else ", as before"
    Screen(settings).tell(f"run {run_id}: signal {sent.number} is stored{known}")
    return OK


@app.command()
def pause(context: typer.Context, run: RunId, *, by: By = "") -> int:
    """Pause a run at its next step."""
    from ..loops import run_async

    return run_async(_tell(settings_of(context), run, "pause", "pauses at its next step", by=operator(by)))


@app.command()
@listing.filtered
@bulk_options.in_bulk
def resume(
    context: typer.Context,
    run: SomeRun = None,
    *,
    filters: listing.Filters,
    bulk: bulk_options.Bulk,
    by: By = "",
) -> int:
    """Resume a paused run, or those that options select.

    Exit 5 if one still waits for an answer, 1 if one failed, or no run is selected.
    """
    from ..loops import run_async
    from .steering import resume_runs

    return run_async(resume_runs(settings_of(context), run, filters, bulk, by))


@app.command()
@listing.filtered
@bulk_options.in_bulk
def delete(  # noqa: PLR0913 - its options
    context: typer.Context,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Root runs; or select runs by options.")
    ] = None,
    *,
    filters: listing.Filters,
    bulk: bulk_options.Bulk,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs that ended before; written like --since.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Store a copy there first: file:///DIR, s3://BUCKET/PREFIX, gs://, az://."
        ),
    ] = None,
    with_copies: Annotated[
        bool, typer.Option("--with-copies", help="Erase forks and runs that remember them, too.")
    ] = False,
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the receipt into this new file, as JSON.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, stored with the tombstone.")] = "",
    by: By = "",
) -> int:
    """Erase runs that are over, with all runs below them, for good.

    A tombstone stays of each. Exit 1 if a selected run is open, or no run is selected.
    """
    from ..loops import run_async
    from .erasing import Erasing, delete_runs

    how = Erasing(before, archive, with_copies, receipt, by, reason)
    return run_async(delete_runs(settings_of(context), runs or [], filters, bulk, how))


@app.command()
def history(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show the messages that a run's next model call would get."""
    from ..loops import run_async

    return run_async(_history(settings_of(context), run, json=json))


app.command()(prompt)


@app.command()
def files(
    context: typer.Context,
    run: RunId,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write the files into this directory."),
    ] = None,
    json: Json = False,
) -> int:
    """List the files of a run: those of its input, of its tools and of its model."""
    from ..loops import run_async

    return run_async(_files(settings_of(context), run, output, json=json))


@app.command()
def pending(context: typer.Context, run: RunId, *, json: Json = False) -> int:
    """Show what a run waits for, and its calls in progress. Exit 1 if there are none."""
    from ..loops import run_async

    return run_async(_pending(settings_of(context), run, json=json))


@app.command("refresh-tools")
def refresh_tools(
    context: typer.Context,
    run: RunId,
    *,
    mcp_servers: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='JSON file of servers to add: {"mcpServers": {...}}.'),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="Tool to remove for the rest of the run. Repeatable."),
    ] = None,
    by: By = "",
) -> int:
    """List a run's tools again before its next step."""
    from ..loops import run_async

    return run_async(_refresh(settings_of(context), run, mcp_servers, remove or [], by))


# --- list -------------------------------------------------------------------------------------------------------------


async def _list(
    settings: Settings, filters: listing.Filters, limit: int, *, children: bool, json: bool
) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        index = await runtime.index()
        meant = await listing.listed(index, await filters.query(runtime), limit, children=children)
        found = await listing.with_whys(runtime, meant)
        if json:
            screen.json([listing.document(line) for line in found])
        elif found:
            await listing.tell_runs(screen, index, found)
        else:
            screen.say("no runs")
        return await listing.tell_damaged(screen, index)


# --- show -------------------------------------------------------------------------------------------------------------


async def _show(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from ....projections.family_totals import family_totals
    from ....projections.projection import fold
    from ....projections.run_list import RunList
    from ....projections.timeline.fold import below
    from ....replay import load_trace
    from ..opening import opened, run_named
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.timeline import timeline

    screen = Screen(settings)
    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        namespace, _subject = await runtime.place(run_id)
        state = await runtime.get_run(run_id).state()
        why = None if state.over else (await runtime.get_run(run_id).pending()).why
        trace = await load_trace(namespace.log, run_id)
        rows = timeline(below(run_id, trace.events))
        children = {row.child for row in rows if row.child} if screen.live else set()
        ends = await (await runtime.index()).ends_of_ids(children) if children else {}
    family = family_totals(fold(RunList(), trace.commits).values())[run_id]
    if json:
        told = {"family": msgspec.to_builtins(family), "why": msgspec.to_builtins(why)}
        screen.json({**_document(state, rows), **told})
        return OK
    _tell_head(screen, state, family, _why_fields(settings, why))
    many = len({row.agent_path for row in rows}) > 1
    screen.table(
        (
            Column("at"),
            Column("rev"),
            *([Column("agent", cut=True)] if many else []),
            Column("what", cut=True, again=True),
            Column("took"),
            Column("detail", below=True),
        ),
        [_row_cells(row, ends, many=many) for row in rows],
    )
    return OK


def _document(state: RunState, rows: list[Row]) -> dict[str, Any]:
    import dataclasses

    import msgspec

    from ....eventlog.events import PROGRAM

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
        "priority": state.priority,
        "user": submitted.user if submitted is not None else None,
        "metadata": submitted.metadata if submitted is not None else {},
        "trigger": msgspec.to_builtins(submitted.trigger or PROGRAM) if submitted is not None else None,
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
            {
                name: value
                for name, value in dataclasses.asdict(row).items()
                if name not in {"child", "style", "value"}
            }
            for row in rows
        ],
    }


def _reason(state: RunState) -> str:
    """Return why the run has ended, is paused, or has no driver."""
    if state.terminal is not None:
        return state.terminal.reason
    return next(iter(state.left), state.paused or "")


def _why_fields(settings: Settings, why: Why | None) -> Iterator[tuple[str, str, str]]:
    """Yield why the run waits, and the command for what can be done about it."""
    from ..output.escaping import one_line

    if why is not None:
        yield "why", one_line(why.sentence), "yellow"
    if why is not None and why.action is not None and why.action.command:
        yield "do", one_line(settings.command(*why.action.command, names=why.action.names)), ""


def _tell_head(
    screen: Screen, state: RunState, family: FamilyTotals, why: Iterable[tuple[str, str, str]]
) -> None:
    from ..output.views import summary

    screen.prose(*summary(state))
    for name, value, style in (*why, *_head(state, family)):
        screen.field(name, value, _LABEL, style=style)
    screen.tell("")


_LABEL = 7
"""Width of the field names."""


def _head(state: RunState, family: FamilyTotals) -> Iterator[tuple[str, str, str]]:
    """Yield the fields that describe a run as a whole: name, text, style."""
    from ....eventlog.events import PROGRAM
    from ..output.escaping import clean, one_line
    from ..output.times import trigger_words

    submitted = state.submitted
    if submitted is not None:
        priority = f", {state.priority}" if state.priority != "normal" else ""
        yield "agent", f"{state.path} on the {submitted.executor} executor{priority}", ""
        yield "input", one_line(submitted.input), ""
    if submitted is not None and (submitted.trigger is not None or submitted.parent is None):
        yield "trigger", one_line(trigger_words(submitted.trigger or PROGRAM)), ""
    if submitted is not None and submitted.fork is not None:
        origin = submitted.fork
        told = (
            f"{origin.run} at revision {origin.revision}, tools: {origin.tools}; shared up to {origin.shared}"
        )
        yield "fork of", told, ""
    if family.runs > 1:
        took = f"{family.runs} runs, {family.steps} steps, {family.usage.total_tokens:,} tokens"
        yield "family", f"{took}, {listing.cost(family.cost_usd)}: this run and all runs below it", ""
    if state.owner is not None:
        yield "driver", f"{state.owner} (epoch {state.epoch})", ""
    for reason in state.left:
        yield "left", f"to another worker: {one_line(reason)}", "yellow"
    if state.output:
        yield "output", clean(state.output), ""
    if state.error is not None:
        yield "error", f"{state.error.error_type}: {one_line(state.error.error)}", "red"


def _row_cells(row: Row, ends: Mapping[str, str], *, many: bool) -> list[Cell]:
    from ..output.escaping import exact
    from ..output.tables import Branch, Exact, Id

    took = "" if row.took_s is None else f"{row.took_s:.3f} s"
    detail: Cell = row.detail
    if row.value is not None:
        detail = Exact(row.value, row.detail.removesuffix(exact(row.value)).rstrip())
    elif row.child in ends:
        detail = row.detail.replace(row.child, Id(row.child, ends[row.child]).short)
    return [
        (f"{row.at_s:.3f} s", "dim"),
        ("" if row.revision is None else str(row.revision), "dim"),
        *([Branch(row.agent_path, row.depth, row.agent, "dim")] if many else []),
        (row.what, row.style),
        took,
        detail,
    ]


# --- history, pending, refresh ---------------------------------------------------------------------------------------


async def _history(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from ..opening import opened, run_named
    from ..output.conversation import tell_messages
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        messages = await runtime.get_run(run_id).history()
    if json:
        screen.json({"run_id": run_id, "messages": msgspec.to_builtins(messages)})
    else:
        tell_messages(screen, messages)
    return OK


async def _files(settings: Settings, run_id: str, output: Path | None, *, json: bool) -> int:
    from ..files import files_of_run, written
    from ..opening import opened, run_named
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        found = await files_of_run(runtime, await run_named(runtime, run_id))
        if output is not None:
            found = await written(runtime, run_id, found, output)
    if json:
        screen.json({"run_id": run_id, "files": [each.as_json() for each in found]})
        return OK
    for each in found:
        where = each.path or each.file.artifact or each.file.url or ""
        screen.write(one_line(f"{where}  {each.source}  {each.file}"))
        screen.end_line()
    return OK


async def _pending(settings: Settings, run_id: str, *, json: bool) -> int:
    import msgspec

    from ..opening import opened, run_named
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        found = await runtime.get_run(run_id).pending()
        children = [] if json else await _children(runtime, screen, found)
    rows = [*_pending_rows(found), *children]
    if json:
        screen.json({"run_id": run_id, **msgspec.to_builtins(found)})
    else:
        screen.prose(f"run {run_id} is {found.status}, in step {found.step}, at revision {found.revision}")
        for name, value, style in _why_fields(settings, found.why):
            screen.field(name, value, _LABEL, style=style)
        if rows:
            which = Column("which", cut=True, again=True)
            screen.table((Column("what"), which, Column("detail", below=True)), rows)
    return OK if rows or found.children else NO


async def _children(runtime: Runtime, screen: Screen, found: Pending) -> list[list[Cell]]:
    """Return rows for the open child runs: by name, with the end of the id on a terminal."""
    from ..output.tables import Branch, Id

    if not found.children:
        return []
    index = await runtime.index()
    ends = await index.ends_of_ids(found.children) if screen.live else {}
    rows: list[list[Cell]] = []
    for child in found.children:
        row = await index.run(child)
        waits = f", waits: {row.waiting_for}" if row.waiting_for else ""
        which = Id(child, ends.get(child, child), below=True, style="")
        rows.append([Branch("child run", 1, row.agent), which, f"{row.agent} is {row.status}{waits}"])
    return rows


def _pending_rows(found: Pending) -> list[list[Cell]]:  # noqa: C901 - one case each
    from ..output.escaping import one_line
    from ..output.tables import Exact
    from ..output.times import moment

    def again(at: float | None) -> str:
        return "" if at is None else f", again at {moment(at)}"

    rows: list[list[Cell]] = []
    if (slot := found.slot) is not None:
        held = f"number {slot.place} in the queue; {len(slot.holders)} of {slot.runs_max} slots held"
        rows.append(["slot", one_line(slot.limit or slot.agent), held])
    if found.behind:
        rows.append(["turn", found.behind[0], f"number {len(found.behind) + 1} in its session"])
    if found.unclaimed:
        unserved = ": no live worker serves its agent" if found.unserved else ""
        rows.append(["worker", "", f"the run has no driver{unserved}"])
    rows += [["worker", "left to others", one_line(reason)] for reason in found.left]
    if found.paused is not None:
        rows.append(["pause", found.paused, ""])
    if found.pause_requested:
        rows.append(["pause", "requested", "before the next step"])
    if found.model is not None:
        asked = found.model
        detail = f"attempt {asked.attempt}{again(asked.retry_at)}"
        rows.append(
            ["model call", one_line(asked.model), detail + (f", {asked.phase}" if asked.phase else "")]
        )
    for call in found.calls:
        attempt = f"attempt {call.attempt}{again(call.retry_at)}{_in_line(call)}"
        rows.append(["tool call", one_line(call.tool_name), attempt])
    for wait in found.waits:
        until = "" if wait.until is None else f", until {moment(wait.until)}"
        rows.append(["wait", wait.name or wait.kind, f"{one_line(wait.tool_name)}{until}"])
    rows += [["signal", name, "no call has waited for it"] for name in found.unread]
    for approval in found.approvals:
        about = one_line(approval.tool_name or approval.kind)
        rows.append(["approval", approval.approval_id, Exact(approval.arguments, about)])
    rows += [["message", "", one_line(message)] for message in found.messages]
    if found.refresh is not None:
        rows.append(["tools", "listed again", "before the next step"])
    return rows


def _in_line(call: PendingCall) -> str:
    return "" if call.slot is None else f", waits for the slot {call.slot!r}"


async def _refresh(settings: Settings, run_id: str, path: str | None, remove: list[str], by: str) -> int:
    from ..mcp_files import read_servers
    from ..opening import opened, run_named
    from ..output.escaping import one_line
    from ..output.terminal import Screen

    servers = read_servers(path) if path is not None else {}
    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        await runtime.get_run(run_id).refresh_tools(servers, remove=remove, by=by or user_name())
    only_removes = remove and path is None
    what = (
        f"{one_line(', '.join(remove))} will be removed" if only_removes else "its tools will be listed again"
    )
    Screen(settings).tell(f"run {run_id}: {what} before its next step")
    return OK


# --- stream, drive ----------------------------------------------------------------------------------------------------


async def _stream(settings: Settings, run_id: str, how: Watch) -> int:
    from ..loops import interruption
    from ..opening import opened, run_named
    from ..output.terminal import Screen
    from ..output.watching import Watcher

    async with opened(settings) as runtime:
        with interruption() as interrupted:
            run = runtime.get_run(await run_named(runtime, run_id))
            return await Watcher(runtime, run, Screen(settings), settings, how).watch(interrupted)


async def _drive(settings: Settings, run_id: str, path: str | None, named: str | None, *, json: bool) -> int:
    from ..loading import executor_for, load_registry
    from ..loops import interruption
    from ..opening import opened, run_named
    from ..output.terminal import Screen
    from ..output.watching import Watch, Watcher

    registry, screen = load_registry(path) if path is not None else None, Screen(settings)
    async with opened(settings, registry) as runtime:
        executor, runs_in = executor_for(runtime, named, path)
        run_id = await run_named(runtime, run_id)
        run = runtime.get_run(run_id)
        state = await run.state()
        if state.over:
            screen.say(f"run {run_id} is over ({state.status})")
            return NO
        await runtime.drive(run_id, executor)
        if runs_in != "process":
            driver = f"a worker that serves {state.agent}" if runs_in == "workers" else f"{executor!r}"
            screen.say(f"{driver} will continue run {run_id}")
            return OK
        with interruption() as interrupted:
            how = Watch(json=json, drives=path)
            return await Watcher(runtime, run, screen, settings, how).watch(interrupted)


# --- inject, pause ----------------------------------------------------------------------------------------------------


async def _tell(settings: Settings, run_id: str, word: str, told: str, *values: Any, by: Actor) -> int:
    from ..opening import opened, run_named
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        run_id = await run_named(runtime, run_id)
        await getattr(runtime.get_run(run_id), word)(*values, by=by)
    Screen(settings).tell(f"run {run_id}: {told}")
    return OK
