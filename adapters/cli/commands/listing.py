"""`foldlog runs list`: the filters, families folded under their roots, and the table.

`runs cancel` and `runs resume` select runs with the same filters.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from ..exits import NO, OK

if TYPE_CHECKING:
    from ....projections.family_totals import FamilyTotals
    from ....projections.operating.why import Why
    from ....projections.projector import RunIndex
    from ....projections.run_list import RunRow
    from ....runtime import Runtime
    from ..output.tables import Cell
    from ..output.terminal import Screen

_OPTIONS: dict[str, Any] = {
    "status": Annotated[
        Literal["queued", "running", "paused", "completed", "error", "cancelled"] | None,
        typer.Option(help="Only runs with this status."),
    ],
    "agent": Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")],
    "since": Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only runs submitted since: 30m, 2d (ago), 2026-03-01, 2026-03-01T12:00."
        ),
    ],
    "until": Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs submitted before; written like --since.")
    ],
    "error_type": Annotated[
        str | None,
        typer.Option(
            "--error-type", metavar="TYPE", help="Only runs that failed with an error of this type."
        ),
    ],
    "waiting_for": Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="Only open runs that wait for this, such as approval, wait, timer, manual."
        ),
    ],
    "user": Annotated[str | None, typer.Option(metavar="ID", help="Only runs of this user.")],
    "metadata": Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Only runs with this metadata; a.b=x for nested keys. Repeatable."
        ),
    ],
    "session": Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this session.")],
    "root": Annotated[str | None, typer.Option(metavar="RUN", help="Only this run and its family.")],
}
"""The options that select runs, by the fields of `Filters`."""
DAMAGED = "damaged"
_STYLES = {
    "completed": "green",
    "error": "red",
    "cancelled": "red",
    DAMAGED: "red",
    "paused": "yellow",
    "running": "cyan",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """A selection of runs, as given by the options."""

    status: str | None = None
    session: str | None = None
    agent: str | None = None
    since: str | None = None
    until: str | None = None
    error_type: str | None = None
    waiting_for: str | None = None
    user: str | None = None
    metadata: Sequence[str] = ()
    root: str | None = None

    @property
    def given(self) -> bool:
        """Return whether any filter was given."""
        return self != Filters()

    async def query(self, runtime: Runtime) -> dict[str, Any]:
        """Return the filters as arguments of the index. Raises `ConfigError`, `RunNotFound`."""
        self._check()
        from ..opening import run_named
        from ..output.times import time_of

        now = runtime.log.clock.now()
        root = await run_named(runtime, self.root) if self.root is not None else None
        return {
            "status": self.status,
            "session": self.session,
            "agent": self.agent,
            "user": self.user,
            "error_type": self.error_type,
            "waiting_for": self.waiting_for,
            "root_id": (await runtime.locate(root)).root if root is not None else None,
            "since": time_of(self.since, now) if self.since is not None else None,
            "until": time_of(self.until, now) if self.until is not None else None,
            "metadata": _pairs(self.metadata),
        }

    def _check(self) -> None:
        """Raise `ConfigError` for a filter without a value, which would select nothing, or everything."""
        from ....eventlog.errors import ConfigError

        for field in dataclasses.fields(self):
            if getattr(self, field.name) == "":
                raise ConfigError(
                    f"--{field.name.replace('_', '-')} is empty: give it a value, or leave it out"
                )


def filtered(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that select runs; it receives them as `filters`."""

    @functools.wraps(command)
    def with_filters(*args: Any, **given: Any) -> int:
        fields = {name: given.pop(name) for name in _OPTIONS}
        fields["metadata"] = tuple(fields["metadata"] or ())
        return command(*args, filters=Filters(**fields), **given)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "filters"]
    first = [parameter for parameter in own if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    last = [parameter for parameter in own if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    with_filters.__signature__ = signature.replace(parameters=[*first, *added, *last])  # type: ignore[attr-defined]
    with_filters.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    return with_filters


def _pairs(given: Sequence[str]) -> Mapping[str, str]:
    from ....eventlog.errors import ConfigError

    pairs = [each.partition("=") for each in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ConfigError(f"--metadata is written KEY=VALUE, not {key + equals!r}")
    return {key: value for key, _, value in pairs}


class Listed(NamedTuple):
    """A run to show: its row, depth in the family, name, and the totals of it and all runs below it."""

    row: RunRow
    depth: int
    name: str
    family: FamilyTotals
    why: Why | None = None


async def listed(index: RunIndex, query: Mapping[str, Any], limit: int, *, children: bool) -> list[Listed]:
    """Return the families of the selected runs, at most `limit`, newest first, each led by its root.

    Other runs of a family follow their root with `children`, or if they match and their root does not.
    """
    return await _families(index, await _matches(index, query, limit), children=children)


async def families_of(index: RunIndex, runs: Iterable[str]) -> list[Listed]:
    """Return these runs, each below the root of its family."""
    found: dict[str, list[RunRow]] = {}
    for run in runs:
        row = await index.run(run)
        found.setdefault(row.root_id, []).append(row)
    return await _families(index, found, children=True)


async def _families(
    index: RunIndex, found: Mapping[str, Sequence[RunRow]], *, children: bool
) -> list[Listed]:
    from ....projections.family_totals import family_totals

    lines: list[Listed] = []
    for root, rows in found.items():
        family = {row.run_id: row for row in await index.runs(root_id=root, limit=-1)}
        totals = family_totals(family.values())
        meant = {row.run_id for row in rows}
        shown = meant | {root} if children or root not in meant else {root}
        lines += [
            _placed(row, family, shown, totals[row.run_id])
            for row in _in_order(family, root)
            if row.run_id in shown
        ]
    return lines


async def _matches(index: RunIndex, query: Mapping[str, Any], limit: int) -> dict[str, list[RunRow]]:
    """Return the selected runs by root, at most `limit` roots."""
    asked = limit
    while True:
        asked *= 4
        rows = await index.runs(**query, limit=asked)
        found: dict[str, list[RunRow]] = {}
        for row in rows:
            found.setdefault(row.root_id, []).append(row)
        if len(found) > limit or len(rows) < asked:
            return dict(list(found.items())[:limit])


def _in_order(family: Mapping[str, RunRow], root: str) -> list[RunRow]:
    """Return the runs of a family in order of submission, each before the runs below it."""
    below: dict[str, list[RunRow]] = {}
    for row in sorted(family.values(), key=lambda row: (row.submitted_at, row.run_id)):
        below.setdefault(row.parent or "", []).append(row)
    ordered, left = [], [family[root]] if root in family else []
    while left:
        row = left.pop()
        ordered.append(row)
        left += reversed(below.get(row.run_id, []))
    return ordered


def _placed(row: RunRow, family: Mapping[str, RunRow], shown: set[str], totals: FamilyTotals) -> Listed:
    """Return a run at its place below the nearest run that is shown."""
    name, depth, above = row.agent, 0, family.get(row.parent or "")
    while above is not None:
        depth += above.run_id in shown
        if not depth:
            name = f"{above.agent}/{name}"
        above = family.get(above.parent or "")
    return Listed(row, depth, name, totals)


async def with_whys(runtime: Runtime, lines: Sequence[Listed]) -> list[Listed]:
    """Return the same lines with the reasons why their runs wait."""
    whys = await runtime.operations.why([line.row for line in lines])
    return [line._replace(why=whys.get(line.row.run_id)) for line in await _with_unserved(runtime, lines)]


async def _with_unserved(runtime: Runtime, lines: Sequence[Listed]) -> list[Listed]:
    """Return the same lines, where runs that wait only for a worker say so if no live worker serves them."""
    rows = await rows_with_unserved(runtime, [line.row for line in lines])
    return [line._replace(row=row) for line, row in zip(lines, rows, strict=True)]


async def rows_with_unserved(runtime: Runtime, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the same rows, where runs that wait only for a worker say so if no live worker serves them."""
    from ....eventlog.ports import served

    idle = [row for row in rows if _is_idle(row)]
    known = {name: runtime.known_executor(name) for name in {row.executor for row in idle}}
    on_workers = {name for name, executor in known.items() if executor and executor.runs_in == "workers"}
    waiting = [row for row in idle if row.executor in on_workers]
    if not waiting:
        return list(rows)
    at_work = served(await runtime.log.leases.present())
    unserved = {row.run_id for row in waiting if row.agent not in at_work}
    return [_unserved(row) if row.run_id in unserved else row for row in rows]


def _is_idle(row: RunRow) -> bool:
    """Return whether the run is open without an event that says what it waits for."""
    return row.status in {"queued", "running"} and row.waiting_for is None and row.damage is None


def _unserved(row: RunRow) -> RunRow:
    import msgspec

    from ....projections.run_list import WORKER

    reason = f"no live worker serves {row.agent!r}"
    return msgspec.structs.replace(row, waiting_for=WORKER, reason=reason)


async def tell_damaged(screen: Screen, index: RunIndex) -> int:
    """Tell of the damaged runs, whatever is listed, since no list can place them; return the exit code."""
    damaged = await index.damaged()
    for row in damaged:
        if row.damage is not None:
            screen.say(("damaged: ", "red"), row.damage.detail, important=True)
    return NO if damaged else OK


async def tell_runs(screen: Screen, index: RunIndex, lines: Sequence[Listed]) -> None:
    """Print the table of runs."""
    from ..output.tables import Column

    columns = (
        Column("run"),
        Column("agent", cut=True),
        Column("status"),
        Column("rev"),
        Column("executor", leaves=1),
        Column("submitted"),
        Column("took", leaves=4),
        Column("runs", leaves=3),
        Column("steps", leaves=5),
        Column("tokens", leaves=6),
        Column("cost", leaves=2),
        Column("session", leaves=7, cut=True),
        Column("reason", below=True),
        Column("why", below=True),
    )
    ends = await index.ends_of_ids(line.row.run_id for line in lines) if screen.live else {}
    shown = [_cells(line, ends.get(line.row.run_id, line.row.run_id), live=screen.live) for line in lines]
    screen.table(columns, shown)


def _cells(line: Listed, end: str, *, live: bool) -> list[Cell]:
    """Return the cells of a run. Totals include all runs below: a swarm or loop has no steps of its own.

    On a terminal the sentence about a wait takes the place of its reason.
    """
    from ..output.escaping import one_line
    from ..output.tables import Branch, Id
    from ..output.times import moment

    row, family = line.row, line.family
    reason = f"{row.error_type}: {row.error}" if row.error_type else row.reason
    if row.damage is not None:
        reason = f"damaged at revision {row.damage.revision}: {row.damage.expected}"
    status = row.status if row.damage is None else DAMAGED
    return [
        Id(row.run_id, end, below=line.depth > 0),
        Branch(row.agent_path, line.depth, line.name),
        (status, _STYLES.get(status, "")),
        str(row.revision),
        row.executor,
        moment(row.submitted_at) if row.submitted_at else "",
        f"{max(0.0, row.updated_at - row.submitted_at):.1f} s",
        str(family.runs),
        str(family.steps),
        f"{family.usage.total_tokens:,}",
        cost(family.cost_usd),
        row.session or "",
        "" if live and line.why is not None else one_line(reason or _waits(row)),
        one_line(line.why.sentence) if line.why is not None else "",
    ]


def _waits(row: RunRow) -> str:
    """Return what an open run waits for that is not paused."""
    return "" if row.over or not row.waiting_for else f"waits: {row.waiting_for}"


def cost(cost_usd: str | None) -> str:
    """Format US dollars; a question mark if a price is unknown."""
    return "?" if cost_usd is None else f"${cost_usd}"


def document(line: Listed) -> dict[str, Any]:
    """Return a run as JSON builtins."""
    import msgspec

    return {
        **msgspec.to_builtins(line.row),
        "family": msgspec.to_builtins(line.family),
        "why": msgspec.to_builtins(line.why),
    }
