"""The outcome of a run: the part of its state that a caller of `result()` needs, folded from a few events.

Waiting for a result must cost little compared with the run: the commits' chain is verified, but only the events that
matter are decoded. `RunState` is the reference; a test keeps the two equal.
"""

from __future__ import annotations

import msgspec

from ..eventlog.commits import ORIGIN, Head, verify, verify_envelope
from ..eventlog.events import (
    ChildReturned,
    Error,
    LateOutcome,
    ModelFailed,
    Offloaded,
    OutputMade,
    PlannerReplied,
    Status,
    Step,
    SummaryMade,
    Text,
    TokenUsage,
    ToolCall,
    Usage,
    is_terminal,
)
from ..eventlog.offload import outline_of
from ..eventlog.ports import Stored
from ..eventlog.upcasters import VERSION
from .money import plus_cost

Relevant = (
    Status
    | Step
    | Text
    | Usage
    | PlannerReplied
    | SummaryMade
    | ToolCall
    | ChildReturned
    | OutputMade
    | ModelFailed
    | LateOutcome
    | Offloaded
    | Error
)
_DECODER = msgspec.json.Decoder(Relevant)
_TYPES = frozenset(str(cls.__struct_config__.tag) for cls in Relevant.__args__)


class _Kind(msgspec.Struct):
    type: str


_KIND = msgspec.json.Decoder(_Kind)


class Outcome(msgspec.Struct):
    """The outcome of a run, complete once `terminal` is set. `head` is the last commit that was read.

    `text` and `called` belong to the current step: the text of the reply, and whether it has tool calls.
    """

    head: Head = ORIGIN
    agent_path: str = ""
    terminal: Status | None = None
    error: Error | None = None
    output: str = ""
    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = "0"
    inner_usage: TokenUsage = TokenUsage()
    inner_cost_usd: str | None = "0"
    steps_completed: int = 0
    text: str = ""
    called: bool = False
    aside: bool = False
    """True if an event was offloaded or is sealed, so that the output and the error may be incomplete."""


def fold_stored(outcome: Outcome, stored: Stored) -> None:
    """Fold the next commit in place. Raises `LogCorrupted`."""
    envelope, head = verify_envelope(stored, outcome.head)
    if envelope.v != VERSION:
        events = [
            event for event in verify(stored, outcome.head).commit.events if isinstance(event, Relevant)
        ]
    else:
        events = [_DECODER.decode(raw) for raw in envelope.events if _KIND.decode(raw).type in _TYPES]
    outcome.head, outcome.agent_path = head, envelope.path
    for event in events:
        _apply(outcome, event)


def _apply(outcome: Outcome, event: Relevant) -> None:  # noqa: C901, PLR0912 - one case each
    if event.agent_path:  # forwarded from an inner agent
        return
    outcome.aside = outcome.aside or event.sealed is not None
    match event:
        case Offloaded():
            outcome.aside = True
            stored = outline_of(event)
            if isinstance(stored, Relevant):
                _apply(outcome, stored)
        case Text(step=None):
            outcome.output = event.text
        case Text():
            outcome.text = event.text
        case Usage() | PlannerReplied() | SummaryMade():
            outcome.usage = outcome.usage + event.usage
            outcome.cost_usd = plus_cost(outcome.cost_usd, event.cost_usd)
        case ModelFailed() | LateOutcome():
            if event.usage is not None:
                outcome.usage = outcome.usage + event.usage
                outcome.cost_usd = plus_cost(outcome.cost_usd, event.cost_usd)
        case ChildReturned():
            outcome.inner_usage = outcome.inner_usage + event.usage
            outcome.inner_cost_usd = plus_cost(outcome.inner_cost_usd, event.cost_usd)
        case OutputMade():
            outcome.output = event.output
        case ToolCall():
            outcome.called = outcome.called or not event.executed_by
        case Step(status="started"):
            outcome.text, outcome.called = "", False
        case Step():
            outcome.steps_completed += 1
            outcome.output = outcome.output if outcome.called else outcome.text
        case Error():
            outcome.error = event
        case Status():
            outcome.terminal = event if is_terminal(event) else outcome.terminal
