"""`foldlog workers`: the processes that drive runs, and what they hold."""

from __future__ import annotations

import typer

from ..exits import OK
from ..options import Json
from ..settings import Settings, settings_of

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show the processes that drive runs.")


@app.callback()
def _workers() -> None:
    pass


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List the workers that are present: what they serve, what they drive, and their last sign."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


async def _list(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.operations.workers()
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
    elif not rows:
        screen.say("no workers: start one with foldlog worker MODULE:REGISTRY")
    else:
        screen.table(
            (
                Column("worker"),
                Column("runs"),
                Column("last sign"),
                Column("since", leaves=3),
                Column("release", leaves=1),
                Column("build", leaves=2),
                Column("host", leaves=4, cut=True),
                Column("pid", leaves=5),
                Column("serves", below=True),
            ),
            [
                [
                    one_line(row.worker),
                    f"{len(row.drives)} of {row.concurrency}" if row.serves else str(len(row.drives)),
                    f"{row.silent_s:.1f} s" if row.drives else "",
                    moment(row.since),
                    one_line(row.release),
                    one_line(row.build),
                    one_line(row.host),
                    str(row.pid),
                    f"{'nothing more, it drains: ' if row.draining else ''}{', '.join(map(one_line, row.serves))}",
                ]
                for row in rows
            ],
        )
    return OK
