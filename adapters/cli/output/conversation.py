"""Print messages with their roles, tool calls and results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....eventlog.parts import files_of
from .content import told_files
from .escaping import clean, one_line, visible
from .terminal import Part, Screen

if TYPE_CHECKING:
    from ....projections.messages import Message

_STYLES = {"system": "dim", "user": "bold", "assistant": "", "tool": "dim"}


def tell_messages(screen: Screen, messages: Iterable[Message]) -> None:
    """Print the messages in order, each with its role."""
    for message in messages:
        parts: list[Part] = [(f"{message.role:<10}", "dim"), (clean(message.content), _STYLES[message.role])]
        parts += [(told, "cyan")] if (told := told_files(files_of(message.parts))) else []
        screen.tell(*parts)
        for call in message.tool_calls:
            screen.tell(
                (" " * 10 + "→ ", "cyan"),
                (one_line(call.name), "cyan"),
                " ",
                (visible(call.arguments), "dim"),
            )
