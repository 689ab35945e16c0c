"""What a log can say about messages that it has lost, beyond what the chain of each run shows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

RUNS_NAMED_MAX = 20
"""How many missing runs a sentence names."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Positions `first` to `last` of a stream that are gone, or do not hold what was stored there. 0: the whole stream.

    `shard` is None for the stream of the artifacts.
    """

    stream: str
    shard: int | None
    first: int
    last: int
    problem: str

    def __str__(self) -> str:
        """One line for people."""
        where = f"shard {self.shard}" if self.shard is not None else "artifacts"
        if not self.last:
            return f"{where} (stream {self.stream}): {self.problem}"
        span = (
            f"position {self.first}" if self.first == self.last else f"positions {self.first} to {self.last}"
        )
        return f"{where} (stream {self.stream}), {span}: {self.problem}"


class MissingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of which the log holds no commit any more, and what still names it."""

    run: str
    known_by: str


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What every position of a namespace's streams was found to be.

    `losses` are neither there nor known to have been removed; `accepted` are losses that an operator knows of.
    `missing` are runs of which nothing is left, as far as a seal, a key, a session, a wake-up or a parent names them.
    `positions` is how many were looked at, `sealed` how far the seals of each shard reach.
    """

    losses: tuple[Loss, ...] = ()
    accepted: tuple[Loss, ...] = ()
    missing: tuple[MissingRun, ...] = ()
    positions: int = 0
    sealed: tuple[int, ...] = ()

    def lines(self) -> list[str]:
        """What is lost, for people."""
        return [*map(str, self.losses), *self.missing_line()]

    def missing_line(self) -> list[str]:
        """The runs that are missing, in one line; none for none."""
        if not self.missing:
            return []
        named = ", ".join(f"{each.run} (in {each.known_by})" for each in self.missing[:RUNS_NAMED_MAX])
        more = len(self.missing) - RUNS_NAMED_MAX
        return [f"missing as a whole: {named}" + (f" and {more} more" if more > 0 else "")]


@runtime_checkable
class Audited(Protocol):
    """A log that can account for every position that it has given out."""

    async def audit(self) -> Audit:
        """Read every stream of the namespace and account for each position. Raises `LogUnavailable`."""
        ...

    async def accept(self, losses: tuple[Loss, ...]) -> None:
        """Note in the log that these losses are known: an audit lists them apart. Raises `LogUnavailable`."""
        ...
