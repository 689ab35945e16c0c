"""`foldlog keys`: the keys of sealed values, per user, session or run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.sealing import KeyRecord, SealedLog
    from ....runtime import Runtime

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Keep, rotate and erase the keys of sealed values."
)


@app.command()
def generate(context: typer.Context) -> int:
    """Print a new wrapping key, for a secret store: its holder can read all that is sealed."""
    from ....eventlog.sealing import generated
    from ..output.terminal import Screen

    Screen(settings_of(context)).write(f"{generated()}\n")
    return OK


@app.command("list")
def list_(context: typer.Context, *, json: Json = False) -> int:
    """List who has a key, by which wrapping key it is wrapped, and which keys were erased."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), json=json))


@app.command()
def rotate(context: typer.Context) -> int:
    """Wrap all keys by the first wrapping key of the configuration. Sealed values stay as they are.

    Older wrapping keys can be removed from the configuration afterwards.
    """
    from ..loops import run_async

    return run_async(_rotate(settings_of(context)))


@app.command()
def erase(
    context: typer.Context,
    *,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="The key of this user's runs.")] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="The key of this session's runs, if they have no user.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="The key of a run without a user and a session.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Name to record.")] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason to record.")] = "",
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the receipt into this new file.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
    """Erase a key for good: what was sealed under it is unreadable in the log and in each copy of it.

    Refused while a run needs it. Exit 1 if there is no such key.
    """
    from ....runtime.burying.erased_keys import owner_named
    from ..confirming import agreed
    from ..loops import run_async
    from ..output.terminal import Screen

    settings, owner = settings_of(context), owner_named(user, session, run)
    screen = Screen(settings)
    question = f"What is sealed under the key of {owner} can never be read again. Erase it?"
    if not yes and not agreed(screen, question, "erase it"):
        return NO
    return run_async(_erase(settings, owner, by, reason, receipt))


@app.command("export")
def export_(
    context: typer.Context, file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")]
) -> int:
    """Copy the wrapped keys into a file, which no backup of the log has. Keep it apart from the backups.

    An erased key is in older files: replace them after an erasure.
    """
    from ..loops import run_async

    return run_async(_export(settings_of(context), file))


@app.command("import")
def import_(
    context: typer.Context, file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file.")]
) -> int:
    """Store the wrapped keys of a file where the log has none. An erased key stays erased.

    Exit 1 if a key is here that the file says was erased.
    """
    from ..loops import run_async

    return run_async(_import(settings_of(context), file))


def _ring_of(runtime: Runtime) -> SealedLog:
    from ....eventlog.errors import ConfigError
    from ....eventlog.sealing import SealedLog

    if not isinstance(runtime.log, SealedLog):
        raise ConfigError(
            f"namespace {runtime.log.namespace!r} has no sealed values: set [seal] in foldlog.toml, or FOLDLOG_SEAL"
        )
    return runtime.log


async def _list(settings: Settings, *, json: bool) -> int:
    from ..opening import opened
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    async with opened(settings) as runtime:
        records = sorted(
            [each async for each in _ring_of(runtime).ring.records()], key=lambda each: each.owner
        )
    if json:
        screen.json([_as_json(record) for record in records])
    elif not records:
        screen.say("there are no keys yet: the first run of each user, session or run makes one")
    else:
        columns = (Column("owner"), Column("key"), Column("made"), Column("wrapped by"), Column("erased"))
        screen.table(columns, [_cells(record) for record in records])
    return OK


def _as_json(record: KeyRecord) -> dict[str, object]:
    import msgspec

    key = record.key
    return {
        "owner": record.owner,
        "key": None if key is None else record.id_of(key.number),
        "made_at": None if key is None else key.made_at,
        "wrapped_by": None if key is None else key.by,
        "erased": [{**msgspec.to_builtins(each), "key": record.id_of(each.number)} for each in record.erased],
    }


def _cells(record: KeyRecord) -> list[str]:
    from ..output.escaping import one_line
    from ..output.times import moment

    key = record.key
    erased = ", ".join(
        f"{moment(each.at)}{f' by {one_line(each.by)}' if each.by else ''}" for each in record.erased
    )
    if key is None:
        return [one_line(record.owner), "", "", "", erased]
    return [one_line(record.owner), record.id_of(key.number), moment(key.made_at), key.by, erased]


async def _rotate(settings: Settings) -> int:
    from ..opening import opened
    from ..output.terminal import Screen

    async with opened(settings) as runtime:
        rotated = await _ring_of(runtime).ring.rotate()
    Screen(settings).say(f"{rotated} keys are wrapped by another key now")
    return OK


async def _erase(settings: Settings, owner: str, by: str, reason: str, receipt: Path | None) -> int:
    import msgspec

    from ....runtime.burying.erased_keys import erase_key
    from ..opening import opened
    from ..output.terminal import Screen
    from .erasing import reserved, stored

    screen = Screen(settings)
    async with opened(settings) as runtime:
        ring = _ring_of(runtime)
        with reserved(receipt, 1) as write:
            erased = await erase_key(ring, await runtime.index(), owner, by, reason)
            is_stored = erased is None or stored(write, receipt, erased)
    if erased is None:
        screen.say(f"{owner} has no key")
        return NO
    screen.say(f"the key of {owner} is erased: {len(erased.runs)} runs and all copies of them are unreadable")
    screen.say(
        f"files of `foldlog keys export` from before still have it, for who has the wrapping key {erased.wrapped_by}: "
        "delete them"
    )
    if not is_stored:
        screen.json(msgspec.to_builtins(erased))
    return OK if is_stored else NO


async def _export(settings: Settings, file: Path) -> int:
    from ....eventlog.sealing.keyring import exported
    from ..opening import opened
    from ..output.terminal import Screen
    from .erasing import reserved

    with reserved(file) as write:
        async with opened(settings) as runtime:
            lines = [exported(record) async for record in _ring_of(runtime).ring.records()]
        write(b"".join(lines))
    Screen(settings).say(f"{len(lines)} keys of namespace {settings.namespace!r} are in {file}, wrapped")
    return OK


async def _import(settings: Settings, file: Path) -> int:
    from ....eventlog.errors import ConfigError
    from ....eventlog.files import read_bounded
    from ....eventlog.sealing.keyring import imported
    from ..opening import opened
    from ..output.terminal import Screen

    try:
        records = imported(read_bounded(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is not a file of `foldlog keys export`: {error}") from None
    async with opened(settings) as runtime:
        added = await _ring_of(runtime).ring.add(records)
    screen = Screen(settings)
    screen.say(f"{added.stored} of {len(records)} keys were not there, and are stored")
    for owner in added.outlived:
        screen.say(
            f"the file says that the key of {owner} was erased, but it is here: `foldlog keys erase` ends it"
        )
    return NO if added.outlived else OK
