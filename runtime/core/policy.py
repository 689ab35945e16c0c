"""Policy: rules on a tool's name and arguments that decide whether a call runs.

    deny > require_approval > allow > default

The strongest action of all rules that apply decides, or the default if none does. So the order of the rules does not
matter, and no rule can weaken another. A run keeps the policy of its configuration, and that of its namespace at the
time of its submission; both are stored with it. Pure: a call in, a ruling out.

A rule may have a condition (`when`). The ruling on a call is then part of its `tool_call`: it is made once, and no
process that continues or reads the run needs the library that evaluates conditions. A condition that cannot judge a
call counts as met for a rule that denies or asks, and as not met for one that allows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from ...eventlog.events import PolicyAction, PolicyRuling
from ...projections.messages import canonical_json
from ..ports.conditions import Condition, ConditionFailed

STRENGTH: Final[tuple[PolicyAction, ...]] = ("allow", "require_approval", "deny")
CONDITION_NAMES: Final = ("agent", "args", "call", "tool", "user")
"""Conditions see these: texts, but for `args`, the arguments, and `call`, which has `count` and `step`."""


class Call(msgspec.Struct, frozen=True):
    """A call as a policy sees it.

    `count` is the number of earlier calls of the same tool in the run; `user` is empty if the run has none.
    """

    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    user: str = ""
    count: int = 0
    step: int = 0


class PolicyRule(msgspec.Struct, frozen=True):
    """The action for calls whose tool name and arguments all match these patterns (`*`, `?`, `[abc]`).

    It does not apply to calls whose arguments match all patterns of `unless`, nor to those that do not meet `when`.
    """

    tool: str = "*"
    arguments: dict[str, str] = {}
    unless: dict[str, str] = {}
    when: str = ""
    action: PolicyAction = "require_approval"
    reason: str = ""

    def matches(self, call: Call) -> bool:
        """Return whether the patterns fit the call. A missing argument matches no pattern."""
        return (
            fnmatchcase(call.tool, self.tool)
            and _fits(self.arguments, call.arguments)
            and not (self.unless and _fits(self.unless, call.arguments))
        )

    def __str__(self) -> str:
        """The rule as text, with its reason."""
        where = f" with {_named(self.arguments)}" if self.arguments else ""
        where += f" unless {_named(self.unless)}" if self.unless else ""
        where += f" when {self.when}" if self.when else ""
        return f"tool {self.tool!r}{where}" + (f": {self.reason}" if self.reason else "")


class AlwaysApproved(msgspec.Struct, frozen=True):
    """A call that an operator approved for good: exactly this tool with exactly these arguments."""

    tool: str
    arguments: dict[str, Any] = {}


class Policy(msgspec.Struct, frozen=True):
    """The rules of a run, and the action for calls to which none of them applies.

    `shared` are the rules of the namespace. `always` are calls that need no approval of rules or of `hitl_tools`.
    """

    rules: tuple[PolicyRule, ...] = ()
    default: PolicyAction = "allow"
    shared: tuple[PolicyRule, ...] = ()
    always: tuple[AlwaysApproved, ...] = ()

    @property
    def is_conditional(self) -> bool:
        """Return whether any rule has a condition."""
        return any(rule.when for rule in (*self.rules, *self.shared))

    @property
    def ruling_on_all(self) -> PolicyRuling | None:
        """The ruling on every call, if there are no rules that would have to look at it."""
        return None if self.rules or self.shared else _DEFAULTS[self.default]


def joined(own: Mapping[str, Any], shared: Mapping[str, Any]) -> Policy:
    """Return the policy of a run: the stored one of its agent, and that of its namespace; the stricter default."""
    mine, theirs = msgspec.convert(own, Policy), msgspec.convert(shared, Policy)
    default = max(mine.default, theirs.default, key=STRENGTH.index)
    return Policy(mine.rules, default, theirs.rules, theirs.always)


def condition(text: str, where: str) -> Condition:
    """Return the condition of a rule. Raises `ConfigError`, which begins with `where`."""
    return Condition(text, where, CONDITION_NAMES)


_DEFAULTS: Final = {action: PolicyRuling(action=action, why="the policy's default") for action in STRENGTH}


def ruling_on(policy: Policy, call: Call) -> PolicyRuling:
    """Return the policy's ruling on a call. Raises `ConfigError` if it needs a condition, and the extra is missing."""
    if policy.ruling_on_all is not None:
        return policy.ruling_on_all
    applying, failed = list[PolicyRuling](), list[str]()
    for name, rule in _numbered(policy):
        if not rule.matches(call):
            continue
        met, problem = _meets(rule, call)
        if problem:
            failed.append(f"{name}: the condition fails: {problem}")
        if met:
            said = f"{name} ({rule}{'; ' if problem else ''}{_failing(problem)})"
            applying.append(PolicyRuling(action=rule.action, why=said))
    found = max(applying, key=lambda ruling: STRENGTH.index(ruling.action), default=_DEFAULTS[policy.default])
    return msgspec.structs.replace(found, failed=failed) if failed else found


def _failing(problem: str) -> str:
    return f"its condition fails: {problem}" if problem else ""


def _numbered(policy: Policy) -> Iterator[tuple[str, PolicyRule]]:
    for number, rule in enumerate(policy.rules, 1):
        yield f"policy rule {number}", rule
    for number, rule in enumerate(policy.shared, 1):
        yield f"namespace policy rule {number}", rule


def _meets(rule: PolicyRule, call: Call) -> tuple[bool, str]:
    """Return whether the call meets the rule's condition, and why that cannot be evaluated; empty if it can."""
    if not rule.when:
        return True, ""
    values = {
        "tool": call.tool,
        "args": call.arguments,
        "agent": call.agent,
        "user": call.user,
        "call": {"count": call.count, "step": call.step},
    }
    try:
        return _read(rule.when).is_met(values), ""
    except ConditionFailed as failed:
        return rule.action != "allow", str(failed)


@functools.lru_cache(maxsize=256)
def _read(text: str) -> Condition:
    return condition(text, "a policy's condition")


def _fits(patterns: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and fnmatchcase(_text(arguments[name]), pattern)
        for name, pattern in patterns.items()
    )


def _named(patterns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {pattern!r}" for name, pattern in patterns.items())


def overview_of(policy: Policy, tool_name: str) -> PolicyRuling:
    """Return the strongest ruling on any call of a tool whose calls cannot be looked at before they are made.

    A rule that looks at more than the tool's name may apply, so it counts if it denies or asks, and not if it allows.
    """
    found = [
        PolicyRuling(action=rule.action, why=f"{name} ({rule})")
        for name, rule in _numbered(policy)
        if fnmatchcase(tool_name, rule.tool)
        and not (rule.action == "allow" and (rule.arguments or rule.unless or rule.when))
    ]
    return max(found, key=lambda ruling: STRENGTH.index(ruling.action), default=_DEFAULTS[policy.default])


def _text(value: object) -> str:
    """Return an argument as patterns see it: text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else canonical_json(value).decode()
