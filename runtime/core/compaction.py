"""Keeping the prompt within the model's window: what is cut, when, and the summary that replaces it.

Two kinds of cuts, at step boundaries and before the planner:

    window    keeps the newest messages and the run's own input; when there are too many messages, or above
              `trigger_pct`
    compact   keeps only the newest messages of users; above `compact_pct`, above the limit of the context budget, and
              when the provider reports that the request does not fit. At most once in a step; for the limit once in
              a run

The summary covers exactly the messages that are cut. It is a model call of its own phase, whose reply is stored before
the cut. What does not fit into one call is summarized in several, each of which includes the summary of those before
it. The cut records how many messages no summary covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...eventlog.events import Context, CutBegun, Json, SummaryMade, TokenUsage
from ...eventlog.parts import files_of
from ...projections.messages import Message
from ...projections.prompt import (
    Range,
    as_ranges,
    file_sizes,
    files_before_the_round,
    is_summary,
    newest_of_users,
    percent,
    tail_start,
)
from ...projections.run_state import CutState, RunState
from ...projections.tokens import file_tokens, message_tokens, messages_tokens
from ..ports.models import ContextOverflow
from . import model_calls
from .commands import ModelReplied
from .model_request import COMPACTION, SUMMARY, cut_messages, leaving, part_end
from .rules import Rules
from .turn import Turn

Cause = Literal["messages", "tokens", "limit", "overflow"]
PARTS_MAX = 50
"""The most calls that one summary is made of."""
SHRINKS_MAX = 6
"""The most times that a part that does not fit the model's window is halved."""


class Cut(msgspec.Struct, frozen=True):
    """The ranges kept of the messages after the system message, and why the rest is cut."""

    phase: str
    cause: str
    kept: list[Range]


def exceeds(state: RunState, pct: int) -> bool:
    """Return whether the next request takes more than `pct` percent of the window, if the window is known."""
    window = state.context.window_tokens
    return window is not None and next_tokens(state) * 100 > pct * window


def next_tokens(state: RunState) -> int:
    """Return the tokens of the next request, including the queued messages that it will be the first to carry."""
    return state.context.tokens + sum(map(message_tokens, state.queue))


def begin(turn: Turn) -> bool:
    """Make room at a step boundary, if that is due. False: there is enough room, or nothing to cut."""
    _leave_files_out(turn)
    cut = _due(turn.state, turn.rules)
    if cut is not None:
        _start(turn, cut)
    return cut is not None


def _leave_files_out(turn: Turn) -> None:
    """Leave out the oldest files while there are too many bytes or tokens, never those of the latest round."""
    state, rules = turn.state, turn.rules
    if not state.context.has_files:
        return
    pct = rules.context.trigger_pct if rules.context.windows else rules.context.compact_pct
    cause = ""
    left_out: list[int] = []
    for index in files_before_the_round(state.messages):
        sizes = file_sizes([*state.messages, *state.queue], left_out)
        too_large = sum(sizes.values()) > rules.files.request_bytes_max
        too_long = rules.context.overflow != "none" and exceeds_without(state, pct, left_out)
        if not (too_large or too_long):
            break
        cause = cause or ("bytes" if too_large else "tokens")
        left_out.append(index)
    if not left_out:
        return
    count = len(state.messages)
    files = [file for index in left_out for file in files_of(state.messages[index].parts)]
    turn.add(
        Context(
            action="offload",
            before_count=count,
            after_count=count,
            details={
                "cause": cause,
                "files": [file.artifact or file.url for file in files],
                "messages": left_out,
            },
        )
    )


def exceeds_without(state: RunState, pct: int, left_out: Sequence[int]) -> bool:
    """Return whether the next request takes more than `pct` percent of the window without these messages' files."""
    window = state.context.window_tokens
    less = sum(file_tokens(file) for index in left_out for file in files_of(state.messages[index].parts))
    return window is not None and (next_tokens(state) - less) * 100 > pct * window


def begin_overflow(turn: Turn) -> bool:
    """Make room after the provider reported an overflow. False: there is nothing to cut."""
    cut = _compact(turn.state, turn.rules, "overflow")
    if cut is not None:
        _start(turn, cut)
    return cut is not None


def go_on(turn: Turn) -> None:
    """Wait for the summary of each part, then cut with the summary there is."""
    state, model = turn.state, turn.state.model
    cut = state.context.cut
    if cut is None:  # no cut has begun
        return
    if model_calls.is_given_up(state):
        overflow = model.error_type == ContextOverflow.error_type
        if overflow and cut.overflows <= SHRINKS_MAX:
            model_calls.ask(turn, turn.rules.model, model.phase)  # of half as much
        else:
            _carry_out(turn, _decided(cut), fallback=f"the summary failed: {model.error_type}: {model.error}")
    elif not model.replied:
        model_calls.ask_again(turn, turn.rules.model, model.phase)
    elif problem := _problem(state):
        _carry_out(turn, _decided(cut), fallback=problem)
    elif cut.until < len(leaving(state).text) and cut.parts < PARTS_MAX:
        model_calls.ask(turn, turn.rules.model, model.phase)
    else:
        _carry_out(turn, _decided(cut))


def _problem(state: RunState) -> str:
    """Return why the latest summary is unusable; empty if it is usable."""
    if state.model.finish_reason == "content_filter":
        return "the provider's content filter stopped the summary"
    blank = state.context.cut is None or not state.context.cut.summary.strip()
    return "the summary is empty" if blank else ""


