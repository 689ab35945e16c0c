"""`foldlog costs`: tokens and dollars by day, agent, model, session or user."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..exits import OK
from ..options import Json
from ..settings import Settings, settings_of

By = Literal["day", "agent", "model", "session", "user"]


def costs(
    context: typer.Context,
    *,
    by: Annotated[By, typer.Option(help="What to sum up by.")] = "day",
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only from this day (UTC) on, as 2026-03-01.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only before this day (UTC), as 2026-03-01.")
    ] = None,
    json: Json = False,
) -> int:
    """Sum up the tokens and dollars of model calls. Calls with an unknown price are counted apart."""
    from ..loops import run_async

    return run_async(_costs(settings_of(context), by, _day(since), _day(until), json=json))


def _day(text: str | None) -> str:
    from datetime import date

    from ....eventlog.errors import ConfigError

    if text is None:
        return ""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"write a day as 2026-03-01, not {text!r}") from None


async def _costs(settings: Settings, by: By, since: str, until: str, *, json: bool) -> int:
    import msgspec

    from ..opening import opened
    from ..output.escaping import one_line
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await runtime.operations.costs(by, since, until)
    if json:
        screen.json([msgspec.to_builtins(row) for row in rows])
    elif not rows:
        screen.say("no model calls")
    else:
        columns = (
            Column(by, cut=True, again=True),
            *map(Column, ("runs", "calls", "input", "output", "cost")),
            Column("unknown prices", below=True),
        )
        screen.table(
            columns,
            [
                [
                    one_line(row.key),
                    str(row.runs),
                    str(row.calls),
                    f"{row.usage.input_tokens:,}",
                    f"{row.usage.output_tokens:,}",
                    f"${row.cost_usd}",
                    f"{row.unpriced} call{'s' * (row.unpriced > 1)}" if row.unpriced else "",
                ]
                for row in rows
            ],
        )
    return OK
