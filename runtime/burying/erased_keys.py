"""Erasing the key of a user, a session or a run: what was sealed under it is unreadable in every copy (W59)."""

from __future__ import annotations

from ...eventlog.errors import ConfigError, RunOpen
from ...eventlog.sealing.log import SealedLog
from ...projections.projector import RunIndex
from ...projections.run_list import RunRow


def owner_named(user: str | None, session: str | None, run: str | None) -> str:
    """Return the owner of a key. Raises `ConfigError` unless exactly one is named."""
    named = {"user": user, "session": session, "run": run}
    given = [f"{kind}:{name}" for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ConfigError("name one owner of a key: a user, a session or a run")
    return given[0]


async def erase_key(log: SealedLog, index: RunIndex, owner: str, by: str = "", reason: str = "") -> bool:
    """Erase the key of an owner for good, and return whether there was one.

    Raises `RunOpen` for a run that still needs it: a run without its words cannot go on, so it is cancelled before.
    A run that is submitted at the same time is cancelled by the worker that finds it.
    """
    for row in await _rows(index, owner):
        if not row.over:
            raise RunOpen(row.run_id)
    return await log.ring.erase(owner, by, reason)


async def _rows(index: RunIndex, owner: str) -> list[RunRow]:
    """Return the root runs that are sealed under the key of an owner: its own, and forks of them."""
    kind, _, name = owner.partition(":")
    match kind:
        case "user":
            rows = await index.runs(-1, user=name, children=False)
        case "session":
            rows = [row for row in await index.runs(-1, session=name, children=False) if row.user is None]
        case _:
            rows = [row for row in await index.runs(-1, root_id=name) if row.run_id == name]
    found, fresh = {row.run_id: row for row in rows}, [row.run_id for row in rows]
    while fresh:
        forks = [row for run in fresh for row in await index.runs(-1, forked_from=run)]
        fresh = [row.run_id for row in forks if row.run_id not in found]
        found |= {row.run_id: row for row in forks}
    return list(found.values())
