"""`foldlog archive`: list, show, get and verify the copies of archived families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import Json
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....replay import Archive
    from ....runtime.ports.archives import ArchivedFamily, ArchiveStore

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at copies of archived runs.")
Where = Annotated[
    str, typer.Argument(metavar="URL", help="The archive: file:///DIR, s3://BUCKET/PREFIX, ...")
]
One = Annotated[str, typer.Argument(metavar="RUN", help="An archived run, or the URL of a copy.")]


@app.command("list")
def list_(context: typer.Context, url: Where, *, json: Json = False) -> int:
    """List the copies in an archive."""
    from ..loops import run_async

    return run_async(_list(settings_of(context), url, json=json))


@app.command()
def show(context: typer.Context, run: One, *, json: Json = False) -> int:
    """Show what a copy holds: its runs, and how they ended. Reads and checks all of it."""
    from ..loops import run_async

    return run_async(_show(settings_of(context), run, json=json))


@app.command()
def get(
    context: typer.Context,
    run: One,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="New file for the copy, as JSON Lines.")
    ],
) -> int:
    """Write a copy into a file, as `events export --artifacts` does."""
    from ..loops import run_async

    return run_async(_get(settings_of(context), run, output))


@app.command()
def verify(context: typer.Context, url: Where, *, json: Json = False) -> int:
    """Read and check every copy in an archive. Exit 1 if one is damaged, or there are none."""
    from ..loops import run_async

    return run_async(_verify(settings_of(context), url, json=json))


async def _list(settings: Settings, url: str, *, json: bool) -> int:
    import msgspec

    from ....runtime.ports.archives import archive_at
    from ..output.tables import Column
    from ..output.terminal import Screen
    from ..output.times import moment

    screen, found = Screen(settings), [family async for family in archive_at(url).list()]
    if json:
        screen.json([msgspec.to_builtins(family) for family in found])
    elif found:
        rows = [[family.run_id, moment(family.at), f"{family.size_bytes:,}"] for family in found]
        screen.table((Column("run"), Column("stored"), Column("bytes")), rows)
    else:
        screen.say("no copies")
    return OK


async def _show(settings: Settings, run: str, *, json: bool) -> int:
    from ....projections.projection import fold
    from ....projections.run_list import RunList
    from ..output.tables import Column
    from ..output.terminal import Screen

    screen = Screen(settings)
    url, archive = await _copy(settings, run)
    (trace,) = archive.traces.values()
    rows = list(fold(RunList(), trace.commits).values())
    if json:
        screen.json(
            {
                "url": url,
                "runs": [
                    {
                        "run_id": row.run_id,
                        "agent": row.agent,
                        "status": row.status,
                        "revisions": row.revision,
                    }
                    for row in rows
                ],
                "commits": len(archive.stored),
                "artifacts": len(archive.artifacts),
            }
        )
        return OK
    screen.tell(f"{url}: {len(archive.stored)} commits, {len(archive.artifacts)} artifacts")
    cells = [[row.run_id, row.agent_path, row.status, str(row.revision)] for row in rows]
    screen.table((Column("run"), Column("agent"), Column("status"), Column("revisions")), cells)
    return OK


async def _get(settings: Settings, run: str, output: Path) -> int:
    from ....eventlog.errors import ConfigError
    from ....replay.traces.archive import to_jsonl
    from ..output.terminal import Screen

    url, archive = await _copy(settings, run)
    try:
        with output.open("xb") as file:
            file.write(to_jsonl(archive))
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror or error}") from None
    Screen(settings).tell(f"{url} is written to {output}")
    return OK


async def _verify(settings: Settings, url: str, *, json: bool) -> int:
    from ....runtime.ports.archives import archive_at
    from ..output.terminal import Screen

    screen, store = Screen(settings), archive_at(url)
    found = [(family, await _fault(store, family)) async for family in store.list()]
    bad = [(family, fault) for family, fault in found if fault]
    if json:
        screen.json(
            {
                "copies": len(found),
                "damaged": [{"url": family.url, "problem": fault} for family, fault in bad],
            }
        )
    else:
        for family, fault in bad:
            screen.tell((f"damaged: {family.url}: {fault}", "red"))
        screen.tell(f"{len(found)} copies, {len(bad)} damaged")
    return OK if found and not bad else NO


async def _fault(store: ArchiveStore, family: ArchivedFamily) -> str:
    """Return what is wrong with a copy; empty for nothing."""
    from typing import cast

    from ....eventlog.errors import FoldlogError
    from ...archive.store import family_digest

    try:
        archive = cast("Archive", await store.read(family.url))
    except (FoldlogError, KeyError) as error:
        return str(error)
    return "" if family_digest(archive) == family.digest else "it is not the family that it is named after"


async def _copy(settings: Settings, run: str) -> tuple[str, Archive]:
    """Return the URL and the copy of an archived run. Raises `ConfigError`, `RunNotFound`, `RunGone`."""
    from typing import cast

    from ....eventlog.errors import ConfigError, RunNotFound
    from ....runtime.archived import archived
    from ....runtime.ports.archives import archive_at
    from ..opening import opened, run_named

    url = run
    if "://" not in run:
        async with opened(settings) as runtime:
            name = await run_named(runtime, run)
            tombstone = await archived(runtime.log, await runtime.locate(name))
        if tombstone is None:
            raise ConfigError(f"run {name} is not archived")
        url = tombstone.event.url
    try:
        return url, cast("Archive", await archive_at(url.rpartition("/")[0]).read(url))
    except KeyError:
        raise RunNotFound(f"there is no copy at {url}") from None
