"""A projection: a pure fold from the commits of a run to one row, with a name and a version.

A changed fold or row type needs a higher version; stores of rows then rebuild them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from ..eventlog.commits import Recorded, tombstone_in
from ..eventlog.errors import LogCorrupted
from ..eventlog.ports import Subject

Value = str | int | float | None
"""A value of an indexed column."""

RowT = TypeVar("RowT", bound=msgspec.Struct)


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """The damage of a run's log, as `LogCorrupted` says it. `detail` is where it is, and what an operator can do."""

    revision: int
    expected: str
    detail: str


def damage_of(error: LogCorrupted) -> Damage:
    """Return the damage that a reader was told of."""
    return Damage(
        revision=error.revision,
        expected=error.expected,
        detail=f"the log of run {error.run} is damaged at revision {error.revision}: {error.expected}. Restore its "
        "stream, then run `foldlog projections rebuild`; or erase what is left: `foldlog runs delete "
        f"{error.run}`.",
    )


class Projection(Protocol[RowT]):
    """A fold to rows of one type. The key of a row is the run's id."""

    @property
    def name(self) -> str:
        """The name: letters and `_`. It never changes."""
        ...

    @property
    def version(self) -> int:
        """The version of the fold and the row type."""
        ...

    @property
    def row(self) -> type[RowT]:
        """The type of the rows; msgspec encodes and decodes it."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the values that queries can name."""
        ...

    @property
    def indexes(self) -> tuple[tuple[str, ...], ...]:
        """The combinations of columns that queries select or sort by; stores of rows keep each of them sorted.

        The key is the last of each, unless it is named.
        """
        ...

    def evolve(self, row: RowT | None, recorded: Recorded) -> RowT | None:
        """Fold a run's next commit; None means no row. Never raises for a verified commit.

        A tombstone ends the rows of the runs below its run without this.
        """
        ...

    def damaged(self, row: RowT | None, subject: Subject, damage: Damage) -> RowT | None:
        """Return the row of a run that cannot be read any further; it was folded up to the damage.

        A reader may find the same run damaged several times.
        """
        ...

    def index(self, row: RowT) -> tuple[Value, ...]:
        """Return the values of `columns`, in their order."""
        ...


def fold(projection: Projection[RowT], commits: Iterable[Recorded]) -> dict[str, RowT]:
    """Fold all commits to rows by run; this is the reference for every store of rows."""
    rows: dict[str, RowT] = {}
    for recorded in commits:
        row = projection.evolve(rows.get(recorded.commit.run), recorded)
        if row is not None:
            rows[recorded.commit.run] = row
        elif recorded.commit.run in rows:
            del rows[recorded.commit.run]
        tombstone = tombstone_in(recorded.commit)
        for member in tombstone.members if tombstone is not None else ():
            rows.pop(member, None)
    return rows
