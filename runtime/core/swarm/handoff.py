"""Handoffs: an agent's answer names the agent that continues, which gets the answer's message as its input.

The answer is structured output, so that it is plain data in the log: `{"handoff_to": name or null, "message": text}`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....projections.run_state import NodeState
from ..effects import RunNode
from .progress import Failure, Progress, failed


class Handoff(msgspec.Struct, frozen=True):
    """The answer of an agent: for the agent it hands over to, or (`handoff_to` null) for the caller of the swarm."""

    handoff_to: str | None
    message: str


def handoff_schema(others: Sequence[str]) -> dict[str, Any]:
    """Return the schema for the answer of an agent that can hand over to these others."""
    return {
        "type": "object",
        "properties": {
            "handoff_to": {"enum": [*others, None], "description": "who goes on; null if you are done"},
            "message": {
                "type": "string",
                "description": "your answer; or, if you hand over, all that the next one has to know",
            },
        },
        "required": ["handoff_to", "message"],
        "additionalProperties": False,
    }


def handoff_instructions(others: Mapping[str, str]) -> str:
    """Return the text added to an agent's own instructions; `others` maps names to purposes."""
    listed = "\n".join(f"- {name}: {purpose}" if purpose else f"- {name}" for name, purpose in others.items())
    return (
        "You work with other agents, and can hand the work over to one of them:\n"
        f"{listed}\n"
        'Answer with a JSON object. To hand over, set "handoff_to" to a name, and "message" to all that this agent has '
        'to know: it sees nothing else of the conversation. When you are done, set "handoff_to" to null and "message" '
        "to your answer."
    )


def handoff_progress(
    entry: str, text: str, nodes: Sequence[NodeState], agents: frozenset[str], max_handoffs: int
) -> Progress:
    """Return the progress of a swarm that `entry` starts with `text`; `agents` are those that can hand over.

    Total: an answer that hands over to no agent, or is malformed, is the swarm's output.
    """
    if (failure := failed(nodes)) is not None:
        return Progress(failure=failure)
    known = {(node.name, node.ordinal): node for node in nodes}
    taken: Counter[str] = Counter()
    for count in range(max_handoffs + 1):
        node = known.get((entry, taken[entry]))
        if node is None or node.status is None:
            first = count == 0
            wanted = RunNode(name=entry, ordinal=taken[entry], input=text, first=first, files=True)
            return Progress(wanted=(wanted,))
        taken[entry] += 1
        answer = _answer(node.output) if entry in agents else Handoff(None, node.output)
        if answer.handoff_to is None:
            return Progress(output=answer.message)
        entry, text = answer.handoff_to, answer.message
    message = f"the agents handed over more than {max_handoffs} times, the last time to {entry!r}"
    return Progress(failure=Failure("max_handoffs", message))


def _answer(output: str) -> Handoff:
    try:
        return msgspec.json.decode(output, type=Handoff)
    except msgspec.DecodeError:
        return Handoff(None, output)
