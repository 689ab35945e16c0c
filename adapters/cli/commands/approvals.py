"""`foldlog approvals`: list, show and answer approvals, and issue resume tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..actors import operator, user_name
from ..exits import OK
from ..json_options import json_option
from ..options import Json
from ..settings import Settings, settings_of
from .listing import tell_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....projections.approvals import ApprovalRow
    from ..output.tables import Cell
    from ..output.terminal import Screen

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show and answer approvals.")
ApprovalId = Annotated[
    str, typer.Argument(metavar="APPROVAL", help="An approval's id, or a unique prefix or suffix of it.")
]
Answered = Annotated[
    str | None,
    typer.Argument(metavar="APPROVAL", help="An approval's id; not needed with a resume token."),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="A resume token; `-` for standard input. Default without APPROVAL: FOLDLOG_RESUME_TOKEN.",
    ),
]
Note = Annotated[str, typer.Option(help="Reason, stored with the decision.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Name to record; default: your user name.")]
RESUME_TOKEN = "FOLDLOG_RESUME_TOKEN"  # noqa: S105 - the variable's name

tokens = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Issue and revoke resume tokens, which answer one approval, once.",
)
app.add_typer(tokens, name="token")


@app.command("list")
def list_(
    context: typer.Context,
    *,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only approvals of this run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Include decided approvals.")] = False,
    json: Json = False,
) -> int:
    """List pending approvals, oldest first. Exit 1 if the log of a run is damaged, which is named."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), run, every=every, json=json))


@app.command()
def show(context: typer.Context, approval: ApprovalId, *, json: Json = False) -> int:
    """Show one approval: the request and the decision."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), approval, json=json))


@app.command()
def approve(  # noqa: PLR0913 - its options
    context: typer.Context,
    approval: Answered = None,
    *,
    token: Token = None,
    note: Note = "",
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Replace all arguments of the call.")
    ] = None,
    outcome: Annotated[
        Literal["retry", "succeeded", "failed"] | None,
        typer.Option(
            help="Outcome of a call that a dead worker had started (or retry), or that you made by hand."
        ),
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="Result of the call (with --outcome succeeded).")
    ] = None,
    always: Annotated[
        bool,
        typer.Option("--always", help="Need no approval again for exactly this tool and these arguments."),
    ] = False,
    by: By = "",
) -> int:
    """Approve; the run continues."""
    from ..loops import run_async

    answer: dict[str, Any] = {
        "decision": "approved",
        "note": note,
        "outcome": outcome,
        "by": operator(by),
    }
    answer["arguments"] = json_option("--arguments", arguments, an_object=True)
    answer["result"] = json_option("--result", result, an_object=False)
    answer["always"] = always
    return run_async(_answer(settings_of(context), approval, token, answer))


@app.command()
def reject(
    context: typer.Context, approval: Answered = None, *, token: Token = None, note: Note = "", by: By = ""
) -> int:
    """Reject; the run continues without the call. The model is informed."""
    from ..loops import run_async

    answer = {"decision": "rejected", "note": note, "by": operator(by)}
    return run_async(_answer(settings_of(context), approval, token, answer))


@tokens.command()
def issue(
    context: typer.Context,
    approval: ApprovalId,
    *,
    expires: Annotated[str, typer.Option(metavar="TIME", help="Valid for: 30m, 1h, 2d.")] = "1d",
    by: By = "",
) -> int:
    """Print a new resume token; it cannot be shown again."""
    from ..loops import run_async
    from ..output.times import seconds_of

    return run_async(_issue(settings_of(context), approval, seconds_of(expires), by or user_name()))


@tokens.command()
def revoke(
    context: typer.Context,
    approval: ApprovalId,
    *,
    by: By = "",
) -> int:
    """Revoke all resume tokens of an approval."""
    from ..loops import run_async

    return run_async(_revoke(settings_of(context), approval, by or user_name()))


def _given_token(approval_id: str | None, token: str | None) -> str | None:
    """Return the resume token, if any: the option's, or without an approval that of the environment."""
    import os
    import sys

    if token == "-":  # noqa: S105 - standard input
        token = sys.stdin.readline().strip()
    if token is None and approval_id is None:
        token = os.environ.get(RESUME_TOKEN)
        if not token:
            raise typer.BadParameter(f"give an APPROVAL or a resume token (--token, {RESUME_TOKEN})")
    return token


