"""`foldlog backup`: save a namespace while it is used, check a backup, and restore one into an empty namespace."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..exits import NO, OK, say_error
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.backup import Manifest

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Save a namespace while it is used, and restore it.",
)


class _Backup(NamedTuple):
    """A backup: where it is as the user knows it, the directory to read it from, and its manifest."""

    place: str
    directory: Path
    manifest: Manifest


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A directory of backups, or one backup in it; or the URL of one: s3://, gs://, az://, file://.",
        show_default=False,
    ),
]


@app.command()
def create(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A directory of backups, or the URL of one: s3://, gs://, az://, file://.",
            show_default=False,
        ),
    ],
    *,
    json: Json = False,
) -> int:
    """Save the namespace into a new directory below TARGET. Runs go on meanwhile."""
    from ..loops import run_async

    return run_async(_create(settings_of(context), target, json=json))


@app.command("list")
def list_(context: typer.Context, target: Target, *, json: Json = False) -> int:
    """List the complete backups in TARGET. Exit 1 if there are none, or one cannot be read, which is named."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), target, json=json))


@app.command()
def verify(
    context: typer.Context,
    target: Target,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only compare the files with their digests; needs no server.")
    ] = False,
    json: Json = False,
) -> int:
    """Check a backup: its digests, and, restored on a private server, every checksum, chain, position and artifact.

    Exit 1 if something is missing or was changed.
    """
    from ..loops import run_async

    return run_async(_verify(settings_of(context), target, quick=quick, json=json))


@app.command()
def restore(
    context: typer.Context,
    target: Target,
    *,
    named: Annotated[
        str | None,
        typer.Option("--as", metavar="NAMESPACE", help="Restore under another name.", show_default=False),
    ] = None,
    json: Json = False,
) -> int:
    """Restore a backup into an empty namespace. Every open run is paused, until `foldlog runs resume`."""
    from ..loops import run_async

    return run_async(_restore(settings_of(context), target, named, json=json))


def _document(place: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "backup": place,
        "namespace": manifest.namespace,
        "shards": manifest.shards,
        "began_at": manifest.began_at,
        "ended_at": manifest.ended_at,
        "messages": manifest.messages,
        "size_bytes": manifest.size_bytes,
        "digest": manifest.digest,
    }


async def _address(settings: Settings) -> str:
    """Return the address of the server, which is started if it is the project's own. Raises `ConfigError`."""
    import os

    from ....eventlog.embedded import ensure_server
    from ....eventlog.errors import ConfigError

    url = settings.server or os.environ.get("NATS_URL")
    if url == "memory://":
        raise ConfigError("a log in memory:// cannot be saved or restored: it ends with its process")
    return url or (await ensure_server()).url


