"""The model request of a step or of a phase outside of steps, built from the state alone, and its digest (R12)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import msgspec

from ...eventlog.parts import files_of
from ...projections.messages import Message, canonical_json, chain, sha256_hex
from ...projections.prompt import Range
from ...projections.run_state import RunState
from ...projections.tokens import BYTES_PER_TOKEN, messages_tokens
from ..ports.models import ModelRequest, ToolSchema
from ..ports.native_tools import NativeTool
from ..ports.settings import TRANSPORT, ModelSettings
from .rules import Rules

_reply_state = attrgetter("reply_state")
_RELEASE = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|latest)$")
_FOR_STEPS = frozenset({"stop", "verbosity", "tool_choice", "parallel_tool_calls"})
PLANNER, SUMMARY, COMPACTION = "planner", "summary", "compaction"
SUMMARY_INSTRUCTIONS = """\
You put a conversation into few words, for the one who goes on with it and will not see it. Keep what was asked, what \
was decided and why, what was found (names, numbers, paths, ids as they are), what was done, and what is left to do. \
Answer with the summary alone. If you are given a summary of what was said before, answer with one that holds it, \
too."""
PLANNER_INSTRUCTIONS = """\
You plan the work of another agent, which reads your plan and then answers the user. Work out what has to be done, in \
which order, and with which of the tools. You may call tools that only read, to find out what the plan depends on. \
Answer with the plan alone: short numbered steps, each with the tool it needs, if any. If the request needs no plan, \
answer with nothing."""
"""The planner's instructions for an agent without `planning_instructions`."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a model call. `digest` is the chain over `messages`; `history` counts those before the input.

    `messages` may be the run's own list, which keeps growing: copy it before storing it. `round` as in
    `ModelRequest`.
    """

    messages: Sequence[Message]
    digest: str
    history: int
    round: int
    tools: bool = True
    output_schema: dict[str, Any] | None = None


def prompt_of(state: RunState, rules: Rules, phase: str = "") -> Prompt:
    """Return the prompt of a phase's next (or current) call; the empty phase is that of the steps."""
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
    """Return the prepared history under the planner's own instructions, plus the planner's own rounds."""
    system = state.messages[0] if state.messages and state.messages[0].role == "system" else None
    instructions = rules.planning_instructions or PLANNER_INSTRUCTIONS
    if system is not None:
        instructions = (
            f"{instructions}\n\nThe agent is told:\n\n<instructions>\n{system.content}\n</instructions>"
        )
    opening = Message(role="system", content=instructions)
    messages = (opening, *state.messages[system is not None :], *state.planning.messages)
    digest, places = "", state.call_places | state.planning.places
    for message in messages:
        digest = chain(digest, message, places)
    return Prompt(
        messages=messages,
        digest=digest,
        history=state.history_count + (system is None),
        round=state.planning.rounds + 1,
    )


def cut_messages(state: RunState, kept: Sequence[Range]) -> list[Message]:
    """Return the messages after the system message that the kept ranges leave out."""
    body = state.messages[bool(state.messages) and state.messages[0].role == "system" :]
    stay = {index for first, last in kept for index in range(first, last)}
    return [message for index, message in enumerate(body) if index not in stay]


class Leaving(msgspec.Struct, frozen=True):
    """The messages that a cut removes, as one text; `ends` are the ends of its messages there, in characters."""

    text: str
    ends: list[int]


def leaving(state: RunState) -> Leaving:
    """Return the messages that the current cut removes."""
    cut = state.context.cut
    texts = [_as_text(message) + "\n\n" for message in cut_messages(state, cut.kept if cut else ())]
    return Leaving("".join(texts), list(accumulate(map(len, texts))))


def part_end(state: RunState, removed: Leaving) -> int:
    """Return the end of the part that the next summary covers: all the rest, or the messages that fit the window.

    A message is divided if the part would be less than half full otherwise.
    """
    cut = state.context.cut
    begin = cut.until if cut is not None else 0
    room = _room_bytes(state)
    end = begin + len(
        removed.text[begin : begin + room].encode(errors="replace")[:room].decode(errors="ignore")
    )
    last_whole = max((each for each in removed.ends if each <= end), default=0)
    return last_whole if (last_whole - begin) * 2 >= end - begin else end


def _summary_prompt(state: RunState) -> Prompt:
    """Return the prompt for the next part to summarize, with the summary of the parts before it."""
    removed, cut = leaving(state), state.context.cut
    begin, before = (cut.until, cut.summary) if cut is not None else (0, "")
    earlier = f"<summary>\n{before}\n</summary>\n\n" if before else ""
    text = removed.text[begin : part_end(state, removed)].strip("\n")
    messages = (
        Message(role="system", content=SUMMARY_INSTRUCTIONS),
        Message(role="user", content=f"{earlier}<conversation>\n{text}\n</conversation>"),
    )
    digest = ""
    for message in messages:
        digest = chain(digest, message, {})
    summaries = state.context.summaries + 1
    return Prompt(messages=messages, digest=digest, history=1, round=summaries, tools=False)


PART_BYTES_MIN = 1024
"""A part is never shorter than this: summarizing less would not be worth a call."""


