"""The traces of both runs side by side, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from ...eventlog.events import Claimed, to_json
from ...replay import Boundary, Canonical, Comparison, Trace, canonical, compare
from ...replay.ordering.rule_texts import explain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takeover:
    """A takeover: the killed worker, the one that took over, and the latter's claim, `after_ms` milliseconds later."""

    killed: str
    by: str
    epoch: int
    revision: int
    after_ms: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table: a boundary of each side, or the takeover."""

    number: int
    local: Boundary | None = None
    durable: Boundary | None = None
    driver: str = ""
    takeover: Takeover | None = None

    @property
    def equal(self) -> bool:
        """True if both sides are equal on this line."""
        return self.local is not None and self.durable is not None and self.local.key == self.durable.key


class Proof:
    """The traces of the local run and of the durable one, their canonical forms, and the comparison."""

    def __init__(self, local: Trace, durable: Trace, takeover: Takeover) -> None:
        self.traces, self.takeover = (local, durable), takeover
        self.forms: tuple[Canonical, Canonical] = (canonical(local), canonical(durable))
        self.comparison: Comparison = compare(*self.traces)

    @property
    def verdict(self) -> str:
        """Return the verdict in one line, with the number of boundaries in each canonical form."""
        equal, total = self.comparison.boundaries
        word = "equal" if self.comparison.equal else "different"
        return f"parity: {word} ({equal} of {total} boundaries)"

    @property
    def difference(self) -> str:
        """Return the first difference of the traces; empty if there is none."""
        found = self.comparison.first_difference
        if found is None:
            return ""
        left, right = found.revisions
        return f"level {found.level}: {found.why} (local {left}, durable {right}); {explain(found.rule)}"

    def lines(self) -> Iterator[Line]:
        """Yield the rows: pairs of boundaries in canonical order, and the takeover at its place in the durable log."""
        claims = [event for event in self.traces[1].events if isinstance(event, Claimed)]
        told = False
        pairs = zip_longest(self.forms[0].boundaries, self.forms[1].boundaries)
        for number, (local, durable) in enumerate(pairs, 1):
            at = min(durable.revisions, default=0) if durable is not None else 0
            if not told and at > self.takeover.revision:
                told = True
                yield Line(number=0, takeover=self.takeover)
            driver = [claim.worker for claim in claims if (claim.revision or 0) <= at]
            yield Line(number=number, local=local, durable=durable, driver=driver[-1] if driver else "")

    def document(self) -> dict[str, Any]:
        """Return the proof as JSON builtins, for `--json`."""
        sides = zip(("local", "durable"), self.traces, self.forms, strict=True)
        runs = {
            name: {
                "run_id": trace.root,
                "digest": form.digest,
                "canonical": [boundary.label for boundary in form.boundaries],
                "trace": [to_json(event) for event in trace.observable],
            }
            for name, trace, form in sides
        }
        equal, total = self.comparison.boundaries
        return {
            **runs,
            "takeover": dataclasses.asdict(self.takeover),
            "parity": {
                "equal": self.comparison.equal,
                "boundaries_equal": equal,
                "boundaries": total,
                "difference": self.difference or None,
            },
        }
