"""The rows of a run's timeline as the page gets them: texts are cut, so that 10,000 rows are a quick answer."""

from __future__ import annotations

import msgspec

from ...projections.timeline.rows import Level, Row, Tone
from ...projections.timeline.words import value_words

TEXT_MAX = 300


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event: what it says in a few words, and its text, cut. `depth` is the level below the root.

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
    """Return a row of the fold for the page."""
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
