"""The rows of a run's timeline for the page. Texts are cut, so that even 10,000 rows load quickly."""

from __future__ import annotations

import msgspec

from ...projections.timeline.rows import Level, Row, Tone
from ...projections.timeline.words import value_words

TEXT_MAX = 300


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event: a short description, and its text, cut. `depth` is the number of levels below the root.

    `until` is the end of a wait in Unix seconds, `took_s` how long something took, if its beginning is known.
    """

    revision: int | None
    cursor: str | None
    at: float
    run_id: str
    agent: str
    depth: int
    step: int | None
    type: str
    level: Level
    tone: Tone
    what: str
    detail: str = ""
    until: float | None = None
    took_s: float | None = None


def shown(row: Row) -> TimelineRow:
    """Convert a row of the timeline fold for the page."""
    value = "" if row.value is None else value_words(row.value)
    return TimelineRow(
        revision=row.revision,
        cursor=row.cursor,
        at=row.at,
        run_id=row.run_id,
        agent=row.agent,
        depth=row.agent_path.count("/"),
        step=row.step,
        type=row.type,
        level=row.level,
        tone=row.tone,
        what=row.what,
        detail=" ".join(filter(None, (row.detail or row.child, value)))[:TEXT_MAX],
        until=row.until,
        took_s=row.took_s,
    )
