"""A projection: a pure fold from the commits of a run to one row, with a name and a version.

A changed fold, or a changed row, takes a higher version; stores of rows then build them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from ..eventlog.commits import Recorded

Value = str | int | float | None
"""What an indexed column may hold."""

RowT = TypeVar("RowT", bound=msgspec.Struct)


class Projection(Protocol[RowT]):
    """What rows of one kind mean. The key of a row is the run's id."""

    @property
    def name(self) -> str:
        """A name of letters and `_`, the same for ever."""
        ...

    @property
    def version(self) -> int:
        """Of the fold and of the row."""
        ...

    @property
    def row(self) -> type[RowT]:
        """The rows' type; msgspec encodes and decodes it."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the values that rows can be found and ordered by."""
        ...

    def evolve(self, row: RowT | None, recorded: Recorded) -> RowT | None:
        """Fold a run's next commit; None stands for no row. Total: never raises for a verified commit."""
        ...

    def index(self, row: RowT) -> tuple[Value, ...]:
        """The values of `columns`, in their order."""
        ...


def fold(projection: Projection[RowT], commits: Iterable[Recorded]) -> dict[str, RowT]:
    """The rows of these commits, by run: what every way of keeping them must come to."""
    rows: dict[str, RowT] = {}
    for recorded in commits:
        row = projection.evolve(rows.get(recorded.commit.run), recorded)
        if row is not None:
            rows[recorded.commit.run] = row
    return rows
