"""`foldlog tokens`: who may use the HTTP API."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Issue and revoke tokens of the HTTP API."
)
Holder = Annotated[str, typer.Argument(metavar="NAME", help="The holder, whom events name as their actor.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Name to record.")]


@app.command()
def issue(
    context: typer.Context,
    name: Holder,
    *,
    role: Annotated[
        Literal["viewer", "operator", "admin"], typer.Option("--role", help="What the holder may do.")
    ],
    expires: Annotated[
        float, typer.Option("--expires", metavar="DAYS", min=0, help="Days until it expires; 0: never.")
    ] = 90.0,
    by: By = "",
    json: Json = False,
) -> int:
    """Issue a token, and print it: it cannot be shown again. The log has only its SHA-256."""
    from ..loops import run_async

    return run_async(_issue(settings_of(context), name, role, expires, by, json=json))


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List who has a token in the log."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def revoke(context: typer.Context, name: Holder, *, by: By = "") -> int:
    """Withdraw a token: every server refuses it from now on. Exit 1 if the holder has none."""
    from ..loops import run_async

    return run_async(_revoke(settings_of(context), name, by))


async def _issue(
    settings: Settings,
    name: str,
    role: Literal["viewer", "operator", "admin"],
    days: float,
    by: str,
    *,
    json: bool,
) -> int:
    from ....runtime.shared.access_tokens import AccessTokens
    from ..opening import opened
    from ..output.terminal import Screen
    from ..output.times import moment

    async with opened(settings) as runtime:
        tokens = AccessTokens(runtime.log)
        issued = await tokens.issue(name, role, expires_s=days * 86400 or None, by=by)
    screen, granted = Screen(settings), issued.granted
    if json:
        screen.json({"token": issued.token, "name": name, "role": role, "expires_at": granted.expires_at})
        return OK
    until = "never expires" if granted.expires_at is None else f"expires at {moment(granted.expires_at)}"
    screen.tell(issued.token)
    screen.say(f"the token of {name} ({role}) {until}; it is not shown again")
    return OK


async def _list(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ....runtime.shared.access_tokens import AccessTokens, is_over
    from ..opening import opened
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    async with opened(settings) as runtime:
        granted = await AccessTokens(runtime.log).read()
        now = runtime.log.clock.now()
    screen = Screen(settings)
    if json:
        rows = [msgspec.to_builtins(each) for each in granted.values()]
        screen.json([{k: v for k, v in row.items() if k != "sha256"} for row in rows])
    elif not granted:
        screen.say("there are no tokens")
    else:
        columns = (
            Column("name"),
            Column("role"),
            Column("issued"),
            Column("by", cut=True),
            Column("expires"),
        )
        screen.table(
            columns,
            [
                [
                    each.name,
                    each.role,
                    moment(each.granted_at),
                    each.by,
                    "never"
                    if each.expires_at is None
                    else ("expired" if is_over(each, now) else moment(each.expires_at)),
                ]
                for each in granted.values()
            ],
        )
    return OK


async def _revoke(settings: Settings, name: str, by: str) -> int:
    from ....runtime.shared.access_tokens import AccessTokens
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        found = await AccessTokens(runtime.log).revoke(name, by=by)
    Screen(settings).say(f"the token of {name} is revoked" if found else f"{name} has no token in the log")
    return OK if found else NO
