"""`foldlog diff`: two runs side by side, and their first difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exits import NO, OK
from ..options import IgnoredUsage, Json
from ..settings import Settings, settings_of
from ..traces import ignored

if TYPE_CHECKING:
    from ....replay import Boundary, Comparison, Diff
    from ....replay.canonical.structure import Ignored
    from ..output.terminal import Part, Screen

ROWS_MAX = 400
_MARKS = {"same": (" ", "dim"), "changed": ("≠", "yellow"), "left": ("<", "red"), "right": (">", "green")}


def diff(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="A run, a file, or golden:NAME.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one to compare it with.")],
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")
    ] = None,
    golden: Annotated[Path, typer.Option("--golden", metavar="DIR", help="Directory of golden:NAME.")] = Path(
        "golden"
    ),
    ignore: IgnoredUsage = None,
    json: Json = False,
) -> int:
    """Compare what two runs did, ignoring ids, times and retries. Exit 0: equal, 1: they differ.

    They may have different lengths or agents, or still be running.
    """
    from ..loops import run_async

    return run_async(_diff(settings_of(context), a, b, golden, html, ignored(ignore), json=json))


async def _diff(
    settings: Settings, a: str, b: str, golden: Path, html: Path | None, ignore: list[Ignored], *, json: bool
) -> int:
    import gc

    from ....replay import diff as diff_of
    from ....replay.ordering.documents import document
    from ..output.terminal import Screen
    from ..traces import load_side

    gc.disable()  # a short process with very many values and no cycles: collecting would double its time
    left = await load_side(settings, a, golden)
    right = left if a == b else await load_side(settings, b, golden)
    found, roots = diff_of(left[1], right[1], ignore=ignore), (left[0], right[0])
    screen = Screen(settings)
    if html is not None:
        _write_page(html, found, (a, b), roots)
        screen.say(f"page: {html}")
    if json:
        screen.json(document(found, roots))
    else:
        tell(screen, found, (a, b))
    return OK if found.equal else NO


def _write_page(path: Path, found: Diff, names: tuple[str, str], roots: tuple[str, str]) -> None:
    from ....eventlog.errors import ConfigError
    from ....replay.ordering.diff_page import page

    try:
        path.write_text(page(found, names, roots), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


# --- text -------------------------------------------------------------------------------------------------------------


def tell(screen: Screen, found: Diff, names: tuple[str, str]) -> None:
    """Print both runs side by side, the first difference with its reason, and the verdict."""
    if not found.equal:
        rows = list(_rows(found))
        screen.table(("", names[0], names[1], "differs in"), rows[:ROWS_MAX])
        if len(rows) > ROWS_MAX:
            screen.say((f"… {len(rows) - ROWS_MAX} more lines; --html or --json has them", "dim"))
        screen.tell("")
        for line in reasons(found):
            screen.tell(line)
    tell_verdict(screen, found)


def tell_verdict(screen: Screen, found: Diff | Comparison, *, so_far: bool = False) -> None:
    """Print whether both are equal, with the number of equal boundaries. `so_far`: the recorded run is still open."""
    equal, total = found.boundaries
    word, style = (
        ("equal so far" if so_far else "equal", "green") if found.equal else ("different", "bold red")
    )
    screen.tell(
        (word, style), f" ({equal} of {total} boundaries{'; the recording has no end' if so_far else ''})"
    )


def _rows(found: Diff) -> list[tuple[Part, ...]]:
    lines: list[tuple[Part, ...]] = []
    for row in found.excerpt():
        if isinstance(row, int):
            lines.append((" ", (f"… {row} equal", "dim"), ("", "dim"), ""))
            continue
        mark, style = _MARKS[row.kind]
        cells = [(_cell(boundary), style if row.kind != "same" else "") for boundary in (row.left, row.right)]
        lines.append(((mark, style), *cells, (", ".join(row.fields), style)))
    return lines


def _cell(boundary: Boundary | None) -> str:
    if boundary is None:
        return ""
    where = "" if boundary.step is None else f"{boundary.step} "
    below = f"{boundary.run.partition('/')[2]}: " if "/" in boundary.run else ""
    return f"{where}{below}{boundary.label}"


def reasons(found: Diff) -> list[str]:
    """Return lines on the first difference and its reason."""
    from ....replay.ordering.rule_texts import explain
    from ..output.escaping import one_line, shown

    first = found.comparison.first_difference
    if first is None:
        return []
    lines = [
        f"first difference: level {first.level}, rule {first.rule}: {one_line(first.why)}",
        f"  {explain(first.rule)}",
    ]
    for side, level, revisions in zip(
        ("left", "right"), (first.left, first.right), first.revisions, strict=True
    ):
        at = ", ".join(f"{run} revision {revision}" for run, revision in revisions) or "nothing at this level"
        lines.append(f"  {side}: {', '.join(boundary.label for boundary in level)} ({at})")
    row = next((row for row in found.rows if row.kind == "changed"), None)
    if row is not None and any(row.left is boundary for boundary in first.left):
        for name, (left, right) in row.values.items():
            if name == "request":  # two digests; the reason above names the difference
                continue
            lines.append(f"  {name}: {shown(left, 200)} → {shown(right, 200)}")
    return lines