async def _answer(
    settings: Settings, approval_id: str | None, token: str | None, answer: dict[str, Any]
) -> int:
    from ..opening import approval_named, opened
    from ..output.terminal import Screen

    given = _given_token(approval_id, token)
    async with opened(settings) as runtime:
        if given is not None:
            if answer.pop("always", False):
                raise typer.BadParameter("--always is for operators: a resume token answers one approval")
            approval_id = _named_by(given, approval_id)
            run = await runtime.resolve_with_token(given, **answer)
        else:
            row = await approval_named(runtime, approval_id or "")
            approval_id, run = row.approval_id, runtime.get_run(row.run_id)
            await run.resolve(approval_id, **answer)
        state = await run.state()
        executor = runtime.known_executor(state.submitted.executor) if state.submitted is not None else None
    screen = Screen(settings)
    stands = state.approvals[approval_id].resolution
    first = f", already by {stands.by}" if stands is not None and stands.by != answer["by"].by else ""
    screen.tell(f"{answer['decision']}: {approval_id} of run {run.run_id}{first}")
    if executor is not None and executor.runs_in == "process" and not state.over:
        drive = settings.command("runs", "drive", names=(run.run_id, "MODULE:REGISTRY"))
        screen.say((f"if its process is gone, continue it with: {drive}", "dim"))
    return OK


def _named_by(token: str, approval_id: str | None) -> str:
    """Return the approval that the token is for. Raises `ApprovalError` if another one was given as well."""
    from ....eventlog.errors import ApprovalError
    from ....runtime.shared.resume_tokens import place_of

    named = place_of(token).approval_id
    if approval_id is not None and not (named.startswith(approval_id) or named.endswith(approval_id)):
        raise ApprovalError(f"the resume token is for the approval {named}, not for {approval_id!r}")
    return named


async def _issue(settings: Settings, approval_id: str, expires_s: float, by: str) -> int:
    from ..opening import approval_named, opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        row = await approval_named(runtime, approval_id)
        approval_id, run = row.approval_id, runtime.get_run(row.run_id)
        token = await run.issue_token(approval_id, expires_s=expires_s, by=by)
    screen = Screen(settings)
    screen.write(f"{token}\n")
    answer = settings.command("approvals", "approve", "--token", "-")
    screen.say((f"it cannot be shown again; its holder answers {approval_id} with: {answer}", "dim"))
    return OK


async def _revoke(settings: Settings, approval_id: str, by: str) -> int:
    from ..opening import approval_named, opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        row = await approval_named(runtime, approval_id)
        approval_id, run = row.approval_id, runtime.get_run(row.run_id)
        count = await run.revoke_tokens(approval_id, by=by)
    Screen(settings).tell(f"{count} token{'' if count == 1 else 's'} of {approval_id} revoked")
    return OK


async def _list(settings: Settings, run: str | None, *, every: bool, json: bool) -> int:
    import msgspec

    from ..opening import opened, run_named
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        index = await runtime.index()
        run = await run_named(runtime, run) if run is not None else None
        rows = await index.approvals(None if every else True, run)
        code = await tell_damaged(screen, index)
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
        return code
    if not rows:
        screen.say("no approvals" if every else "no pending approvals")
        return code
    run_column = Column("run")
    columns = [
        Column("approval"),
        Column("agent", leaves=1, cut=True),
        Column("kind", leaves=2),
        Column("tool", cut=True, again=True),
        Column("decision"),
        Column("requested"),
        Column("reason", below=True),
        Column("about", below=True),
    ]
    # On a terminal it is the last of those that stay, which goes below if it must.
    at = columns.index(Column("requested")) + 1 if screen.live else 1
    columns.insert(at, run_column)
    screen.table(columns, [_cells(row, at, live=screen.live) for row in rows])
    return code


