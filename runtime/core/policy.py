"""Policy: rules on a tool's name and arguments that say what becomes of a call.

    deny > require_approval > allow > default

All rules that match are looked at, and the strongest of their actions counts; where none matches it is the default. So
the order of the rules means nothing, and no rule can weaken another. A run keeps the policy of its configuration, which
is stored with it. Pure: names and arguments in, a verdict out.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from ...projections.messages import canonical_json

Action = Literal["deny", "require_approval", "allow"]
STRENGTH: Final[tuple[Action, ...]] = ("allow", "require_approval", "deny")


class PolicyRule(msgspec.Struct, frozen=True):
    """What becomes of calls whose tool's name and whose arguments all match these patterns (`*`, `?`, `[abc]`)."""

    tool: str = "*"
    arguments: dict[str, str] = {}
    action: Action = "require_approval"
    reason: str = ""

    def matches(self, tool_name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call is one of these. An argument that is missing matches nothing."""
        return fnmatchcase(tool_name, self.tool) and all(
            name in arguments and fnmatchcase(_text(arguments[name]), pattern)
            for name, pattern in self.arguments.items()
        )

    def __str__(self) -> str:
        """The rule in words, with its reason."""
        named = [f"{name} {pattern!r}" for name, pattern in self.arguments.items()]
        where = f" with {', '.join(named)}" if named else ""
        return f"tool {self.tool!r}{where}" + (f": {self.reason}" if self.reason else "")


class Policy(msgspec.Struct, frozen=True):
    """The rules of a run, and what becomes of a call that none of them matches."""

    rules: tuple[PolicyRule, ...] = ()
    default: Action = "allow"


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a call, and why in a few words."""

    action: Action
    why: str = ""


_DEFAULTS: Final = {action: Verdict(action, "the policy's default") for action in STRENGTH}


def verdict_on(policy: Policy, tool_name: str, arguments: Mapping[str, Any]) -> Verdict:
    """What the policy says of a call."""
    default = _DEFAULTS[policy.default]
    if not policy.rules:
        return default
    found = [
        Verdict(rule.action, f"policy rule {number} ({rule})")
        for number, rule in enumerate(policy.rules, 1)
        if rule.matches(tool_name, arguments)
    ]
    return max(found, key=lambda verdict: STRENGTH.index(verdict.action), default=default)


def _text(value: object) -> str:
    """An argument as patterns see it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else canonical_json(value).decode()
