"""Erasing the key of a user, a session or a run: what was sealed under it is unreadable in every copy (W59)."""

from __future__ import annotations

import msgspec

from ...eventlog.errors import ConfigError, RunOpen
from ...eventlog.sealing.log import SealedLog
from ...projections.projector import RunIndex
from ...projections.run_list import SEALED, RunRow


class ErasedOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of an erased key: its id, whose it was, when (Unix seconds), by whom and why it was erased.

    `runs` are the roots that nobody can read any more. A copy of the wrapped key that was made before still opens
    copies of them, for who has the wrapping key `wrapped_by`.
    """

    namespace: str
    owner: str
    key: str
    wrapped_by: str
    at: float
    by: str = ""
    reason: str = ""
    runs: tuple[str, ...] = ()


def owner_named(user: str | None, session: str | None, run: str | None) -> str:
    """Return the owner of a key. Raises `ConfigError` unless exactly one is named."""
    named = {"user": user, "session": session, "run": run}
    given = [f"{kind}:{name}" for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ConfigError("name one owner of a key: a user, a session or a run")
    return given[0]


async def erase_key(
    log: SealedLog, index: RunIndex, owner: str, by: str = "", reason: str = ""
) -> ErasedOwner | None:
    """Erase the key of an owner for good, and return the receipt; null if there was no key.

    Raises `RunOpen` for a run that still needs it: a run without its words cannot go on, so it is cancelled before.
    A run that is submitted at the same time is cancelled by the worker that finds it. Raises `LogCorrupted` while a run
    is damaged, since nobody knows whose it is.
    """
    await index.check_intact()
    rows = await _rows(index, owner)
    for row in rows:
        if not row.over:
            raise RunOpen(row.run_id)
    before = (await log.ring.record(owner)).key
    if not await log.ring.erase(owner, by, reason) or before is None:
        return None
    record = await log.ring.record(owner)
    gone = record.erased[-1]
    return ErasedOwner(
        namespace=log.namespace,
        owner=owner,
        key=record.id_of(gone.number),
        wrapped_by=before.by,
        at=gone.at,
        by=gone.by,
        reason=gone.reason,
        runs=tuple(row.run_id for row in rows if row.input == SEALED),
    )


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
