"""A policy's verdicts: the strongest action of all rules that match, whatever their order."""

from typing import Any, get_args

import pytest
from foldlog.runtime.core.policy import STRENGTH, Action, Policy, PolicyRule, verdict_on
from hypothesis import given
from hypothesis import strategies as st

PROD = PolicyRule("deploy*", {"env": "prod*"}, "require_approval")
FROZEN = PolicyRule("deploy*", {"env": "prod-eu"}, "deny", "frozen")
LOOK = PolicyRule("look", {}, "allow")
RULES = Policy((PROD, FROZEN, LOOK), "require_approval")


@pytest.mark.parametrize(
    ("name", "arguments", "action", "why"),
    [
        (
            "deploy_service",
            {"env": "prod-us"},
            "require_approval",
            "policy rule 1 (tool 'deploy*' with env 'prod*')",
        ),
        ("deploy", {"env": "prod-eu"}, "deny", "policy rule 2 (tool 'deploy*' with env 'prod-eu': frozen)"),
        ("look", {}, "allow", "policy rule 3 (tool 'look')"),
        ("deploy", {"env": "test"}, "require_approval", "the policy's default"),
        ("deploy", {}, "require_approval", "the policy's default"),
        ("Deploy", {"env": "prod-eu"}, "require_approval", "the policy's default"),
        ("redeploy", {"env": "prod-eu"}, "require_approval", "the policy's default"),
    ],
)
def test_the_strongest_rule_that_matches_counts(
    name: str, arguments: dict[str, Any], action: Action, why: str
) -> None:
    verdict = verdict_on(RULES, name, arguments)
    assert (verdict.action, verdict.why) == (action, why)


@pytest.mark.parametrize(
    ("value", "pattern", "matches"),
    [
        ("a\nrm -rf /", "*rm -rf*", True),
        (7, "7", True),
        (True, "true", True),
        (None, "null", True),
        (["rm", "-rf"], '*"rm"*', True),
        ({"b": 1, "a": [2]}, '{"a":*', True),
        ("", "", True),
        ("ab", "a", False),
        ("b", "[!b]", False),
        ("a" * 100_000, "*a" * 30 + "*b", False),  # at once: each star goes back once only
    ],
)
def test_an_argument_is_matched_as_text_or_as_json(value: Any, pattern: str, matches: bool) -> None:
    assert PolicyRule("*", {"x": pattern}).matches("any", {"x": value}) is matches


RULE = st.builds(
    PolicyRule,
    tool=st.sampled_from(["*", "a", "a*", "b"]),
    arguments=st.dictionaries(st.sampled_from("xy"), st.sampled_from(["*", "1", "1*"]), max_size=2),
    action=st.sampled_from(STRENGTH),
)
CALL = st.tuples(
    st.sampled_from(["a", "ab", "b"]),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from(["1", "12", "2"])),
)


@given(st.lists(RULE, max_size=5), RULE, st.sampled_from(STRENGTH), CALL, st.randoms())
def test_order_means_nothing_and_a_further_rule_that_matched_a_matched_call_never_weakens_the_verdict(
    rules: list[PolicyRule], further: PolicyRule, default: Action, call: tuple[str, dict[str, str]], dice: Any
) -> None:
    shuffled = dice.sample(rules, len(rules))
    found = verdict_on(Policy(tuple(rules), default), *call)
    assert verdict_on(Policy(tuple(shuffled), default), *call).action == found.action
    more = verdict_on(Policy((*rules, further), default), *call)
    if any(rule.matches(*call) for rule in rules):
        assert STRENGTH.index(more.action) >= STRENGTH.index(found.action)
    elif not further.matches(*call):
        assert more.action == default


def test_every_action_has_its_strength() -> None:
    assert set(STRENGTH) == set(get_args(Action))
