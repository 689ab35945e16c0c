"""The model request of a step, or of a phase besides the steps, built from the state alone; and its digest (R12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..projections.messages import Message, canonical_json, chain, sha256_hex
from ..projections.prompt import Range
from ..projections.run_state import RunState
from ..projections.tokens import BYTES_PER_TOKEN
from .models import ModelRequest
from .rules import Rules

PLANNER, SUMMARY, COMPACTION = "planner", "summary", "compaction"
SUMMARY_INSTRUCTIONS = """\
You put a conversation into few words, for the one who goes on with it and will not see it. Keep what was asked, what \
was decided and why, what was found (names, numbers, paths, ids as they are), what was done, and what is left to do. \
Answer with the summary alone."""
PLANNER_INSTRUCTIONS = """\
You plan the work of another agent, which reads your plan and then answers the user. Work out what has to be done, in \
which order, and with which of the tools. You may call tools that only read, to find out what the plan depends on. \
Answer with the plan alone: short numbered steps, each with the tool it needs, if any. If the request needs no plan, \
answer with nothing."""
"""What a planner is told whose agent has no `planning_instructions`."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a model call. `digest` is the chain over `messages`; `history` counts those before the input.

    `messages` may be the run's own list, which goes on growing: to be copied by who keeps them. `round` as in
    `ModelRequest`.
    """

    messages: Sequence[Message]
    digest: str
    history: int
    round: int
    tools: bool = True
    output_schema: dict[str, Any] | None = None


def prompt_of(state: RunState, rules: Rules, phase: str = "") -> Prompt:
    """What the next (or current) call of a phase tells the model; the empty phase is that of the steps."""
    if phase == PLANNER:
        return _planner_prompt(state, rules)
    if phase:
        return _summary_prompt(state)
    return Prompt(
        messages=state.messages,
        digest=state.messages_digest,
        history=state.history_count,
        round=state.step,
        output_schema=rules.output_schema,
    )


def _planner_prompt(state: RunState, rules: Rules) -> Prompt:
    """The prepared history under the planner's own instructions, and what the planner has found out since."""
    told = state.messages[0] if state.messages and state.messages[0].role == "system" else None
    instructions = rules.planning_instructions or PLANNER_INSTRUCTIONS
    if told is not None:
        instructions = (
            f"{instructions}\n\nThe agent is told:\n\n<instructions>\n{told.content}\n</instructions>"
        )
    opening = Message(role="system", content=instructions)
    messages = (opening, *state.messages[told is not None :], *state.planning.messages)
    digest, places = "", state.call_places | state.planning.places
    for message in messages:
        digest = chain(digest, message, places)
    return Prompt(
        messages=messages,
        digest=digest,
        history=state.history_count + (told is None),
        round=state.planning.rounds + 1,
    )


def cut_messages(state: RunState, kept: Sequence[Range]) -> list[Message]:
    """The messages behind the system message that ranges of them do not keep."""
    body = state.messages[bool(state.messages) and state.messages[0].role == "system" :]
    stay = {index for first, last in kept for index in range(first, last)}
    return [message for index, message in enumerate(body) if index not in stay]


def _summary_prompt(state: RunState) -> Prompt:
    """All that was said, as one text; of a text that is too long for the window, its end."""
    body = state.messages[bool(state.messages) and state.messages[0].role == "system" :]
    told, room = list[str](), _room_bytes(state)
    for message in reversed(body):
        text = _as_text(message)
        if told and len(text.encode(errors="replace")) > room:
            break
        room -= len(text.encode(errors="replace"))
        told.append(text)
    text = "\n\n".join(reversed(told))
    messages = (
        Message(role="system", content=SUMMARY_INSTRUCTIONS),
        Message(role="user", content=f"<conversation>\n{text}\n</conversation>"),
    )
    digest = ""
    for message in messages:
        digest = chain(digest, message, {})
    summaries = state.context.summaries + 1
    return Prompt(messages=messages, digest=digest, history=1, round=summaries, tools=False)


def _room_bytes(state: RunState) -> int:
    """What fits into three quarters of the window; of an unknown one that is full, half of what is there."""
    window, tokens = state.context.window_tokens, state.context.tokens
    room = window * 3 // 4 if window is not None else tokens // 2 if state.step_open else tokens
    return room * BYTES_PER_TOKEN


def _as_text(message: Message) -> str:
    calls = [f"calls {call.name} {call.arguments}" for call in message.tool_calls]
    return "\n".join([f"{message.role}: {message.content}", *calls])


def model_request(state: RunState, rules: Rules, model: str, phase: str = "") -> ModelRequest:
    """What the current call asks the model; `model` is its name without the provider."""
    prompt = prompt_of(state, rules, phase)
    kind, fallback = f"{phase}-{prompt.round}" if phase else "", len(state.model.given_up)
    call = [kind, f"fallback-{fallback}" if fallback else "", str(state.step)]
    return ModelRequest(
        model=model,
        messages=tuple(prompt.messages),
        tools=tuple(tool.schema for tool in state.tools.values()) if prompt.tools else (),
        output_schema=prompt.output_schema,
        temperature=rules.temperature,
        max_tokens=rules.max_tokens,
        history=prompt.history,
        places=state.call_places | state.planning.places if phase else state.call_places,
        phase=phase,
        round=prompt.round,
        idempotency_key=":".join([state.run, *filter(None, call)]),
        attempt=state.model.given_up_failures + state.model.failures + 1,
    )


def request_digest(state: RunState, rules: Rules, model: str, phase: str = "") -> str:
    """The chain over the messages, closed with everything else that decides what a model answers."""
    prompt = prompt_of(state, rules, phase)
    closing = {
        "messages": prompt.digest,
        "tools": [tool.schema for tool in state.tools.values()] if prompt.tools else [],
        "tool_choice": None,
        "output_schema": prompt.output_schema,
        "temperature": rules.temperature,
        "max_tokens": rules.max_tokens,
        "model": model,
    }
    return sha256_hex(canonical_json(closing))
