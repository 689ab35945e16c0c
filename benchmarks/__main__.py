"""Measure: `python -m benchmarks [PART ...]`. Each part is saved as JSON when it ends; then the page is rendered."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from . import page
from .catalogue import BY_NAME, PARTS, Part
from .figures import Taken, keep, kept
from .machine import load, machine, versions
from .numbers import short
from .peers.programs import PEERS
from .settings import Settings
from .targets import judge

INTO = Path(".cache/figures")


def main() -> int:
    """Measure the requested parts and report; return the exit code: 1 if any part could not be measured."""
    options = _parser().parse_args()
    console = Console()
    if options.list:
        console.print(_parts())
        return 0
    if options.install:
        return _install(console)
    chosen = [] if options.render else _chosen(options)
    done = [part for part in chosen if _measured(part, options, console)]
    console.print(_judged(options.into))
    console.print(f"the page is {page.write(options.into)[0]}")
    if options.json:
        measured = kept(options.into)
        together = {part.name: measured[part.name] for part in done}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(together)) + b"\n")
    return int(len(done) < len(chosen))


def _chosen(options: argparse.Namespace) -> list[Part]:
    named = [BY_NAME[name] for name in options.parts]
    return named or [part for part in PARTS if part.by_default or options.all]


def _measured(part: Part, options: argparse.Namespace, console: Console) -> bool:
    """Measure a part and save its figures; return whether that worked. If it did not, the earlier figures stay."""
    try:
        taken = _taken(part, options, console)
    except Exception:  # noqa: BLE001 - the other parts are measured all the same
        console.print_exception(max_frames=8)
        console.print(f"{part.name} could not be measured", style="red")
        return False
    keep(taken, options.into)
    console.print(_table(part, taken))
    return True


def _install(console: Console) -> int:
    """Install the missing peers; return 1 if any cannot be installed, which does not stop the others."""
    failed = 0
    for program, peer in {peer.program: peer for peer in reversed(PEERS)}.items():
        if peer.installed:
            console.print(f"{program} is installed")
            continue
        try:
            with console.status(f"installing {program}"):
                peer.install()
            console.print(f"installed {program}")
        except subprocess.CalledProcessError as error:
            console.print(f"{program} cannot be installed: {error}")
            failed = 1
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *BY_NAME], help="see --list")
    parser.add_argument("--all", action="store_true", help="measure every part, the long ones too")
    parser.add_argument(
        "--list", action="store_true", help="say which parts there are, and how long they take"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="rounds of each part, instead of its own number"
    )
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        metavar="N",
        help="N times as many runs in the part large, and readers in followers: 10 is ten million commits",
    )
    parser.add_argument(
        "--quick", action="store_true", help="try whether it works: a round of next to nothing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there, too")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIRECTORY",
        default=INTO,
        help=f"where JSON, plots and page go (default {INTO}; the ones of the repository: docs/maintainers/figures)",
    )
    parser.add_argument("--install", action="store_true", help="install the peers, each apart from all else")
    parser.add_argument("--render", action="store_true", help="measure nothing, only render the page again")
    return parser


def _taken(part: Part, options: argparse.Namespace, console: Console) -> Taken:
    at, before, begun = datetime.now(UTC), load(), time.monotonic()
    with console.status(part.title) as status:

        def say(what: str) -> None:
            status.update(f"{part.name}, {time.monotonic() - begun:.0f} s: {what}")
            if not console.is_terminal:
                console.print(f"{part.name}, {time.monotonic() - begun:.0f} s: {what}", highlight=False)

        settings = Settings(rounds=options.rounds, quick=options.quick, times=options.times, say=say)
        measured = uvloop.run(part.measure(settings))
    return Taken(
        part=part.name,
        at=at.strftime("%Y-%m-%dT%H:%MZ"),
        took_s=round(time.monotonic() - begun, 1),
        load_before=round(before, 2),
        rounds=max((len(series.values) for series in measured.series), default=0),
        quick=options.quick,
        machine=machine(),
        versions=versions(),
        series=measured.series,
        remarks=measured.remarks,
    )


def _parts() -> Table:
    table = Table(title="parts")
    for column in ("name", "what", "minutes", "by default"):
        table.add_column(column)
    for part in PARTS:
        table.add_row(part.name, part.title, short(part.minutes), "yes" if part.by_default else "")
    return table


def _table(part: Part, taken: Taken) -> Table:
    table = Table(title=part.title)
    for column in ("", "", "median", "from, to"):
        table.add_column(column, justify="right" if column else "left")
    for measure in taken.measures():
        for number, each in enumerate(taken.of(measure)):
            who = each.who if each.x is None else f"{each.who}, {short(each.x)} {part.x_unit}"
            spread = " to ".join(map(short, each.spread))
            table.add_row("" if number else measure, who, f"{short(each.median)} {each.unit}", spread)
    return table


def _judged(directory: Path) -> Table:
    table = Table(title="targets")
    for column in ("figure", "target", "measured", "from, to", "met"):
        table.add_column(column)
    for target, middle, low, high, met in judge(kept(directory)):
        if middle is not None:
            spread = f"{short(low)} to {short(high)}"
            table.add_row(target.figure, target.wanted, short(middle), spread, "yes" if met else "no")
    return table


if __name__ == "__main__":
    sys.exit(main())
