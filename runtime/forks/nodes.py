"""What the fork of a run that coordinates others shares with it: the nodes, values and iterations up to a revision.

    a node that is completed there           stays, with its output
    one that failed or was cancelled         is open again, unless the run has gone on with it (a loop's next iteration)
    one that is open                         goes on in the fork, where it stood when the run came to its next revision
    a function that failed                   is asked again
    the end of an iteration, and of the run  is decided again

Never taken over are the driving, pauses, cancels and the end. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...eventlog.events import (
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Evaluated,
    Prepared,
    RalphIteration,
    ResultRecorded,
    StoredEvent,
    Submitted,
    Unknown,
)
from ..core.turn import Turn
from .history import ForkTarget, History


def take_over_nodes(
    history: History,
    at: int,
    submitted: Submitted,
    home: ForkTarget,
    now: float,
    recorded: Iterable[ResultRecorded] = (),
) -> Turn:
    """The turn that opens the fork of a coordinating run: what it shares up to revision `at`, made whole, and folded.

    A node whose run is not among `home.children` is not shared, and starts again; `recorded` has results for it.
    """
    turn = home.turn(submitted, now)
    turn.add(*recorded)
    kept = list(_kept(history[:at], home))
    while kept and isinstance(kept[-1], RalphIteration) and kept[-1].status != "started":
        kept.pop()
    turn.add(*map(home.rebase, kept))
    return turn


def has_node(history: History, at: int) -> bool:
    """Return whether a node or a function has begun up to the revision: something may have seen the run's input."""
    return any(isinstance(event, ChildStarted | Evaluated) for event in history[:at])


def _kept(own: History, home: ForkTarget) -> Iterator[StoredEvent | Unknown]:
    over = set(_over(own))
    for event in own:
        match event:
            case Prepared() | RalphIteration() | Evaluated(error=None):
                yield event
            case ChildStarted(child_run=child) if child in home.children:
                yield event
            case ChildReturned(child_run=child) | ChildFinished(child_run=child) if child in over:
                yield event
            case _:
                pass


def _over(own: History) -> Iterator[str]:
    """The child runs that are over for the fork, too."""
    gone_on = False
    for event in reversed(own):
        if isinstance(event, Evaluated):
            gone_on = gone_on or event.error is None
        elif isinstance(event, RalphIteration):
            gone_on = gone_on or event.status == "started"
        elif isinstance(event, ChildFinished) and (gone_on or event.status == "completed"):
            yield event.child_run