@contextlib.contextmanager
def _room() -> Iterator[Path]:
    """Yield a directory for a backup that is on its way to or from an object store."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="foldlog-backup-") as directory:
        yield Path(directory)


@contextlib.asynccontextmanager
async def _opened(target: str) -> AsyncIterator[_Backup]:
    """Yield the backup at a target, fetched if the target is a URL, and checked against its digests."""
    from ....eventlog.backup import check_files, open_backup

    if "://" not in target:
        directory, manifest = open_backup(Path(target))
        check_files(directory, manifest)
        yield _Backup(str(directory), directory, manifest)
        return
    from ...archive.backups import ObjectBackups

    backups = ObjectBackups(target)
    with _room() as room:
        directory, manifest = await backups.fetch(room)
        check_files(directory, manifest)
        yield _Backup(backups.place(directory), directory, manifest)


async def _list(settings: Settings, target: str, *, json: bool) -> int:
    from ....eventlog.backup import backups_in
    from ....eventlog.errors import FoldlogError
    from ..output.terminal import Screen
    from ..output.times import moment

    screen, unreadable = Screen(settings), dict[Path, FoldlogError]()
    if "://" in target:
        from ...archive.backups import ObjectBackups

        backups = ObjectBackups(target)
        with _room() as room:
            await backups.fetch_manifests(room)
            found = [(backups.place(directory), each) for directory, each in backups_in(room, unreadable)]
    else:
        found = [(str(directory), each) for directory, each in backups_in(Path(target), unreadable)]
    if json:
        screen.json([_document(place, manifest) for place, manifest in found])
    elif found:
        rows = [
            [
                place.rpartition("/")[2],
                each.namespace,
                moment(each.began_at),
                str(each.messages),
                f"{each.size_bytes / 1e6:.1f} MB",
            ]
            for place, each in found
        ]
        screen.table(("backup", "namespace", "began", "messages", "size"), rows)
    elif not unreadable:
        screen.say(f"no backups in {target}")
    for error in unreadable.values():
        say_error(str(error))
    return OK if found and not unreadable else NO


async def _create(settings: Settings, target: str, *, json: bool) -> int:
    from ....eventlog.backup import take_backup
    from ....eventlog.jetstream.audit import shards_of
    from ....eventlog.jetstream.layout import Layout
    from ....eventlog.jetstream.opening import check_server, role_setting
    from ....eventlog.jetstream.wire import Wire
    from ..output.records import show_logs
    from ..output.terminal import Screen

    show_logs()
    screen, layout = Screen(settings), Layout(settings.namespace)
    wire = await Wire.open(
        await _address(settings), inbox=layout.inbox(role_setting("client")), name="foldlog backup"
    )
    try:
        check_server(wire)
        shards = await shards_of(wire, layout)
        if shards is None:
            screen.say(f"there is no namespace {layout.namespace!r} at {wire.url}")
            return NO
        if "://" in target:
            from ...archive.backups import ObjectBackups

            backups = ObjectBackups(target)
            with _room() as room:
                directory, manifest = await take_backup(wire, layout, shards, room, screen.say)
                place = await backups.send(directory, manifest)
        else:
            directory, manifest = await take_backup(wire, layout, shards, Path(target), screen.say)
            place = str(directory)
    finally:
        await wire.close()
    if json:
        screen.json(_document(place, manifest))
    else:
        screen.write(place)
        screen.end_line()
    return OK


async def _verify(settings: Settings, target: str, *, quick: bool, json: bool) -> int:
    async with _opened(target) as backup:
        return await _verified(settings, backup, quick=quick, json=json)


async def _verified(settings: Settings, backup: _Backup, *, quick: bool, json: bool) -> int:
    import msgspec

    from ....eventlog.backup import restoring
    from ....eventlog.embedded import EphemeralServer
    from ....replay import check_log
    from ..output.terminal import Screen

    screen = Screen(settings)
    place, directory, manifest = backup
    if quick:
        if json:
            screen.json({**_document(place, manifest), "whole": True})
        else:
            screen.tell(("unaltered: ", "green"), f"{len(manifest.streams)} files of {place}")
        return OK
    async with (
        EphemeralServer(sync="default") as server,
        restoring(server.url, directory, manifest, manifest.namespace) as work,
    ):
        audit = await work.log.audit()
        found = await check_log(work.log)
    problems = [f"missing artifact {digest}" for digest in found.missing]
    problems += [f"lost: {loss}" for loss in audit.losses]
    problems += [f"the consumer {name} was not saved" for name in work.missing_consumers]
    if json:
        counts = msgspec.to_builtins(found)
        screen.json({**_document(place, manifest), **counts, "whole": not problems, "problems": problems})
        return OK if not problems else NO
    for problem in problems:
        screen.tell((problem, "red"))
    counts = f"runs: {found.runs}, open: {len(found.open)}, commits: {found.commits}"
    screen.tell(("whole: ", "green") if not problems else ("incomplete: ", "red"), f"{counts}, in {place}")
    return OK if not problems else NO


async def _restore(settings: Settings, target: str, named: str | None, *, json: bool) -> int:
    async with _opened(target) as backup:
        return await _restored(settings, backup, named, json=json)


async def _restored(settings: Settings, backup: _Backup, named: str | None, *, json: bool) -> int:
    import time

    from ....eventlog.backup import restoring
    from ....runtime.restored import hold_everything
    from ..output.records import show_logs
    from ..output.terminal import Screen
    from ..output.times import moment

    show_logs()
    screen = Screen(settings)
    place, directory, manifest = backup
    namespace = named or manifest.namespace
    async with restoring(await _address(settings), directory, manifest, namespace, screen.say) as work:
        held = await hold_everything(work.log, time.time())
        await work.finish()
    if json:
        screen.json(
            {
                **_document(place, manifest),
                "restored_as": namespace,
                "held": held.runs,
                "paused_schedules": held.schedules,
                "moved_hooks": held.hooks,
            }
        )
        return OK
    screen.tell(f"restored {directory.name} as namespace {namespace}")
    screen.say(f"runs that were erased after {moment(manifest.began_at)} are back: repeat those erasures")
    if held.runs:
        screen.say(
            f"{len(held.runs)} open runs are paused: what they did after the backup is unknown. Look at each, then "
            "let it go on with `foldlog runs resume`"
        )
    if held.schedules:
        screen.say(
            f"paused schedules: {', '.join(held.schedules)}; `foldlog schedules resume` lets each go on"
        )
    if held.hooks:
        screen.say(
            f"hooks on ends of runs: {', '.join(held.hooks)}; they start nothing for runs that had ended before the "
            "restore"
        )
    return OK
