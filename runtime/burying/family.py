"""The family of a root run as its burying needs it: what is over, what there is to erase, and what is left of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ...eventlog.commits import ORIGIN, Head, Recorded, before, buried_by, head_of, verify
from ...eventlog.errors import LogCorrupted
from ...eventlog.events import Buried, Submitted
from ...eventlog.names import key_subject, shard_in
from ...eventlog.offload import references
from ...eventlog.ports import Family, Log, Subject
from ...projections.family_totals import family_totals
from ...projections.run_list import RunList, RunRow, usual_row
from ..journal.keys import key_of

_TEXTS = (
    *("input", "metadata", "error", "reason", "waiting_for"),
    *("worker", "driven", "waits", "revision", "digest", "position"),
)
"""The fields of a row that a tombstone does not keep: texts, and what says where the run's commits were."""


class FamilyFacts(msgspec.Struct, kw_only=True):
    """The runs of a family by their ids, with their rows and heads; `artifacts` are those that events offloaded.

    `damaged` are the runs whose logs cannot be verified, each with what is wrong.
    """

    root: Subject
    rows: dict[str, RunRow] = {}
    heads: dict[str, Head] = {}
    submitted: Submitted | None = None
    commits: int = 0
    artifacts: list[str] = []
    damaged: dict[str, str] = {}

    @property
    def open(self) -> list[str]:
        """The runs that are not over."""
        return [run for run, row in self.rows.items() if not row.over]

    @property
    def members(self) -> list[str]:
        """The runs below the root."""
        return [run for run in self.rows if run != self.root.id]

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) over a line `RUN DIGEST` for each run, by their ids: the digest of its last commit."""
        lines = (f"{run} {self.heads[run].digest}\n" for run in sorted(self.heads))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def row(self) -> dict[str, Any]:
        """The fields of the root's row that say something, without texts, with the totals of the family."""
        own, totals = self.rows[self.root.id], family_totals(self.rows.values())[self.root.id]
        row = msgspec.structs.replace(own, steps=totals.steps, usage=totals.usage, cost_usd=totals.cost_usd)
        kept: dict[str, Any] = msgspec.to_builtins(row)
        usual: dict[str, Any] = msgspec.to_builtins(usual_row(own))
        needed = ("agent", "agent_path", "submitted_at", "updated_at")
        return {
            name: value
            for name, value in kept.items()
            if name not in _TEXTS and (name in needed or value != usual[name])
        }

    def key(self, shards: int) -> Subject | None:
        """Return the subject of the root's idempotency key, if it has one."""
        if self.submitted is None:
            return None
        key = key_of(self.submitted, self.root.id, shards, chosen=shard_in(self.root.id) is None)
        return key_subject(key, shards) if key else None


async def read_family(log: Log, root: Subject, *, damaged: bool = False) -> FamilyFacts:
    """Read a family that is not buried. Raises `LogCorrupted` unless `damaged`, and `RunGone` if it is buried."""
    facts, runs = FamilyFacts(root=root), RunList()
    artifacts: dict[str, None] = {}
    async for stored in log.events.read(Family(root.shard, root.root)):
        run = stored.subject.id
        known = facts.heads.get(run, ORIGIN)
        try:
            recorded = verify(stored, known)
        except LogCorrupted as error:
            if not damaged:
                raise
            facts.damaged.setdefault(run, error.expected)
            try:
                recorded = verify(stored, before(stored))
            except LogCorrupted:  # only its position is known
                facts.heads[run] = msgspec.structs.replace(known, position=stored.position)
                continue
        facts.rows[run] = runs.evolve(facts.rows.get(run), recorded)
        facts.heads[run] = head_of(recorded)
        facts.commits += 1
        artifacts.update(dict.fromkeys(references(recorded.commit.events)))
        if facts.submitted is None and run == root.id:
            facts.submitted = next((e for e in recorded.commit.events if isinstance(e, Submitted)), None)
    facts.artifacts = list(artifacts)
    return facts


class Tombstone(msgspec.Struct, frozen=True):
    """A tombstone as stored, and the event in it."""

    recorded: Recorded
    event: Buried


async def tombstone_of(log: Log, root: Subject) -> Tombstone | None:
    """Return the tombstone of a root run, if it has one."""
    last = await log.events.head(root)
    found = buried_by(last)
    if last is None or found is None:
        return None
    commit, event = found
    return Tombstone(Recorded(root, last.position, commit, ""), event)


async def remains(log: Log, root: Subject) -> Mapping[Subject, tuple[int, int]]:
    """Return the first and the last position of each run of a family, unverified, whatever is left of it."""
    found: dict[Subject, tuple[int, int]] = {}
    async for stored in log.events.read(Family(root.shard, root.root)):
        first, _ = found.get(stored.subject, (stored.position, 0))
        found[stored.subject] = first, stored.position
    return found
