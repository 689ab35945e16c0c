"""`foldlog retention`: show how long runs are kept and what is due, and erase it now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....runtime import Registry
    from ....runtime.burying.retention import Retention

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Erase runs some time after their end.")


@app.command()
def show(context: typer.Context, *, json: Json = False) -> int:
    """Show how long runs are kept, as the project's file says, and how many are due."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), json=json))


@app.command()
def run(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs that are due.")] = False,
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what was erased into this new file, as JSON.")
    ] = None,
    json: Json = False,
) -> int:
    """Erase the runs that are due, at once, and sweep what the log no longer needs.

    Workers do the same every hour. Exit 1 if a run could not be erased.
    """
    from ..loops import run_async

    return run_async(_run(settings_of(context), receipt, dry_run=dry_run, json=json))


def loaded(registry: Registry | None = None) -> Retention | None:
    """Return the project's retention, checked against the agents of a registry. Raises `ConfigError`."""
    from ....runtime.burying.retention import check_waits
    from ....runtime.core.rules import rules_of
    from ...configuration.retention import load_retention

    retention = load_retention()
    if retention is not None and registry is not None:
        asking = {
            name: agent.to_config()
            for name, agent in registry.agents.items()
            if "approvals" in registry.capabilities(agent)
        }
        check_waits(
            retention,
            {name: rules_of(config).approval_timeout_s for name, config in asking.items()},
        )
    return retention


def _given() -> Retention:
    from ....eventlog.errors import ConfigError

    retention = loaded()
    if retention is None:
        raise ConfigError("the project's file has no [retention]: runs are kept until `foldlog runs delete`")
    return retention


async def _show(settings: Settings, *, json: bool) -> int:
    import msgspec

    from ....runtime.burying.retention import due
    from ..opening import opened
    from ..output.terminal import Screen

    screen, retention = Screen(settings), _given()
    async with opened(settings) as runtime:
        rows = await due(await runtime.index(), retention, runtime.log.clock.now())
    if json:
        screen.json({**msgspec.to_builtins(retention), "due": [row.run_id for row in rows]})
        return OK
    screen.field("keep", _length(retention.keep_s), _LABEL)
    screen.field("archive", retention.archive or "none", _LABEL)
    screen.field("keys", _length(retention.keys_s), _LABEL)
    for name in sorted(retention.agents):
        where = retention.archive_of(name)
        screen.field(name, f"{_length(retention.keep_of(name))}{f', {where}' if where else ''}", _LABEL)
    screen.field("due", f"{len(rows)} families", _LABEL)
    return OK


_LABEL = 8
"""Width of the field names."""


def _length(seconds: float | None) -> str:
    if seconds is None:
        return "for ever"
    units = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    size, unit = next((each for each in units if seconds >= each[0]), units[-1])
    return f"{seconds / size:g}{unit}"


async def _run(settings: Settings, receipt: Path | None, *, dry_run: bool, json: bool) -> int:
    from ....runtime.burying.retention import Pass, due, erase_due
    from ..opening import opened
    from ..output.terminal import Screen
    from .erasing import reserved, stored

    screen, retention = Screen(settings), _given()
    async with opened(settings) as runtime:
        index = await runtime.index()
        rows = await due(index, retention, runtime.log.clock.now())
        if dry_run:
            if json:
                screen.json([row.run_id for row in rows])
            else:
                for row in rows:
                    screen.tell(f"run {row.run_id} of {row.agent} is due")
                screen.say(f"{len(rows)} families are due")
            return OK
        with reserved(receipt, len(rows)) as write:
            done: Pass = await erase_due(runtime.log, index, retention)
            is_stored = stored(write, receipt, done)
    _tell(screen, done, json=json or not is_stored)
    return NO if done.failed or not is_stored else OK


def _tell(screen: Any, done: Any, *, json: bool) -> None:
    import msgspec

    if json:
        screen.json(msgspec.to_builtins(done))
        return
    for erased in done.erased:
        where = f" at {erased.url}" if erased.url else ""
        screen.tell(f"run {erased.run_id}: {erased.how}{where}")
    for run_id, reason in done.failed.items():
        screen.tell((f"run {run_id}: {reason}", "red"))
    screen.say(f"{len(done.erased)} families erased, {done.swept} messages swept")
