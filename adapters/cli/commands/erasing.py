"""`foldlog runs delete`: erase runs by their ids or by filters, and write the receipt."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from ..bulk import Bulk
from ..exits import NO, OK, say_error
from ..loops import interruption
from ..opening import opened, run_named
from ..output.terminal import Screen
from ..settings import Settings
from .listing import Filters

if TYPE_CHECKING:
    from ....projections.run_list import RunRow
    from ....runtime import Runtime
    from ....runtime.burying.bury import Erased
    from ....runtime.burying.erasure import Receipt
    from ....runtime.burying.options import EraseOptions

FAMILY_BYTES = 4096
"""The space reserved per family in a receipt, for its ids and digests, and those of about forty runs or values."""


class Erasing(NamedTuple):
    """The options of `runs delete` beside the filters and those of bulk commands."""

    before: str | None
    archive: str | None
    with_copies: bool
    receipt: Path | None
    by: str
    reason: str


async def delete_runs(
    settings: Settings, runs: Sequence[str], filters: Filters, bulk: Bulk, how: Erasing
) -> int:
    """Erase the selected runs, and return the exit code."""
    import msgspec

    from ....eventlog.errors import FoldlogError

    interval_s = bulk.interval_s  # refuse an invalid rate before searching
    if bool(runs) == (filters.given or how.before is not None or bulk.everything):
        raise typer.BadParameter(
            "give RUNs, or select runs by options (not both); --all selects all runs that are over"
        )
    screen = Screen(settings)
    erased: list[Erased] = []
    failure: FoldlogError | None = None
    async with opened(settings) as runtime:
        named = [await run_named(runtime, run) for run in runs]
        rows = [] if named else await _selected(runtime, filters, how.before, bulk)
        open_runs = tuple(row.run_id for row in rows if not row.over)
        meant = named or [row.run_id for row in rows if row.over]
        if not meant:
            return _tell_none(screen, open_runs, json=bulk.json)
        options: EraseOptions = {"by": how.by, "reason": how.reason, "interval_s": interval_s}
        if how.archive is not None:
            options["archive"] = how.archive
        with (
            interruption() as interrupted,
            reserved(None if bulk.dry_run else how.receipt, len(meant)) as write,
        ):
            options["stopping"], options["told"] = interrupted.told, erased.append
            try:
                done = await runtime.delete(
                    *meant, with_copies=how.with_copies, dry_run=bulk.dry_run, **options
                )
            except FoldlogError as error:
                if not erased:
                    raise
                failure, done = error, _broken_off(runtime, meant, erased, how)
            asked = done.asked if named else _asked(filters, how.before, bulk)
            receipt = msgspec.structs.replace(done, open=(*done.open, *open_runs), asked=asked)
            is_stored = stored(write, how.receipt, receipt)
    if bulk.json or not is_stored:
        screen.json(msgspec.to_builtins(receipt))
    else:
        _tell(screen, receipt)
    if failure is not None:
        screen.say(
            f"broken off: {len(erased)} erased, {len(receipt.not_begun)} not begun or not finished, copies not looked "
            "for; repeat the command, it does nothing twice"
        )
        raise failure
    if receipt.not_begun:
        screen.say(
            f"ended early: {len(receipt.not_begun)} not begun; repeat the command, it does nothing twice"
        )
        return interrupted.code
    is_purged = receipt.dry_run or all(each.purged for each in receipt.erased)
    return OK if is_purged and is_stored and not receipt.open else NO


def _broken_off(runtime: Runtime, meant: Sequence[str], erased: Sequence[Erased], how: Erasing) -> Receipt:
    """Return the receipt of an erasure that failed after it had erased some."""
    from ....runtime.burying.erasure import Receipt

    done = {each.run_id for each in erased}
    return Receipt(
        namespace=runtime.log.namespace,
        at=runtime.log.clock.now(),
        by=how.by,
        reason=how.reason,
        asked={"run_ids": tuple(meant)},
        erased=tuple(erased),
        not_begun=tuple(run for run in meant if run not in done),
    )


@contextlib.contextmanager
def reserved(path: Path | None, families: int = 0) -> Iterator[Callable[[bytes], object]]:
    """Reserve disk space for a receipt before anything is erased, and yield the function that writes it.

    The space, enough for this many families, is a temporary file beside the receipt. It is renamed to the receipt after
    everything is on disk, and removed if nothing was written. Without a path, nothing happens. Raises `ConfigError`;
    the function raises `OSError`.
    """
    import os

    from ....eventlog.errors import ConfigError

    if path is None:
        yield lambda _: None
        return
    if path.exists():
        raise ConfigError(f"{path} exists: a receipt is not overwritten")
    room = path.with_name(f".{path.name}.{os.getpid()}")

    def fill(data: bytes) -> None:
        # Overwrite the reserved bytes: truncating the file first would give the space back.
        with room.open("r+b" if room.exists() else "xb") as file:
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())

    def write(data: bytes) -> None:
        fill(data)
        room.rename(path)

    try:
        try:
            fill(bytes(families * FAMILY_BYTES))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
        yield write
    finally:
        room.unlink(missing_ok=True)


def stored(write: Callable[[bytes], object], path: Path | None, receipt: object) -> bool:
    """Write a receipt; if that fails, report it and return false, so that the caller prints the receipt instead."""
    import msgspec

    try:
        write(msgspec.json.format(msgspec.json.encode(receipt)) + b"\n")
    except OSError as error:
        say_error(f"{path}: {error.strerror or error}; the receipt is on standard output")
        return False
    return True


async def _selected(runtime: Runtime, filters: Filters, before: str | None, bulk: Bulk) -> list[RunRow]:
    """Return the selected roots, restricted to those that ended before a time, if one is given.

    Erased runs are among them, since an archive may have copies of them. With a limit, only runs that can be erased
    are, the newest first; and `--all` means what is over. Raises `LogCorrupted` while a run is damaged: nobody knows
    what selects it.
    """
    from ..output.times import time_of

    index, until = (
        await runtime.index(),
        time_of(before, runtime.log.clock.now()) if before is not None else None,
    )
    await index.check_intact()
    rows = await index.runs(**await filters.query(runtime), limit=-1)
    roots = [row for row in rows if row.run_id == row.root_id and (row.over or not bulk.everything)]
    found = [row for row in roots if until is None or (row.over and row.updated_at < until)]
    return (
        found if bulk.limit is None else [row for row in found if row.over and not row.buried][: bulk.limit]
    )


def _asked(filters: Filters, before: str | None, bulk: Bulk) -> dict[str, object]:
    import dataclasses

    chosen = {"all": bulk.everything or None, "limit": bulk.limit}
    given = {**dataclasses.asdict(filters), "before": before, **chosen}
    return {name: value for name, value in given.items() if value not in {None, ()}}


def _tell_none(screen: Screen, open_runs: Sequence[str], *, json: bool) -> int:
    if json:
        screen.json({"erased": [], "open": list(open_runs), "copies": []})
    for run in open_runs if not json else ():
        screen.say(f"run {run} is open: wait for its end, or cancel it")
    if not json and not open_runs:
        screen.say("no matching runs")
    return NO


def _tell(screen: Screen, receipt: Receipt) -> None:
    for erased in receipt.erased:
        verb = f"would be {erased.how}" if receipt.dry_run and not erased.before else erased.how
        counts = f" ({len(erased.runs)} runs, {erased.commits} commits)" if erased.commits else ""
        where = f" at {erased.url}" if erased.url else ""
        screen.tell(f"run {erased.run_id}: {verb}{where}{counts}{' before' if erased.before else ''}")
    for run in receipt.open:
        screen.tell((f"run {run}: open, left alone", "yellow"))
    left = sum(not each.purged for each in receipt.erased) if not receipt.dry_run else 0
    if left:
        told = (
            f"{left} families are gone for every reader, but the server does not allow this user to erase their bytes: "
            "a worker does, about a minute from now; repeat the command to see that it has"
        )
        screen.tell((told, "yellow"))
    for copy in receipt.copies:
        told = "erased, too" if copy.erased else "still there"
        screen.tell((f"{copy.kind} of run {copy.of}: {copy.at} {told}", "" if copy.erased else "yellow"))
    if receipt.keys:
        kind, _, name = receipt.keys[0].partition(":")
        others = f" and of {len(receipt.keys) - 1} others" if len(receipt.keys) > 1 else ""
        told = (
            f"the key of {kind} {name}{others} is still there, so backups and exports from before can be read"
        )
        screen.tell((f"{told}: foldlog keys erase --{kind} {shlex.quote(name)}", "yellow"))
