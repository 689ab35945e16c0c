"""Retention: families are erased some time after their end, and what the log no longer needs is swept.

Any number of workers may do it at once, since a burial is idempotent; to save work they take turns, by a circuit
breaker that is half open for the worker that has the turn and closed to the others until the next one is due.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

import msgspec

from ...eventlog.errors import ConfigError, FoldlogError, LogUnavailable, RunOpen
from ...eventlog.events import BreakerUpdated
from ...eventlog.names import breaker_subject, run_subject
from ...eventlog.ports import Log
from ...projections.projector import RunIndex
from ...projections.run_list import RunRow
from ..journal.outages import try_append
from ..journal.register import read_register, register_write
from ..ports.archives import archive_at
from ..shared.kept_answers import KeptAnswers
from .bury import KEYS_S, Erased, Order, bury
from .erasure import Pace
from .lanes import trim_lane

logger = logging.getLogger("foldlog.retention")

BREAKER = "retention"
EVERY_S = 3600.0
"""The time between two passes of a namespace."""
LOOK_S = 60.0
"""The longest time after which a worker looks whether a pass is due."""
BY = "retention"
"""The author of tombstones that retention writes."""


class AgentRetention(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the runs of one agent; null: as for all."""

    keep_s: float | None = None
    archive: str | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The times for which families and their keys are kept after their root's end, and where their copies go.

    Times are in seconds; `keep_s` null: for ever. `archive` is a URL; empty: no copy.
    """

    keep_s: float | None = None
    archive: str = ""
    keys_s: float = KEYS_S
    agents: Mapping[str, AgentRetention] = {}

    def keep_of(self, agent: str) -> float | None:
        """Return how long the runs of an agent are kept."""
        own = self.agents.get(agent)
        return own.keep_s if own is not None and own.keep_s is not None else self.keep_s

    def archive_of(self, agent: str) -> str:
        """Return the archive of an agent's runs."""
        own = self.agents.get(agent)
        return own.archive if own is not None and own.archive is not None else self.archive


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A pass: the families that were erased, those that failed with the reason, and how many messages were swept."""

    erased: tuple[Erased, ...] = ()
    failed: Mapping[str, str] = {}
    swept: int = 0


def check_waits(retention: Retention, waits: Mapping[str, float]) -> None:
    """Raise `ConfigError` if runs are kept for less than what may still refer to them: `waits` by agent, in seconds."""
    for agent, wait_s in waits.items():
        keep_s = retention.keep_of(agent)
        if keep_s is not None and keep_s < wait_s:
            raise ConfigError(
                f"runs of {agent} are kept for {_days(keep_s)}, but an approval of it waits for {_days(wait_s)}: "
                "keep them for at least as long, or set approval_timeout_s of the agent"
            )


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:g} days" if seconds >= 86_400 else f"{seconds:g} s"  # noqa: PLR2004 - a day


async def due(index: RunIndex, retention: Retention, now: float) -> list[RunRow]:
    """Return the roots that are kept no longer, in the order of their ends."""
    rows = [
        row
        for row in await index.runs(children=False, buried=False, limit=-1)
        if row.over and _is_due(row, retention, now)
    ]
    return sorted(rows, key=lambda row: (row.updated_at, row.run_id))


def _is_due(row: RunRow, retention: Retention, now: float) -> bool:
    keep_s = retention.keep_of(row.agent)
    return keep_s is not None and row.updated_at + keep_s <= now


async def erase_due(log: Log, index: RunIndex, retention: Retention) -> Pass:
    """Erase every family that is due, then sweep. A family that cannot be erased is left for the next pass.

    Raises `LogUnavailable`, `ConfigError` and `ArchiveUnavailable` for an archive that cannot be used, before anything
    is erased.
    """
    rows = await due(index, retention, log.clock.now())
    urls = dict.fromkeys(retention.archive_of(row.agent) for row in rows)
    archives = {url: archive_at(url) for url in urls if url}
    for archive in archives.values():
        await archive.check()
    order, pace = Order(by=BY, keys_s=retention.keys_s), Pace(log.clock)
    erased, failed = list[Erased](), dict[str, str]()
    for row in rows:
        keep = archives.get(retention.archive_of(row.agent))
        pace.begin()
        try:
            root = run_subject(row.shard, row.root_id, row.run_id)
            erased.append(
                await bury(log, root, order, None if keep is None else functools.partial(keep.keep, log))
            )
        except RunOpen:  # a run below it is open, or the read is stale
            continue
        except LogUnavailable:
            raise
        except FoldlogError as error:
            failed[row.run_id] = str(error)
        finally:
            await pace.rest()
    swept = await _sweep(log, [each.session for each in erased if each.session is not None])
    await index.catch_up()
    return Pass(erased=tuple(erased), failed=failed, swept=swept)


async def _sweep(log: Log, sessions: Sequence[str]) -> int:
    """Remove wake-ups that are acknowledged, old values of registers, beginnings of lanes, and answers of a day ago."""
    swept = sum([await trim_lane(log, session) for session in dict.fromkeys(sessions)])
    swept += await KeptAnswers(log).sweep()
    return swept + await log.wakeups.sweep() + await log.events.sweep()


async def take_turn(log: Log, every_s: float = EVERY_S) -> bool:
    """Return whether a pass is due and this process does it; others wait until the next one is due."""
    subject, now = breaker_subject(BREAKER, log.events.shards), log.clock.now()
    head, events = await read_register(log, subject)
    last = events[-1] if events else None
    if isinstance(last, BreakerUpdated) and last.until > now:
        return False
    turn = BreakerUpdated(name=BREAKER, state="half_open", until=now + every_s)
    return await try_append(log, register_write(log, subject, head, turn))


async def retain(log: Log, index: RunIndex, retention: Retention, every_s: float = EVERY_S) -> None:
    """Do a pass whenever one is due and no other process does it, until cancelled. Survives outages."""
    while True:
        try:
            if await take_turn(log, every_s):
                done = await erase_due(log, index, retention)
                if done.erased or done.swept:
                    logger.info(
                        "retention: %d families erased, %d messages swept", len(done.erased), done.swept
                    )
                for run, reason in [*done.failed.items()][:1]:  # the others mostly for the same reason
                    told = "retention: %d families cannot be erased, such as run %s: %s"
                    logger.warning(told, len(done.failed), run, reason)
        except FoldlogError as error:
            logger.warning("retention: %s; it is tried again", error)
        await log.clock.sleep(min(LOOK_S, every_s))
