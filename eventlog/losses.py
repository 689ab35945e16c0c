"""Reports of lost messages, beyond the losses that the hash chain of each run shows."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

RUNS_NAMED_MAX = 20
"""The number of missing runs that a sentence names."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Positions `first` to `last` of a stream that are lost or have changed content; 0 for the whole stream.

    `shard` is None for the stream of the artifacts.
    """

    stream: str
    shard: int | None
    first: int
    last: int
    problem: str

    def __str__(self) -> str:
        """Return the loss in one line."""
        where = f"shard {self.shard}" if self.shard is not None else "artifacts"
        if not self.last:
            return f"{where} (stream {self.stream}): {self.problem}"
        span = (
            f"position {self.first}" if self.first == self.last else f"positions {self.first} to {self.last}"
        )
        return f"{where} (stream {self.stream}), {span}: {self.problem}"


class MissingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run without any commit left in the log; `known_by` is the record that still names it."""

    run: str
    known_by: str


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking every position of a namespace's streams.

    `losses` are positions that are missing and not known to have been removed; `accepted` are losses that an operator
    has accepted. `missing` are runs without any commit that a seal, a key, a session, a wake-up or a parent still
    names, `damaged` runs that lack some of their commits, each with what is wrong. `positions` is the number of
    positions checked, `sealed` the last sealed position of each shard.
    """

    losses: tuple[Loss, ...] = ()
    accepted: tuple[Loss, ...] = ()
    missing: tuple[MissingRun, ...] = ()
    damaged: dict[str, str] = {}
    positions: int = 0
    sealed: tuple[int, ...] = ()

    def lines(self) -> list[str]:
        """Return the losses as lines of text."""
        return [*map(str, self.losses), *self.run_lines()]

    def run_lines(self) -> list[str]:
        """Return the missing runs and the damaged ones as a line of text each; no line if there are none."""
        missing = [f"{each.run} (in {each.known_by})" for each in self.missing]
        damaged = [f"{run} ({problem})" for run, problem in self.damaged.items()]
        told = [("runs completely missing", missing), ("runs that lack commits", damaged)]
        return [_some(what, runs) for what, runs in told if runs]


def _some(what: str, runs: list[str]) -> str:
    more = len(runs) - RUNS_NAMED_MAX
    return f"{what}: {', '.join(runs[:RUNS_NAMED_MAX])}" + (f" and {more} more" if more > 0 else "")


@runtime_checkable
class Audited(Protocol):
    """A log that can account for every position that it has assigned."""

    async def audit(self) -> Audit:
        """Read every stream of the namespace and account for each position. Raises `LogUnavailable`."""
        ...

    async def accept(self, losses: tuple[Loss, ...]) -> None:
        """Record in the log that these losses are accepted; audits list them separately. Raises `LogUnavailable`."""
        ...
