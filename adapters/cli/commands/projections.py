"""`foldlog projections`: the rows behind lists, how far they are, and how to make them again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from ..exits import OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....projections.projector import Projector
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and rebuild the file of the projections."
)
TOLD_EVERY_S = 0.5


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List the projections in the file that FOLDLOG_PROJECTIONS names, and how many commits they lack."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def rebuild(context: typer.Context) -> int:
    """Delete all rows and fold the log again. One that was cut short goes on where it ended.

    Readers wait until the rows are there again.
    """
    from ..loops import run_async

    return run_async(_rebuild(settings_of(context)))


def _check_file() -> None:
    from ....eventlog.errors import ConfigError

    if not os.environ.get("FOLDLOG_PROJECTIONS"):
        raise ConfigError(
            "the projections are in the memory of each process: name a file in FOLDLOG_PROJECTIONS to keep them"
        )


async def _list(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.tables import Column
    from ..output.terminal import Screen

    _check_file()
    screen = Screen(settings)
    async with opened(settings) as runtime:
        index = await runtime.index()
        lag, sizes = await index.lag(), index.sizes()
        rows = [
            {"name": each.name, "version": each.version, "lag": lag, "rows": sizes[each.name]}
            for each in index.projections
        ]
    if json:
        screen.json(rows)
    else:
        screen.table(
            [Column(name) for name in ("name", "version", "lag", "rows")],
            [[str(value) for value in row.values()] for row in rows],
        )
    return OK


async def _rebuild(settings: Settings) -> int:
    import asyncio

    from ..opening import opened
    from ..output.terminal import Screen

    _check_file()
    screen = Screen(settings)
    async with opened(settings) as runtime:
        index = await runtime.index()
        if index.rows.is_cut_short():
            screen.say("the last rebuild was cut short: it goes on where it ended")
        telling = asyncio.create_task(_tell_progress(screen, index))
        try:
            await index.rebuild()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        rows = sum(index.sizes().values())
    screen.tell(f"rebuilt: {rows} rows")
    return OK


async def _tell_progress(screen: Screen, index: Projector) -> None:
    """Print twice a second how much of the log is folded and how many positions are left, until cancelled."""
    import asyncio

    from ....eventlog.errors import LogUnavailable

    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        try:
            done, whole = await index.progress()
        except LogUnavailable as error:
            screen.say(f"{error}; it is asked again")
        else:
            left = max(0, whole - done)
            screen.say(f"{done * 100 // max(1, whole)} % of the log is folded, {left:,} positions to go")
