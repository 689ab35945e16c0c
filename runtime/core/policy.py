"""Policy: rules on a tool's name and arguments that decide whether a call runs.

    deny > require_approval > allow > default

The strongest action of all matching rules applies, or the default if none matches. So the order of the rules does not
matter, and no rule can weaken another. A run keeps the policy of its configuration, which is stored with it. Pure:
names and arguments in, a ruling out.
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
    """The action for calls whose tool name and arguments all match these patterns (`*`, `?`, `[abc]`)."""

    tool: str = "*"
    arguments: dict[str, str] = {}
    action: Action = "require_approval"
    reason: str = ""

    def matches(self, tool_name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to the call. A missing argument matches no pattern."""
        return fnmatchcase(tool_name, self.tool) and all(
            name in arguments and fnmatchcase(_text(arguments[name]), pattern)
            for name, pattern in self.arguments.items()
        )

    def __str__(self) -> str:
        """The rule as text, with its reason."""
        named = [f"{name} {pattern!r}" for name, pattern in self.arguments.items()]
        where = f" with {', '.join(named)}" if named else ""
        return f"tool {self.tool!r}{where}" + (f": {self.reason}" if self.reason else "")


class Policy(msgspec.Struct, frozen=True):
    """The rules of a run, and the action for calls that none of them matches."""

    rules: tuple[PolicyRule, ...] = ()
    default: Action = "allow"


class Ruling(msgspec.Struct, frozen=True):
    """The policy's action for a call, and a short reason."""

    action: Action
    why: str = ""


_DEFAULTS: Final = {action: Ruling(action, "the policy's default") for action in STRENGTH}


def verdict_on(policy: Policy, tool_name: str, arguments: Mapping[str, Any]) -> Ruling:
    """Return the policy's ruling on a call."""
    default = _DEFAULTS[policy.default]
    if not policy.rules:
        return default
    found = [
        Ruling(rule.action, f"policy rule {number} ({rule})")
        for number, rule in enumerate(policy.rules, 1)
        if rule.matches(tool_name, arguments)
    ]
    return max(found, key=lambda ruling: STRENGTH.index(ruling.action), default=default)


def _text(value: object) -> str:
    """Return an argument as patterns see it: text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else canonical_json(value).decode()