def replied(turn: Turn, reply: ModelReplied) -> None:
    """Store the summary of a part."""
    if model_calls.is_current(turn, reply):
        turn.add(
            SummaryMade(
                text=reply.text,
                until=part_end(turn.state, leaving(turn.state)),
                usage=reply.usage or TokenUsage(),
                model=reply.model,
                source=reply.usage_source if reply.usage else "estimate",
                cost_usd=reply.cost_usd,
                phase=reply.phase,
                finish_reason=reply.finish_reason,
            )
        )


# --- what is cut ------------------------------------------------------------------------------------------------------


def _due(state: RunState, rules: Rules) -> Cut | None:
    context = rules.context
    if state.step >= rules.max_steps:
        return None
    if rules.limit_pct is not None and exceeds(state, rules.limit_pct):
        cut = _compact(state, rules, "limit")
    else:
        cut = _compact(state, rules, "tokens") if exceeds(state, context.compact_pct) else None
        if cut is not None and state.context.compactions and not _is_worth_it(state, cut):
            cut = None
    if cut is not None or not context.windows or context.overflow == "none":
        return cut
    limit = context.history_messages_max
    if limit is not None and len(_messages(state)) > limit:
        return _window(state, rules, "messages")
    return _window(state, rules, "tokens") if exceeds(state, context.trigger_pct) else None


def _decided(cut: CutState) -> Cut:
    """Return the cut that the summary is being made for."""
    return Cut(cut.phase, cut.cause, cut.kept)


def _messages(state: RunState) -> list[Message]:
    """Return the messages after the system message."""
    has_system = bool(state.messages) and state.messages[0].role == "system"
    return state.messages[has_system:]


def _window(state: RunState, rules: Rules, cause: Cause) -> Cut | None:
    context, messages = rules.context, _messages(state)
    by_count = context.kept_messages if cause == "messages" else None
    start = tail_start(messages, by_count, _tokens_kept(state, rules))
    own = state.history_count - (len(state.messages) - len(messages))
    with_input = [own] if state.context.has_input and own < start else []
    return _cut(state, SUMMARY, cause, [*with_input, *range(start, len(messages))])


def _tokens_kept(state: RunState, rules: Rules) -> int | None:
    """Return half of what triggers a cut, so that the next one is some way off; in the tokens of our estimate."""
    window, tokens = state.context.window_tokens, state.context.tokens
    if window is None:
        return None
    estimate = state.context.tool_tokens + messages_tokens(state.messages)
    return window * rules.context.trigger_pct * estimate // (200 * max(1, tokens))


def _compact(state: RunState, rules: Rules, cause: Cause) -> Cut | None:
    context = state.context
    again = context.compactions and cause == "limit"
    if again or context.compacted_at == (state.steps_completed, state.step_open):
        return None
    if rules.context.overflow == "none":
        return None
    room = _tokens_kept(state, rules)
    limit = rules.context.keep_user_tokens
    kept = newest_of_users(_messages(state), limit if room is None else min(limit, room))
    return _cut(state, COMPACTION, cause, kept)


def _is_worth_it(state: RunState, cut: Cut) -> bool:
    """Return whether another compaction is worth it: it must free a quarter of the messages, by their length."""
    freed = messages_tokens(cut_messages(state, cut.kept))
    return freed * 4 >= messages_tokens(state.messages)


def _cut(state: RunState, phase: str, cause: Cause, kept: list[int]) -> Cut | None:
    """Return the cut; None for one that would remove only earlier summaries."""
    found = Cut(phase, cause, as_ranges(kept))
    removed = cut_messages(state, found.kept)
    return None if all(map(is_summary, removed)) else found


# --- how it is cut ----------------------------------------------------------------------------------------------------


def _start(turn: Turn, cut: Cut) -> None:
    if turn.rules.context.overflow == "summarize":
        turn.add(CutBegun(phase=cut.phase, cause=cut.cause, kept=cut.kept))
        model_calls.ask(turn, turn.rules.model, cut.phase)
    else:
        _carry_out(turn, cut)


def _carry_out(turn: Turn, cut: Cut, fallback: str = "") -> None:
    state = turn.state
    begun, summary = state.context.cut, not _problem(state)
    system = len(state.messages) - len(_messages(state))
    details: dict[str, Json] = {
        "cause": cut.cause,
        "kept": [list(each) for each in cut.kept],
        "tokens_before": state.context.tokens,
    }
    if state.context.window_tokens is not None:
        details["used_pct"] = percent(state.context.tokens, state.context.window_tokens)
    if summary:
        details["summary"] = "last" if cut.phase == COMPACTION else "first"
    if fallback:
        details["fallback"] = fallback
    if begun is not None:
        held = begun.until if summary else 0
        if unsummarized := sum(end > held for end in leaving(state).ends):
            details["unsummarized"] = unsummarized
        if summary and begun.truncated:
            details["summary_truncated"] = True
    turn.add(
        Context(
            step=state.step if state.step_open else None,
            action=_action(state, cut, summary=summary),
            before_count=len(state.messages),
            after_count=system + summary + sum(last - first for first, last in cut.kept),
            details=details,
        )
    )


def _action(
    state: RunState, cut: Cut, *, summary: bool
) -> Literal["window", "summarize", "truncate", "compact"]:
    if cut.phase == COMPACTION:
        return "compact"
    if summary:
        return "summarize"
    return "truncate" if state.step else "window"
