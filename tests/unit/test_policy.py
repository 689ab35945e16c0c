"""A policy's verdicts: the strongest action of all rules that match, whatever their order."""

from typing import Any, get_args

import pytest
from foldlog.eventlog import ConfigError
from foldlog.eventlog.events import PolicyAction
from foldlog.runtime import Agent
from foldlog.runtime.core.policy import STRENGTH, Call, Policy, PolicyRule, joined, ruling_on
from hypothesis import given
from hypothesis import strategies as st

PROD = PolicyRule("deploy*", {"env": "prod*"})
FROZEN = PolicyRule("deploy*", {"env": "prod-eu"}, action="deny", reason="frozen")
LOOK = PolicyRule("look", action="allow")
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
    name: str, arguments: dict[str, Any], action: PolicyAction, why: str
) -> None:
    verdict = ruling_on(RULES, Call(name, arguments))
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
    assert PolicyRule("*", {"x": pattern}).matches(Call("any", {"x": value})) is matches


RULE = st.builds(
    PolicyRule,
    tool=st.sampled_from(["*", "a", "a*", "b"]),
    arguments=st.dictionaries(st.sampled_from("xy"), st.sampled_from(["*", "1", "1*"]), max_size=2),
    unless=st.dictionaries(st.sampled_from("xy"), st.sampled_from(["1", "2"]), max_size=2),
    action=st.sampled_from(STRENGTH),
)
CALL = st.tuples(
    st.sampled_from(["a", "ab", "b"]),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from(["1", "12", "2"])),
)


@given(st.lists(RULE, max_size=5), RULE, st.sampled_from(STRENGTH), CALL, st.randoms())
def test_order_means_nothing_and_a_further_rule_that_matched_a_matched_call_never_weakens_the_verdict(
    rules: list[PolicyRule],
    further: PolicyRule,
    default: PolicyAction,
    call: tuple[str, dict[str, str]],
    dice: Any,
) -> None:
    shuffled = dice.sample(rules, len(rules))
    found = ruling_on(Policy(tuple(rules), default), Call(*call))
    assert ruling_on(Policy(tuple(shuffled), default), Call(*call)).action == found.action
    more = ruling_on(Policy((*rules, further), default), Call(*call))
    if any(rule.matches(Call(*call)) for rule in rules):
        assert STRENGTH.index(more.action) >= STRENGTH.index(found.action)
    elif not further.matches(Call(*call)):
        assert more.action == default


def test_every_action_has_its_strength() -> None:
    assert set(STRENGTH) == set(get_args(PolicyAction))


def test_a_rule_does_not_apply_to_calls_that_all_its_exemptions_fit() -> None:
    rule = PolicyRule("deploy", unless={"env": "test*", "size": "1"}, action="deny")
    exempt: list[dict[str, Any]] = [{"env": "test-1", "size": 1}]
    held: list[dict[str, Any]] = [
        {"env": "test-1", "size": 2},
        {"env": "prod", "size": 1},
        {"env": "test"},
        {},
    ]
    assert not any(rule.matches(Call("deploy", each)) for each in exempt)
    assert all(rule.matches(Call("deploy", each)) for each in held)
    assert str(rule) == "tool 'deploy' unless env 'test*', size '1'"


@pytest.mark.parametrize(
    ("action", "amount", "ruled"),
    [
        ("deny", 50, "allow"),
        ("deny", 150, "deny"),
        ("deny", "much", "deny"),
        ("deny", None, "deny"),
        ("require_approval", "much", "require_approval"),
        ("allow", "much", "require_approval"),
        ("allow", 150, "allow"),
    ],
)
def test_a_condition_that_cannot_judge_a_call_never_makes_the_policy_weaker(
    action: PolicyAction, amount: Any, ruled: PolicyAction
) -> None:
    default: PolicyAction = "require_approval" if action == "allow" else "allow"
    policy = Policy((PolicyRule("pay", when="args.eur > 100", action=action),), default)
    ruling = ruling_on(policy, Call("pay", {} if amount is None else {"eur": amount}))
    assert ruling.action == ruled
    if amount in {50, 150}:
        assert ruling.failed == []
    else:
        (said,) = ruling.failed
        assert said.startswith("policy rule 1: the condition fails: 'args.eur > 100': ")
        assert action == "allow" or "its condition fails" in ruling.why


def test_a_condition_sees_the_call_its_agent_and_its_user() -> None:
    when = "tool == 'pay' && agent == 'clerk' && user == 'ada' && call.count < 3 && call.step == 2 && size(args) == 1"
    policy = Policy((PolicyRule(when=when, action="deny"),))
    call = Call("pay", {"eur": 1}, agent="clerk", user="ada", count=2, step=2)
    assert ruling_on(policy, call).action == "deny"
    assert (
        ruling_on(policy, Call("pay", {"eur": 1}, agent="clerk", user="ada", count=3, step=2)).action
        == "allow"
    )


def test_the_policies_of_agent_and_namespace_are_joined_and_the_strongest_wins() -> None:
    own = {"rules": [{"tool": "a", "action": "allow"}], "default": "require_approval"}
    shared = {
        "rules": [{"tool": "*b", "action": "deny"}, {"tool": "ab", "action": "allow"}],
        "default": "allow",
    }
    policy = joined(own, shared)
    found = {tool: ruling_on(policy, Call(tool, {})) for tool in ("a", "ab", "c")}
    assert {tool: ruling.action for tool, ruling in found.items()} == {
        "a": "allow",
        "ab": "deny",
        "c": "require_approval",
    }
    assert found["ab"].why == "namespace policy rule 1 (tool '*b')"
    assert joined({}, {"default": "deny"}).default == "deny"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"when": "args.eur >"}, "policy.rules.0.when: 'args.eur >' is not CEL: line 1, column 11"),
        ({"when": "amount > 1"}, "policy.rules.0.when: 'amount > 1' uses 'amount'"),
        ({"when": "now() > 1"}, "policy.rules.0.when: 'now() > 1' calls now()"),
        ({"unless": {"env": 3}}, "policy.rules.0.unless.env"),
        ({"unles": {}}, "unknown key 'policy.rules.0.unles'; did you mean 'unless'?"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(rule: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Agent("a", model="openai:x", policy={"rules": [{"action": "deny", **rule}]})
    assert told in str(refused.value)