def _cells(row: ApprovalRow, at: int, *, live: bool) -> list[Cell]:
    """Return the cells of a row, the run as number `at`. On a terminal the kind stands for a missing tool."""
    from ..output.escaping import one_line
    from ..output.times import moment

    cells: list[Cell] = [
        (row.approval_id, "bold"),
        row.agent_path,
        row.kind,
        row.tool_name or (f"({row.kind})" if live else ""),
        (row.decision or "pending", "yellow" if row.decision is None else "dim"),
        moment(row.requested_at),
        one_line(row.reason),
        _about(row),
    ]
    cells.insert(at, row.run_id)
    return cells


async def _show(settings: Settings, approval_id: str, *, json: bool) -> int:
    import msgspec

    from ....eventlog.events import QUESTION
    from ..opening import approval_named, opened
    from ..output.escaping import one_line
    from ..output.terminal import Screen
    from ..output.times import moment
    from ..output.views import answers_to

    screen = Screen(settings)
    async with opened(settings) as runtime:
        row = await approval_named(runtime, approval_id)
        returned = None
        if row.aside or (row.kind == "unverifiable" and row.decision is None):
            state = await runtime.get_run(row.run_id).state()
            asked = state.approvals[row.approval_id].request
            returned = asked.result
            row = msgspec.structs.replace(row, arguments=asked.arguments, injected_args=asked.injected_args)
    if json:
        screen.json(msgspec.to_builtins(row))
        return OK
    fields: list[tuple[str, str | list[str]]] = [
        ("approval", row.approval_id),
        ("run", f"{row.run_id} ({row.agent_path}{'' if row.step is None else f', step {row.step}'})"),
        ("kind", row.kind),
        ("reason", "" if row.postcondition else one_line(row.reason)),
        ("tool", one_line(row.tool_name)),
        *_asked(row, screen),
        ("returned", screen.lines(returned, _LABEL + 1) if returned is not None else ""),
        *_found(row),
        ("injected", screen.lines(row.injected_args, _LABEL + 1) if row.injected_args else ""),
        ("requested", moment(row.requested_at)),
        ("expires", moment(row.expires_at) if row.expires_at is not None and row.decision is None else ""),
        ("tokens", str(row.tokens) if row.tokens and row.decision is None else ""),
        ("decision", row.decision or "pending"),
        ("outcome", row.outcome or ""),
        (
            "answered" if row.kind == QUESTION else "edited",
            screen.lines(row.edited_arguments, _LABEL + 1) if row.edited_arguments is not None else "",
        ),
        ("by", one_line(row.by)),
        ("note", one_line(row.note)),
    ]
    for name, value in fields:
        if value:
            screen.field(name, value, _LABEL)
    if row.decision is None:
        screen.tell("")
        for answer in answers_to(settings, row.approval_id, row.kind, row.arguments):
            screen.tell(answer)
    return OK


def _about(row: ApprovalRow) -> Cell:
    """Return the subject of an approval: the arguments exactly, or the question."""
    from ....eventlog.events import QUESTION
    from ..output.tables import Exact

    if row.aside:
        return f"not in this list: foldlog approvals show {row.approval_id}"
    return str(row.arguments.get("message")) if row.kind == QUESTION else Exact(row.arguments)


_LABEL = 10
"""Width of the field names."""


def _asked(row: ApprovalRow, screen: Screen) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the subject of an approval: the arguments of a call, or a question and its form."""
    from ....eventlog.events import QUESTION
    from ..output.escaping import text_lines, visible
    from ..output.forms import form_lines

    if row.kind != QUESTION:
        yield "arguments", screen.lines(row.arguments, _LABEL + 1)
        return
    yield "question", text_lines(str(row.arguments.get("message", "")))
    form = row.arguments.get("schema")
    yield "form", list(map(visible, form_lines(form))) if isinstance(form, dict) else ""


def _found(row: ApprovalRow) -> Iterator[tuple[str, str]]:
    """Yield the findings of the call's postcondition, and their evidence."""
    from ....runtime.core.postconditions import finding_text
    from ..output.escaping import one_line

    for number, finding in enumerate(row.postcondition):
        yield "" if number else "condition", f"{finding['status']:<6}  {one_line(finding_text(finding))}"
    for number, artifact in enumerate(row.evidence):
        yield "" if number else "evidence", f"{artifact['id']} ({artifact['media_type']})"
