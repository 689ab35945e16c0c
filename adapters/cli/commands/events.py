"""`foldlog events`: runs as files that keep every byte, and the check that nothing was changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..exits import NO, OK
from ..settings import Settings, settings_of

if TYPE_CHECKING:
    from ....eventlog.losses import Audit
    from ....replay import Checked
    from ..output.terminal import Screen

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Runs as files that keep every byte, and their check."
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command()
def export(
    context: typer.Context,
    *,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run; its whole family is taken.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Instead of stdout.")
    ] = None,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="With the large values, so that it is complete.")
    ] = False,
) -> int:
    """Write a run, or all, as JSON Lines: one stored commit a line, byte for byte. Also of a run that is going on."""
    from ..loops import run_async

    if (run is None) != every:
        raise typer.BadParameter("name a RUN, or say --all")
    return run_async(_export(settings_of(context), run, output, artifacts=artifacts))


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `events export` wrote; - for stdin.")],
    *,
    json: Json = False,
) -> int:
    """Store a file's runs in this namespace, after a check of every chain and sum.

    Runs that are there already are skipped; one that is there with other commits refuses the whole file. Imported runs
    are a record: nothing drives the open ones on by itself.
    """
    from ..loops import run_async

    return run_async(_import(settings_of(context), file, json=json))


@app.command()
def verify(
    context: typer.Context,
    what: Annotated[str | None, typer.Argument(metavar="RUN|FILE", help="A run or a file.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All runs of the namespace.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Note in the log that the losses found by --all are known.")
    ] = False,
    json: Json = False,
) -> int:
    """Check every sum, chain, revision and artifact. Exit 1 if something is missing or was changed.

    With --all every position of every stream is accounted for, so that also a run that is gone as a whole is missed.
    """
    from ..loops import run_async

    if (what is None) != every:
        raise typer.BadParameter("name a RUN or a FILE, or say --all")
    if accept_loss and not every:
        raise typer.BadParameter("--accept-loss goes with --all, which finds the losses")
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
    """Of a run's family, or of all. A commit that is damaged is an error unless a loss explains it."""
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
    """What a check came to. `found` is None if a damaged commit (`damage`) ended it."""

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
        for line in self.audit.missing_line():
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
    parts += [f"{len(found.open)} still open"] if found.open else []
    parts += [f"{found.newer} of the events of a newer release"] if found.newer else []
    word, style = ("whole: ", "green") if whole else ("incomplete: ", "red")
    return [(word, style), (", ".join(parts) or "nothing", "")]
