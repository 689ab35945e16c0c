"""`foldlog approvals`: what runs wait for, and the answers."""

from __future__ import annotations

import json as jsonlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .exits import OK
from .settings import Settings, settings_of

if TYPE_CHECKING:
    from ...projections.approvals import ApprovalRow
    from ...runtime import Runtime

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Approvals: what runs wait for, and the answers."
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL", help="The id of an approval.")]
Note = Annotated[str, typer.Option(help="Why.")]
By = Annotated[str, typer.Option(help="Who decides; by default the user of this machine.")]


@app.command("list")
def list_(
    context: typer.Context,
    *,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only those of this run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Those that are decided, too.")] = False,
    json: Json = False,
) -> int:
    """List what waits for an answer, oldest first."""
    from .loops import run_async

    return run_async(_list(settings_of(context), run, every=every, json=json))


@app.command()
def show(context: typer.Context, approval: ApprovalId, *, json: Json = False) -> int:
    """Show one approval: what is asked, and how it was decided."""
    from .loops import run_async

    return run_async(_show(settings_of(context), approval, json=json))


@app.command()
def approve(
    context: typer.Context,
    approval: ApprovalId,
    *,
    note: Note = "",
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Other arguments for the call, all of them.")
    ] = None,
    outcome: Annotated[
        Literal["retry", "succeeded", "failed"] | None,
        typer.Option(help="What became of a call that nobody knows the outcome of."),
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="Its result (with --outcome succeeded).")
    ] = None,
    by: By = "",
) -> int:
    """Approve; the run goes on."""
    from .loops import run_async

    answer: dict[str, Any] = {"decision": "approved", "note": note, "outcome": outcome, "by": by or _user()}
    answer["arguments"] = _json_option("--arguments", arguments, an_object=True)
    answer["result"] = _json_option("--result", result, an_object=False)
    return run_async(_answer(settings_of(context), approval, answer))


@app.command()
def reject(context: typer.Context, approval: ApprovalId, *, note: Note = "", by: By = "") -> int:
    """Reject; the model is told, and the run goes on without the call."""
    from .loops import run_async

    answer = {"decision": "rejected", "note": note, "by": by or _user()}
    return run_async(_answer(settings_of(context), approval, answer))


def _json_option(name: str, text: str | None, *, an_object: bool) -> Any:
    if text is None:
        return None
    try:
        value = jsonlib.loads(text)
    except jsonlib.JSONDecodeError as error:
        raise typer.BadParameter(f"{name} is not JSON: {error}") from None
    if an_object and not isinstance(value, dict):
        raise typer.BadParameter(f"{name} has to be a JSON object")
    return value


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


async def _answer(settings: Settings, approval_id: str, answer: dict[str, Any]) -> int:
    from .opening import opened
    from .terminal import Screen

    async with opened(settings) as runtime:
        run = runtime.get_run((await _find(runtime, approval_id)).run_id)
        await run.resolve(approval_id, **answer)
        state = await run.state()
    screen = Screen(settings)
    screen.tell(f"{answer['decision']}: {approval_id} of run {run.run_id}")
    submitted = state.submitted
    if submitted is not None and submitted.executor == "local" and not state.over:
        drive = settings.command("runs", "drive", run.run_id, "MODULE:REGISTRY")
        screen.say((f"if the process that drove it is gone: {drive}", "dim"))
    return OK


async def _list(settings: Settings, run: str | None, *, every: bool, json: bool) -> int:
    import msgspec

    from .escaping import shown
    from .opening import opened
    from .terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await (await runtime.index()).approvals(None if every else True, run)
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
        return OK
    if not rows:
        screen.say("no approvals" if every else "nothing waits for an answer")
        return OK
    screen.table(
        ("approval", "run", "agent", "kind", "tool", "decision", "arguments"),
        [
            (
                (row.approval_id, "bold"),
                row.run_id,
                row.agent_path,
                row.kind,
                row.tool_name,
                (row.decision or "pending", "yellow" if row.decision is None else "dim"),
                shown(row.arguments),
            )
            for row in rows
        ],
    )
    return OK


async def _show(settings: Settings, approval_id: str, *, json: bool) -> int:
    import msgspec

    from .escaping import one_line, shown
    from .opening import opened
    from .terminal import Screen
    from .times import moment
    from .views import answers_to

    screen = Screen(settings)
    async with opened(settings) as runtime:
        row = await _find(runtime, approval_id)
    if json:
        screen.json(msgspec.to_builtins(row))
        return OK
    lines: list[tuple[str, str]] = [
        ("approval", row.approval_id),
        ("run", f"{row.run_id} ({row.agent_path}, step {row.step})"),
        ("kind", row.kind),
        ("tool", one_line(row.tool_name)),
        ("arguments", shown(row.arguments)),
        ("asked", moment(row.requested_at)),
        ("expires", moment(row.expires_at) if row.expires_at is not None and row.decision is None else ""),
        ("decision", row.decision or "pending"),
        ("outcome", row.outcome or ""),
        ("edited", shown(row.edited_arguments) if row.edited_arguments is not None else ""),
        ("by", one_line(row.by)),
        ("note", one_line(row.note)),
    ]
    for name, value in lines:
        if value:
            screen.tell((f"{name:<10}", "dim"), value)
    if row.decision is None:
        screen.tell("")
        for answer in answers_to(settings, row.approval_id, row.kind):
            screen.tell(answer)
    return OK


async def _find(runtime: Runtime, approval_id: str) -> ApprovalRow:
    """The approval. Raises `ApprovalError` for an id that no run asked under."""
    from ...eventlog.errors import ApprovalError

    for row in await (await runtime.index()).approvals(pending=None):
        if row.approval_id == approval_id:
            return row
    raise ApprovalError(
        f"there is no approval {approval_id!r} in namespace {runtime.log.namespace!r}; "
        "`foldlog approvals list` shows those there are"
    )
