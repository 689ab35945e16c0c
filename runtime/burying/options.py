"""The options of an erasure, and the erasure with them; what it needs is imported when it is used."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from ...eventlog.errors import ConfigError
from ...eventlog.ports import Log

if TYPE_CHECKING:
    from ...projections.projector import RunIndex
    from ..ports.knowledge import KnowledgeStore
    from .bury import Erased
    from .erasure import Receipt


class EraseOptions(TypedDict, total=False):
    """The selection by other than ids, and how it is recorded."""

    user: str
    session: str
    agent: str
    before: float
    """The Unix time in seconds before which they ended."""
    archive: str
    by: str
    reason: str
    keys_s: float
    """For how long keys keep their runs gone, from the submission; default 90 days."""
    interval_s: float
    """The least time between the erasures of two families; default a twentieth of a second, more if the log is slow."""
    stopping: asyncio.Event
    """Once it is set, no further family is begun."""
    told: Callable[[Erased], object]
    """Called with each family once it is erased: what is known if the erasure then fails."""


async def erase(
    log: Log,
    index: RunIndex,
    knowledge: KnowledgeStore,
    run_ids: Sequence[str],
    options: EraseOptions,
    *,
    with_copies: bool,
    dry_run: bool,
) -> Receipt:
    """Erase what is selected (`Runtime.delete`)."""
    from ..ports.archives import archive_at
    from .bury import KEYS_S, Order
    from .erasure import Eraser, selection_of

    unknown = options.keys() - EraseOptions.__annotations__.keys()
    if unknown:
        raise ConfigError(
            f"unknown option {min(unknown)!r}; known: {', '.join(EraseOptions.__annotations__)}"
        )
    keys_s = options.get("keys_s", KEYS_S)
    if not 0 <= keys_s < math.inf:
        raise ConfigError(f"keys_s must be a number of seconds from 0 on, not {keys_s!r}")
    interval_s = options.get("interval_s", 0.0)
    if not 0 <= interval_s < math.inf:
        raise ConfigError(f"interval_s must be a number of seconds from 0 on, not {interval_s!r}")
    order = Order(by=options.get("by", ""), reason=options.get("reason", ""), keys_s=keys_s)
    archive = archive_at(options["archive"]) if options.get("archive") else None
    selection = selection_of(
        run_ids, options.get("user"), options.get("session"), options.get("agent"), options.get("before")
    )
    eraser = Eraser(
        log,
        index,
        order,
        archive=archive,
        knowledge=knowledge,
        interval_s=interval_s,
        stopping=options.get("stopping"),
        told=options.get("told"),
    )
    return await eraser.erase(selection, with_copies=with_copies, dry_run=dry_run)
