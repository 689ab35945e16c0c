"""The parts of a prompt besides the conversation: the system message, budget lines, summaries; and cuts.

A cut keeps ranges of the messages after the system message. An assistant message with tool calls is never separated
from their results. The decision on a cut stores its ranges (`context` event); the fold only carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..eventlog.parts import FilePart, TextPart, files_of
from .messages import Message, content_of
from .tokens import message_tokens

SUMMARY_PREFIX = "Summary of what was said before:\n\n"
"""The beginning of a message that replaces cut messages."""

HEAD_CHARACTERS, TAIL_CHARACTERS = 2000, 1000
"""The parts of an offloaded tool result that a model sees, in characters."""

Range = tuple[int, int]
"""The first index, and the index after the last."""


def system_message(instructions: str, *blocks: str) -> Message | None:
    """Return the system message, with each non-empty part as a paragraph; None without any."""
    text = "\n\n".join(part for part in (instructions, *blocks) if part)
    return Message(role="system", content=text) if text else None


def plan_block(plan: str) -> str:
    """Return the part of the system message with the plan; empty for none."""
    return f"<plan>\n{plan}\n</plan>" if plan else ""


def standing_plan_block(plan: str) -> str:
    """Return the part of the system message with the standing plan that the agent follows; empty for none."""
    return f"<standing_plan>\n{plan}\n</standing_plan>" if plan else ""


def knowledge_block(items: Any) -> str:
    """Return the part of the system message with knowledge items (`text`, `source`), best first; empty for none."""
    known = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list | tuple) else []
    pieces = [
        f"[{item['source']}]\n{item.get('text', '')}" if item.get("source") else str(item.get("text", ""))
        for item in known
    ]
    return "<knowledge>\n" + "\n\n".join(pieces) + "\n</knowledge>" if pieces else ""


def shortened(text: str, artifact_id: str) -> str:
    """Return the head and the tail of a text that is stored as an artifact, with instructions to read the rest.

    Of a text that is not longer than both, a third and a sixth are shown; the whole text if that is not longer.
    """
    head, tail = HEAD_CHARACTERS, TAIL_CHARACTERS
    if len(text) <= head + tail:
        head, tail = len(text) // 3, len(text) // 6
    pointer = (
        f"[{len(text) - head - tail} of {len(text)} characters are left out here; "
        f'retrieve_artifact(id="{artifact_id}", offset={head}) reads on]'
    )
    shown = f"{text[:head]}\n{pointer}\n{text[len(text) - tail :]}"
    return shown if len(shown) < len(text) else text


def budget_line(used: int, window: int) -> str:
    """Return a line that shows the model how full its context window is."""
    return f"[context: {used}/{window} tokens, {percent(used, window)}% used]"


def removal_notice(tools: Iterable[str]) -> str:
    """Return the message that tells the model which tools it no longer has."""
    return f"[no longer available, do not call: {', '.join(tools)}]"


def percent(used: int, window: int) -> int:
    """Return the used share of the window in percent, rounded down."""
    return used * 100 // max(1, window)


def with_line(message: Message, line: str) -> Message:
    """Return the message with an additional line."""
    content = f"{message.content}\n{line}" if message.content else line
    return Message(
        role=message.role,
        content=content,
        parts=(*message.parts, TextPart(text=line)) if message.parts else (),
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        reply_state=message.reply_state,
    )


def summary_message(text: str) -> Message:
    """Return the message that replaces cut messages."""
    return Message(role="user", content=SUMMARY_PREFIX + text)


def is_summary(message: Message) -> bool:
    """Return whether the message replaces others that were cut before."""
    return message.role == "user" and message.content.startswith(SUMMARY_PREFIX)


# --- files ------------------------------------------------------------------------------------------------------------


def without_files(message: Message) -> Message:
    """Return the message with a note in the place of each file that it holds."""
    parts = tuple(
        TextPart(text=_note(part)) if isinstance(part, FilePart) else part for part in message.parts
    )
    text, listed = content_of(parts)
    return msgspec.structs.replace(message, content=text, parts=listed)


def _note(file: FilePart) -> str:
    where = f"artifact {file.artifact}" if file.artifact is not None else file.url
    return f"[{file} is left out here: {where}]"


def files_before_the_round(messages: Sequence[Message]) -> list[int]:
    """Return the indices of the messages with files that come before the model's latest answer, oldest first."""
    answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
    before = messages[: answers[-1]] if answers else ()
    return [index for index, message in enumerate(before) if files_of(message.parts)]


def file_sizes(messages: Sequence[Message], left_out: Sequence[int] = ()) -> dict[str, int]:
    """Return the sizes in bytes of the files in messages, by artifact, but for some messages."""
    return {
        file.artifact: file.bytes
        for index, message in enumerate(messages)
        if index not in left_out
        for file in files_of(message.parts)
        if file.artifact is not None
    }


# --- cuts -------------------------------------------------------------------------------------------------------------


def rounds(messages: Sequence[Message]) -> list[Range]:
    """Return the ranges that no cut divides: a message with the tool results after it."""
    if not messages:
        return []
    starts = [index for index, message in enumerate(messages) if message.role != "tool" or index == 0]
    return list(zip(starts, [*starts[1:], len(messages)], strict=True))


def tail_start(
    messages: Sequence[Message], messages_max: int | None = None, tokens_max: int | None = None
) -> int:
    """Return the index of the first of the newest messages within the limits; whole rounds, at least the last one."""
    start, count, tokens = len(messages), 0, 0
    for first, last in reversed(rounds(messages)):
        count += last - first
        tokens += sum(map(message_tokens, messages[first:last]))
        too_many = messages_max is not None and count > messages_max
        if start < len(messages) and (too_many or (tokens_max is not None and tokens > tokens_max)):
            break
        start = first
    return start


def newest_of_users(messages: Sequence[Message], tokens_max: int) -> list[int]:
    """Return the indices of the newest user messages that take at most `tokens_max` tokens, oldest first.

    The newest one is among them, however long it is.
    """
    kept: list[int] = []
    tokens = 0
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.role != "user" or is_summary(message):
            continue
        tokens += message_tokens(message)
        if kept and tokens > tokens_max:
            break
        kept.append(index)
    return kept[::-1]


def as_ranges(indices: Iterable[int]) -> list[Range]:
    """Return ascending indices as ranges."""
    found: list[Range] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def kept_indices(kept: Any, count: int) -> Iterator[int]:
    """Yield the indices below `count` that stored ranges keep; values that are not ranges are ignored."""
    for pair in kept if isinstance(kept, list | tuple) else ():
        match pair:
            case [int(first), int(last)]:
                yield from range(max(0, first), min(last, count))
            case _:
                pass
