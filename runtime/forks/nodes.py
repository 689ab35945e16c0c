"""The history that the fork of a swarm or loop shares with it: the nodes, values and iterations up to a revision.

    a node that is completed there           is kept, with its output
    one that failed or was cancelled         is open again, unless the run went on after it (a loop's next iteration)
    one that is open                         goes on in the fork, from where it was at the run's next revision
    a function that failed                   is called again
    the end of an iteration, and of the run  is decided again

Never copied are events of driving, pauses, cancels and the end. Pure: no clock, no I/O.
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
    target: ForkTarget,
    now: float,
    recorded: Iterable[ResultRecorded] = (),
) -> Turn:
    """Return the turn that opens the fork of a swarm or loop: the events it shares up to revision `at`, folded.

    A node that is not among the target's children is not shared, and starts again; `recorded` has results for it.
    """
    turn = target.turn(submitted, now)
    turn.add(*recorded)
    kept = list(_kept(history[:at], target))
    while kept and isinstance(kept[-1], RalphIteration) and kept[-1].status != "started":
        kept.pop()
    turn.add(*map(target.rebase, kept))
    return turn


def has_node(history: History, at: int) -> bool:
    """Return whether a node or a function began up to the revision: it may have read the run's input."""
    return any(isinstance(event, ChildStarted | Evaluated) for event in history[:at])


def _kept(own: History, target: ForkTarget) -> Iterator[StoredEvent | Unknown]:
    over = set(_over(own))
    for event in own:
        match event:
            case Prepared() | RalphIteration() | Evaluated(error=None):
                yield event
            case ChildStarted(child_run=child) if child in target.children:
                yield event
            case ChildReturned(child_run=child) | ChildFinished(child_run=child) if child in over:
                yield event
            case _:
                pass


def _over(own: History) -> Iterator[str]:
    """Yield the child runs that are over for the fork, too."""
    gone_on = False
    for event in reversed(own):
        if isinstance(event, Evaluated):
            gone_on = gone_on or event.error is None
        elif isinstance(event, RalphIteration):
            gone_on = gone_on or event.status == "started"
        elif isinstance(event, ChildFinished) and (gone_on or event.status == "completed"):
            yield event.child_run
