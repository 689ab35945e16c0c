"""What the system message of a run says: its instructions, and what was found out before its first step."""

from __future__ import annotations

from .messages import Message


def system_message(instructions: str, plan: str = "") -> Message | None:
    """The message, with each part that there is as a paragraph of its own; None for no parts."""
    parts = [instructions, f"<plan>\n{plan}\n</plan>" if plan else ""]
    text = "\n\n".join(part for part in parts if part)
    return Message(role="system", content=text) if text else None
