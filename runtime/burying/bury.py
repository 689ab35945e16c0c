"""Burying a family: a copy if one is wanted, then a tombstone, and only then the purge (W48 to W51).

    copied      the copy is stored and was read back; a reaper that dies here finds it again by its name
    buried      the tombstone is the last commit of the root's log; the family is gone for every reader
    purged      all before the tombstone is erased, in any order and as often as needed

The tombstone is stored together with a timer: if the reaper dies before the purge is done, the timer becomes a wake-up
of the run, and the worker that gets it completes the purge. Another timer ends the memory of the run's key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from ...eventlog.commits import Commit, encode
from ...eventlog.errors import (
    ConfigError,
    LogCorrupted,
    LogUnavailable,
    RunGone,
    RunNotFound,
    RunOpen,
)
from ...eventlog.events import Buried
from ...eventlog.names import run_subject
from ...eventlog.ports import At, CommitWrite, Log, Subject, Timer, TimerWrite, Wakeup
from ..core.submission import check_text
from ..journal.keys import drop_key, settle_key
from ..journal.outages import Decisions, try_append
from .family import FamilyFacts, Tombstone, read_family, remains, tombstone_of

PURGE, FORGET_KEY = "bury:purge", "bury:key"
"""The timers of a tombstone, by what they lead to."""
PURGE_AFTER_S = 60.0
"""The time that a reaper has for its purge before a worker looks after it."""
KEYS_S = 90 * 86_400.0
"""The time for which a key keeps its run gone, from the submission of the run."""
PURGES_MAX = 5

Keep = Callable[[Subject, str], Awaitable[str]]
"""Stores the copy of a family (its root, its digest), reads it back, and returns its URL. Idempotent."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The wish to bury: `by` whom and why, and for how long keys keep their runs gone (seconds)."""

    by: str = ""
    reason: str = ""
    keys_s: float = KEYS_S


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The burial of a family, as a receipt lists it. Times are Unix seconds, digests SHA-256 (hex).

    `runs` has the digest of the last commit of each run, `digest` is that of the family. `before`: it was buried
    already, so that only the tombstone is known, and no digests of the runs below the root (they are empty). `user` and
    `session` are those of the root. `purged`: nothing of it is left but the tombstone; else this user of the server may
    not erase, and a worker does, a minute later. `damaged` says of runs what was wrong with their logs, of which only
    what was left could be erased.
    """

    run_id: str
    how: str
    at: float
    url: str = ""
    by: str = ""
    reason: str = ""
    digest: str
    runs: dict[str, str] = {}
    commits: int = 0
    artifacts: list[str] = []
    user: str | None = None
    session: str | None = None
    before: bool = False
    purged: bool = True
    damaged: dict[str, str] = {}


def root_of(run: Subject) -> Subject:
    """Return the subject of the root of a run."""
    return run_subject(run.shard, run.root, run.root)


async def check_buriable(log: Log, root: Subject, *, damaged: bool = False) -> FamilyFacts:
    """Return the family of a root whose runs are all over.

    Raises `RunOpen`, `RunGone`, `RunNotFound`, `ConfigError` for a run below another, and `LogCorrupted` unless
    `damaged`.
    """
    if root.id != root.root:
        raise ConfigError(
            f"run {root.id} is below run {root.root}: a family is erased as a whole, by its root"
        )
    family = await read_family(log, root, damaged=damaged)
    if root.id not in family.rows:
        raise RunNotFound(f"there is no run {root.id!r} in namespace {log.namespace!r}")
    for run in family.open:
        if run not in family.damaged:  # else no worker can drive it to its end, or cancel it
            raise RunOpen(run)
    return family


async def bury(
    log: Log,
    root: Subject,
    order: Order,
    keep: Keep | None = None,
    *,
    damaged: bool = False,
    leave_purge: bool = False,
) -> Erased:
    """Erase the family of a root run that is over; with `keep`, after its copy is stored. Idempotent.

    `damaged`: also if its log is, as far as it is there. `leave_purge`: if the server does not allow this process to
    purge, a worker does it later. Raises `RunOpen`, `RunNotFound`, `ConfigError` for a run that is not a root,
    `LogCorrupted` unless `damaged`, `LogUnavailable`, and the errors of `keep`, before anything is erased.
    """
    check_text("the reason", order.reason)
    check_text("the name of the author", order.by)
    async for _ in Decisions(log.clock):
        try:
            family = await check_buriable(log, root, damaged=damaged)
        except RunGone:
            return await _completed(log, root, leave_purge=leave_purge)
        except LogCorrupted:
            if await tombstone_of(log, root) is None:
                raise
            return await _completed(log, root, leave_purge=leave_purge)
        url = await keep(root, family.digest) if keep is not None else ""
        erased = await _marked(log, family, order, url)
        if erased is not None:
            purged = await _purged(log, root, leave_purge=leave_purge)
            return msgspec.structs.replace(erased, purged=purged)
    raise LogUnavailable(f"run {root.id} changes faster than it can be erased; try again")


async def _marked(log: Log, family: FamilyFacts, order: Order, url: str) -> Erased | None:
    """Append the tombstone; null if another writer was first, or the outcome is unknown."""
    root, now = family.root, log.clock.now()
    head, row, key = family.heads[root.id], family.rows[root.id], family.key(log.events.shards)
    if key is not None:  # else the submission would stay in the register of the key
        await settle_key(log, key, root.id)
    event = Buried(
        how="archived" if url else "deleted",
        url=url,
        by=order.by,
        reason=order.reason,
        revisions=head.rev,
        digest=family.digest,
        row=family.row,
        members=family.members,
        key="" if key is None else f"{key.shard:02x}.{key.id}",
    )
    commit = Commit(
        run=root.id,
        root=root.id,
        rev=head.rev + 1,
        append=log.clock.new_id(),
        prev=head.digest,
        epoch=0,
        at=now,
        path=row.agent_path,
        events=(event,),
    )
    timers = [TimerWrite(_timer(root, row.agent_path, head.rev + 1, PURGE, now + PURGE_AFTER_S))]
    if key is not None:
        due_at = max(now, row.submitted_at + order.keys_s)
        timers.append(TimerWrite(_timer(root, row.agent_path, head.rev + 1, FORGET_KEY, due_at)))
    if not await try_append(log, CommitWrite(root, At(head.position), encode(commit)), *timers):
        return None
    return Erased(
        run_id=root.id,
        how=event.how,
        at=now,
        url=url,
        by=order.by,
        reason=order.reason,
        digest=event.digest,
        runs={run: each.digest for run, each in family.heads.items()},
        commits=family.commits,
        artifacts=family.artifacts,
        user=row.user,
        session=row.session,
        damaged=family.damaged,
    )


def _timer(root: Subject, path: str, revision: int, ref: str, due_at: float) -> Timer:
    wakeup = Wakeup(
        shard=root.shard,
        agent=path.partition("/")[0],
        root=root.id,
        run=root.id,
        kind="timer",
        ref=ref,
        cause=revision,
    )
    return Timer(id=ref, due_at=due_at, wakeup=wakeup)


async def _purged(log: Log, root: Subject, *, leave_purge: bool) -> bool:
    """Purge, and return False if the server does not allow it and that may be. Raises what `purge` raises."""
    try:
        await purge(log, root)
    except ConfigError:
        if not leave_purge:
            raise
        return {root} == (left := await remains(log, root)).keys() and len({*left[root]}) == 1
    return True


async def _completed(log: Log, root: Subject, *, leave_purge: bool) -> Erased:
    """Complete the purge of a family that is buried; return what its tombstone says."""
    purged = await _purged(log, root, leave_purge=leave_purge)
    tombstone = await tombstone_of(log, root)
    if tombstone is None:
        raise LogUnavailable(f"the tombstone of run {root.id} is not visible now; try again")
    event, commit = tombstone.event, tombstone.recorded.commit
    return Erased(
        run_id=root.id,
        how=event.how,
        at=commit.at,
        url=event.url,
        by=event.by,
        reason=event.reason,
        digest=event.digest,
        runs={**dict.fromkeys(event.members, ""), root.id: commit.prev},
        user=event.row.get("user"),
        session=event.row.get("session"),
        before=True,
        purged=purged,
    )


async def purge(log: Log, root: Subject) -> Tombstone:
    """Erase all that a tombstone stands for: of the runs below first, and of the root last. Repeatable at will.

    A member may be written until it is gone, by a call that its end left behind; so it looks again.
    """
    tombstone = await tombstone_of(log, root)
    if tombstone is None:
        raise LogUnavailable(f"the tombstone of run {root.id} is not visible yet; try again")
    for _ in range(PURGES_MAX):
        left = await remains(log, root)
        below = {subject: last + 1 for subject, (_, last) in left.items() if subject != root}
        await log.events.purge(below)
        await _purge_rest(log, root, {*tombstone.event.members, *(subject.id for subject in below)})
        await drop_submission(log, tombstone)
        await log.events.purge({root: tombstone.recorded.position})
        if not below and left.get(root, (0, 0))[0] == tombstone.recorded.position:
            break
    await log.timers.cancel(_timer(root, tombstone.recorded.commit.path, 0, PURGE, 0.0))
    return tombstone


async def _purge_rest(log: Log, root: Subject, members: set[str]) -> None:
    await asyncio.gather(*(log.snapshots.purge(run) for run in (root.id, *sorted(members))))
    await log.drafts.purge(root.id)
    await log.artifacts.purge(root.id)


async def drop_submission(log: Log, tombstone: Tombstone) -> None:
    """Erase the submission from the register of the run's key."""
    key = key_in(tombstone.event)
    if key is not None:
        last = await log.events.head(key)
        await log.events.purge({key: last.position if last is not None else 0})


def key_in(event: Buried) -> Subject | None:
    """Return the subject of the key that a tombstone names."""
    shard, _, name = event.key.partition(".")
    return Subject(int(shard, 16), "key", "", name) if name else None


async def see_burial_through(log: Log, wakeup: Wakeup) -> None:
    """Handle the wake-up of a buried run: complete its purge, or forget its key once its time is over."""
    root = run_subject(wakeup.shard, wakeup.root, wakeup.root)
    if wakeup.ref == FORGET_KEY:
        tombstone = await tombstone_of(log, root)
        key = key_in(tombstone.event) if tombstone is not None else None
        if key is not None:
            await drop_key(log, key, root.id)
        return
    await purge(log, root)