def _room_bytes(state: RunState) -> int:
    """Return how much of the conversation fits into one summary call, next to the summary so far.

    That is three quarters of the window, by the provider's own count of the tokens in it; if the window is unknown
    and full, half of the current tokens. Halved for each overflow of the cut.
    """
    context, cut = state.context, state.context.cut
    window, tokens = context.window_tokens, context.tokens
    room = window * 3 // 4 if window is not None else tokens // 2 if state.step_open else tokens
    estimate = context.tool_tokens + messages_tokens(state.messages)
    if window is not None and estimate < tokens:  # the provider counts more tokens than our estimate
        room = room * estimate // tokens
    room_bytes = room * BYTES_PER_TOKEN
    if cut is not None:
        room_bytes = (room_bytes >> cut.overflows) - len(cut.summary.encode(errors="replace"))
    return max(PART_BYTES_MIN, room_bytes)


def _as_text(message: Message) -> str:
    calls = [f"calls {call.name} {call.arguments}" for call in message.tool_calls]
    files = [f"[{file}, artifact {file.artifact}]" for file in files_of(message.parts)]
    return "\n".join([f"{message.role}: {message.content}", *files, *calls])


def model_request(state: RunState, rules: Rules, model: str, phase: str = "") -> ModelRequest:
    """Return the request of the current call; `model` is its name without the provider."""
    prompt = prompt_of(state, rules, phase)
    kind, fallback = f"{phase}-{prompt.round}" if phase else "", len(state.model.given_up)
    messages = _with_own_states(prompt.messages, state.model.model or rules.model)
    settings = settings_of(rules, prompt, phase)
    call = [kind, f"fallback-{fallback}" if fallback else "", str(state.step)]
    return ModelRequest(
        model=model,
        messages=messages,
        tools=tuple(tool.schema for tool in state.tools.values()) if prompt.tools else (),
        output_schema=prompt.output_schema,
        settings=settings,
        native_tools=native_tools_of(rules, phase),
        stable=_stable(messages) if settings.cache not in {None, "off"} else 0,
        messages_digest=prompt.digest,
        history=prompt.history,
        places=state.call_places | state.planning.places if phase else state.call_places,
        phase=phase,
        round=prompt.round,
        idempotency_key=":".join([state.run, *filter(None, call)]),
        attempt=state.model.given_up_failures + state.model.failures + 1,
    )


def _with_own_states(messages: Sequence[Message], called: str) -> tuple[Message, ...]:
    """Return the messages for the called `provider:model`: without the reply states of other providers or models."""
    if not any(map(_reply_state, messages)):
        return tuple(messages)
    provider, _, model = called.partition(":")
    own = provider, family_of(model)
    return tuple(
        message
        if (kept := message.reply_state) is None or (kept.provider, family_of(kept.model)) == own
        else msgspec.structs.replace(message, reply_state=None)
        for message in messages
    )


def family_of(model: str) -> str:
    """Return the name of a model without its release: its dated snapshots read the same state."""
    return _RELEASE.sub("", model)


def request_digest(state: RunState, rules: Rules, model: str, phase: str = "") -> str:
    """Return the digest: the chain over the messages, closed with everything else that determines the reply."""
    prompt = prompt_of(state, rules, phase)
    tools = [tool.schema for tool in state.tools.values()] if prompt.tools else []
    deciders = deciding(settings_of(rules, prompt, phase), native_tools_of(rules, phase))
    return closed_digest(prompt.digest, tools, prompt.output_schema, deciders, model)


def closed_digest(
    messages: str,
    tools: Sequence[ToolSchema],
    output_schema: dict[str, Any] | None,
    deciders: Mapping[str, Any],
    model: str,
) -> str:
    """Return the digest of a request (R12) from the chain over its messages; `deciders` are those of `deciding`."""
    closing = {
        "messages": messages,
        "tools": list(tools),
        "tool_choice": None,
        "output_schema": output_schema,
        "temperature": None,
        "max_tokens": None,
        "model": model,
    }
    return sha256_hex(canonical_json({**closing, **deciders}))


def deciding(settings: ModelSettings, native_tools: Sequence[NativeTool] = ()) -> dict[str, Any]:
    """Return the given settings that influence the reply, by name, and the native tools if there are any."""
    given = {name: value for name, value in settings.given().items() if name not in TRANSPORT}
    return given | ({"native_tools": [tool.as_table() for tool in native_tools]} if native_tools else {})


def native_tools_of(rules: Rules, phase: str) -> tuple[NativeTool, ...]:
    """Return the native tools of a call: only steps have any, since no other reply shows what was done."""
    return () if phase else rules.native_tools


def settings_of(rules: Rules, prompt: Prompt, phase: str) -> ModelSettings:
    """Return the settings of a call. What concerns tools needs some; what shapes the answer is for the steps alone."""
    settings = rules.settings
    if phase:
        return settings.without(_FOR_STEPS)
    if prompt.round == 1 or settings.tool_choice in {None, "auto", "none"}:
        return settings
    return settings.without(frozenset({"tool_choice"}))


def _stable(messages: Sequence[Message]) -> int:
    """Return how many messages there are up to the last user message: those behind it are the open turn's."""
    last = next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), -1)
    return last + 1
