"""Places: the identity of an operation within its workflow, `branch/name#n`.

`n` counts the operations of this name in this branch, in the order in which they are written. A branch of a gather or a
race is a path of its own: `gather#0.1/` is the second branch of the first gather.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ....projections.flow_state import Asked
from ....projections.messages import canonical_json, sha256_hex

SHOWN_MAX = 300
"""The most characters that a divergence shows of an operation."""


def branch_of(place: str) -> tuple[str, ...]:
    """Return the branch of an operation as its path; empty for the workflow itself."""
    return tuple(place.split("/")[:-1])


def related(one: str, other: str) -> bool:
    """Return whether two operations are in one branch, or the branch of one is above that of the other (R28)."""
    first, second = branch_of(one), branch_of(other)
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


def request_digest(*parts: Any) -> str:
    """Return the start of the SHA-256 (hex) of what was asked for, which is JSON."""
    return sha256_hex(canonical_json(list(parts)))[:16]


def described(asked: Asked) -> str:
    """Return an operation as text, for the report of a divergence."""
    if asked.kind == "tool":
        arguments = msgspec.json.encode(asked.request).decode()
        text = f"tool {asked.name} {arguments}"
    elif isinstance(asked.request, str) and asked.request:
        text = f"{asked.kind} {asked.name}".rstrip() + f" [{asked.request}]"
    else:
        shown = "" if asked.request is None else " " + msgspec.json.encode(asked.request).decode()
        text = f"{asked.kind} {asked.name}".rstrip() + shown
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
