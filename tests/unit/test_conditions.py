"""Conditions: expressions that are read once, judge values, and say what is wrong with either."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from foldlog.eventlog import ConfigError
from foldlog.runtime.ports import conditions
from foldlog.runtime.ports.conditions import Condition, ConditionFailed

VALUES = {
    "args": {"amount": 100.5, "count": 3, "tags": ["a", "b"], "note": None, "to": "x@ours.org"},
    "tool": "pay",
}


def condition(text: str) -> Condition:
    return Condition(text, "policy.rules.0.when", VALUES)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("args.amount > 100", True),
        ("args.amount > 100 && args.count < 3", False),
        ("has(args.iban)", False),
        ("args.note == null", True),
        ("args.tags.exists(tag, tag == 'b') && 'a' in args.tags", True),
        ("args.to.endsWith('@ours.org') || args.nothing", True),
        ("tool.matches('^(p+)+$')", False),
        ("size(args.tags) == 2 ? true : false", True),
        ("timestamp('2026-02-03T00:00:00Z').getFullYear() == 2026", True),
    ],
)
def test_a_condition_is_met_or_not(text: str, *, met: bool) -> None:
    assert condition(text).is_met(VALUES) is met


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("args.iban == ''", "'args.iban == \\'\\'': there is no 'iban'"),
        ("args.to > 3", "No such overload"),
        ("args.tags[5] == 'a'", "index out of bounds: 5"),
        ("args.count / 0 == 1", "division by zero"),
        ("args.count", "'args.count' is neither true nor false but a int"),
        ("tool.matches('[')", "not a valid regex"),
    ],
)
def test_values_that_a_condition_cannot_judge_are_told(text: str, why: str) -> None:
    with pytest.raises(ConditionFailed) as failed:
        condition(text).is_met(VALUES)
    assert why.replace("\\'", "'") in str(failed.value).replace("\\'", "'").replace('"', "'")
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not CEL: line 1, column 1: "),
        ("args.amount >", "'args.amount >' is not CEL: line 1, column 14: "),
        ("true; false", "line 1, column 5"),
        ("argz.amount > 1", "uses 'argz'; did you mean 'args'?"),
        ("now() > args.amount", "calls now(), which CEL lacks"),
        ("tool.startWith('p')", "calls startWith(), which CEL lacks; did you mean 'startsWith'?"),
        ("[" * 3000, "a condition has at most 2,000 characters, not 3,000"),
    ],
)
def test_an_expression_that_is_none_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        condition(text)
    assert str(refused.value).startswith("policy.rules.0.when: ")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_expressions_as_deep_as_they_may_be_do_not_bring_the_process_down() -> None:
    deep: list[str] = [
        "(" * 999 + ")" * 999,
        "!" * 1_996 + "true",
        "[" * 1_000 + "]" * 1_000,
        "-" * 1_999 + "1",
    ]
    for text in deep:
        try:
            condition(text)
        except ConfigError as refused:
            assert "is not CEL" in str(refused)  # noqa: PT017 - both outcomes are right


def test_without_the_extra_a_condition_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: dict[str, Any] = {"cel": None}
    for name, module in absent.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(
        ConfigError, match=r"when: a condition needs the extra cel: pip install 'foldlog\[cel\]'"
    ):
        condition("args.amount > 123456")


def test_the_library_is_imported_with_the_first_condition_only() -> None:
    asked = "import sys, foldlog, foldlog.runtime.ports.conditions; print('cel' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
    assert conditions.installed()
