"""`foldlog events`: export and import runs byte for byte, and verify that nothing was changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..exits import NO, OK
from ..options import Json, RunOrFile
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.losses import Audit
    from ....replay import Checked
    from ..output.terminal import Screen

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Export, import and verify stored runs.")


@app.command()
def export(
    context: typer.Context,
    *,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run; its whole family is exported.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Include the large values, so that the file is complete.")
    ] = False,
) -> int:
    """Write a family, or all runs, as JSON Lines. One stored commit per line, byte for byte; runs may be open."""
    from ..loops import run_async

    if (run is None) != every:
        raise typer.BadParameter("give a RUN or --all")
    return run_async(_export(settings_of(context), run, output, artifacts=artifacts))


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file that `events export` wrote; - for stdin.")
    ],
    *,
    json: Json = False,
) -> int:
    """Store a file's runs in this namespace.

    Every chain and checksum is verified first. Runs that are already there are skipped; if one of them has different
    commits, the whole file is refused. Imported runs are a record: open ones are not continued automatically.
    """
    from ..loops import run_async

    return run_async(_import(settings_of(context), file, json=json))


@app.command()
def verify(
    context: typer.Context,
    what: RunOrFile = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace.")] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Record in the log that the losses found by --all are known."),
    ] = False,
    json: Json = False,
) -> int:
    """Verify every checksum, chain, revision and artifact. Exit 1 if something is missing or was changed.

    --all accounts for every position of every stream, so it also detects that a whole run is missing.
    """
    from ..loops import run_async

    if (what is None) != every:
        raise typer.BadParameter("give a RUN, a FILE or --all")
    if accept_loss and not every:
        raise typer.BadParameter("--accept-loss needs --all, which finds the losses")
    return run_async(_verify(settings_of(context), what, accept_loss=accept_loss, json=json))


async def _export(settings: Settings, run: str | None, output: Path | None, *, artifacts: bool) -> int:
    import sys

    from ....replay import export as lines_of
    from ..opening import opened, run_named
    from ..output.terminal import Screen

    count = 0
    async with opened(settings) as runtime:
        run = await run_named(runtime, run) if run is not None else None
        lines = lines_of(runtime.log, run, artifacts=artifacts)
        if output is None:
            async for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return OK
        with _created(output) as file:
            async for line in lines:
                file.write(line)
                count += 1
    Screen(settings).say(f"{count} lines in {output}")
    return OK


def _created(path: Path) -> Any:
    from ....eventlog.errors import ConfigError

    try:
        return path.open("wb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


async def _import(settings: Settings, file: str, *, json: bool) -> int:
    import msgspec

    from ....replay import import_archive
    from ..opening import opened
    from ..output.terminal import Screen
    from ..traces import read_file

    archive = read_file(file)
    async with opened(settings) as runtime:
        found = await import_archive(archive, runtime.log)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.to_builtins(found))
    else:
        for run in found.runs:
            screen.tell("imported  ", run)
        for run in found.skipped:
            screen.tell(("skipped   ", "dim"), run)
    return OK


async def _verify(settings: Settings, what: str | None, *, accept_loss: bool, json: bool) -> int:
    from ....eventlog.losses import Audit
    from ....replay import check
    from ..output.terminal import Screen
    from ..traces import is_file, read_file

    if what is not None and is_file(what):
        verdict = _Verdict(check(read_file(what)), Audit())
    else:
        verdict = await _verdict(settings, what, accept_loss=accept_loss)
    screen = Screen(settings)
    if json:
        screen.json(verdict.document())
    else:
        verdict.tell(screen)
    return OK if verdict.whole else NO


async def _verdict(settings: Settings, run: str | None, *, accept_loss: bool) -> _Verdict:
    """Verify a run's family, or all runs. A damaged commit is an error unless a loss explains it."""
    from ....eventlog.errors import LogCorrupted
    from ....eventlog.losses import Audit, Audited
    from ....replay import check_log
    from ..opening import opened, run_named

    async with opened(settings) as runtime:
        log, audit = runtime.log, Audit()
        run = await run_named(runtime, run) if run is not None else None
        if run is None and isinstance(log, Audited):
            audit = await log.audit()
            if accept_loss and audit.losses:
                await log.accept(audit.losses)
                audit = await log.audit()
        try:
            return _Verdict(await check_log(log, run), audit)
        except LogCorrupted as error:
            if not (audit.losses or audit.accepted):
                raise
            return _Verdict(None, audit, str(error))


class _Verdict(NamedTuple):
    """The result of a verification. `found` is None if a damaged commit (`damage`) ended it."""

    found: Checked | None
    audit: Audit
    damage: str | None = None

    @property
    def whole(self) -> bool:
        return self.found is not None and not self.found.missing and not self.audit.losses

    def document(self) -> dict[str, Any]:
        import msgspec

        return {
            **(msgspec.to_builtins(self.found) if self.found is not None else {}),
            "losses": msgspec.to_builtins(self.audit.losses),
            "accepted_losses": msgspec.to_builtins(self.audit.accepted),
            "missing_runs": msgspec.to_builtins(self.audit.missing),
            "damaged_runs": self.audit.damaged,
            "damage": self.damage,
            "whole": self.whole,
        }

    def tell(self, screen: Screen) -> None:
        if self.found is not None:
            screen.tell(*_summary(self.found, whole=self.whole))
            for digest in self.found.missing:
                screen.tell(("missing artifact ", "red"), digest)
        for loss in self.audit.losses:
            screen.tell(("lost: ", "red"), str(loss))
        for loss in self.audit.accepted:
            screen.tell(("lost, and accepted: ", "yellow"), str(loss))
        for line in self.audit.run_lines():
            screen.tell((line, "red"))
        if self.damage is not None:
            screen.tell(("damaged: ", "red"), self.damage)


def _summary(found: Checked, *, whole: bool) -> list[tuple[str, str]]:
    counts = [
        (found.families, "family", "families"),
        (found.runs, "run", "runs"),
        (found.commits, "commit", "commits"),
        (found.events, "event", "events"),
        (found.artifacts, "artifact", "artifacts"),
    ]
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    parts += [f"{found.erased} erased"] if found.erased else []
    parts += [f"{len(found.open)} still open"] if found.open else []
    parts += [f"{found.newer} events of a newer release"] if found.newer else []
    word, style = ("whole: ", "green") if whole else ("incomplete: ", "red")
    return [(word, style), (", ".join(parts) or "nothing", "")]
