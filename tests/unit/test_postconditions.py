"""Assertions judge evidence and nothing else; a postcondition is wrong when it is written, or not at all."""

from __future__ import annotations

import builtins
from hashlib import sha256
from typing import Any

import pytest
from foldlog.eventlog import ConfigError
from foldlog.runtime import Evidence, postcondition, tool
from foldlog.runtime.core.postconditions import Postcondition, judge, problem, verdict
from foldlog.runtime.ports.evidence import FileSeen
from hypothesis import given
from hypothesis import strategies as st

PAGE = "<h1>Orders</h1><p class='state'>Order <b>7</b>\n is&nbsp;Paid</p><script>unpaid</script>"
CONTENT = b"forty-two"
DIGEST = sha256(CONTENT).hexdigest()
FILE = {"a.txt": FileSeen(kind="file", content=CONTENT)}


def found(
    assertion: dict[str, Any], evidence: Evidence, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    condition = Postcondition("a_tool", [assertion], ["id", "state"])
    (finding,) = judge(condition.bound(arguments or {}), evidence)
    return finding


@pytest.mark.parametrize(
    ("assertion", "evidence"),
    [
        ({"http_status": {"equals": 201}}, Evidence(http_status=201)),
        ({"exit_code": {"equals": 0}}, Evidence(exit_code=0)),
        ({"text_contains": {"text": "paid"}}, Evidence(text="it is paid")),
        ({"text_contains": {"text": '"state":"paid"'}}, Evidence(data={"state": "paid"})),
        ({"dom_contains": {"text": "Order 7 is Paid"}}, Evidence(text=PAGE)),
        (
            {"dom_contains": {"text": "order 7", "selector": "p.state", "case_insensitive": True}},
            Evidence(text=PAGE),
        ),
        ({"json_path": {"path": "$.a[*].b", "equals": 1}}, Evidence(data={"a": [{"b": 1}, {"b": 1.0}]})),
        ({"json_path": {"path": "$.a", "equals": None}}, Evidence(text='{"a": null}')),
        ({"json_schema": {"schema": {"type": "object", "required": ["id"]}}}, Evidence(data={"id": 1})),
        ({"file_exists": {"path": "a.txt"}}, Evidence(files=FILE)),
        ({"file_digest": {"path": "a.txt", "sha256": DIGEST.upper()}}, Evidence(files=FILE)),
    ],
    ids=str,
)
def test_what_holds_passes_and_says_nothing_else(assertion: dict[str, Any], evidence: Evidence) -> None:
    assert found(assertion, evidence) == {"assertion": assertion, "status": "passed"}


@pytest.mark.parametrize(
    ("assertion", "evidence", "code", "observed"),
    [
        ({"http_status": {"equals": 201}}, Evidence(http_status=500), "not_equal", 500),
        ({"exit_code": {"equals": 0}}, Evidence(exit_code=2), "not_equal", 2),
        ({"text_contains": {"text": "paid"}}, Evidence(text="open"), "not_found", "open"),
        ({"text_contains": {"text": "paid"}}, Evidence(text="x" * 999), "not_found", "x" * 300 + "…"),
        ({"dom_contains": {"text": "order 7"}}, Evidence(text="<p>Order 7</p>"), "not_found", "Order 7"),
        ({"dom_contains": {"text": "7", "selector": "td"}}, Evidence(text=PAGE), "nothing_there", None),
        ({"json_path": {"path": "$.a[*]", "equals": 1}}, Evidence(data={"a": [1, True]}), "not_equal", True),
        ({"json_path": {"path": "$.b", "equals": 1}}, Evidence(data={"a": 1}), "nothing_there", None),
        (
            {"json_schema": {"schema": {"required": ["id"]}}},
            Evidence(data={}),
            "not_met",
            "'id' is a required property (at $)",
        ),
        ({"file_exists": {"path": "a.txt"}}, Evidence(files={"a.txt": FileSeen()}), "no_file", None),
        (
            {"file_exists": {"path": "a.txt"}},
            Evidence(files={"a.txt": FileSeen(kind="directory")}),
            "no_file",
            "directory",
        ),
        ({"file_digest": {"path": "a.txt", "sha256": "0" * 64}}, Evidence(files=FILE), "not_equal", DIGEST),
    ],
    ids=str,
)
def test_what_does_not_hold_fails_with_a_code_and_what_was_seen(
    assertion: dict[str, Any], evidence: Evidence, code: str, observed: Any
) -> None:
    finding = found(assertion, evidence)
    assert (finding["status"], finding["code"], finding.get("observed")) == ("failed", code, observed)


@pytest.mark.parametrize(
    ("assertion", "missing"),
    [
        ({"http_status": {"equals": 201}}, "http_status"),
        ({"exit_code": {"equals": 0}}, "exit_code"),
        ({"text_contains": {"text": "paid"}}, "text"),
        ({"dom_contains": {"text": "paid"}}, "text"),
        ({"json_path": {"path": "$.a", "equals": 1}}, "data"),
        ({"json_schema": {"schema": {}}}, "data"),
        ({"file_exists": {"path": "a.txt"}}, "file a.txt"),
        ({"file_digest": {"path": "a.txt", "sha256": DIGEST}}, "file a.txt"),
    ],
    ids=str,
)
def test_what_nobody_has_seen_is_an_error_that_names_it(assertion: dict[str, Any], missing: str) -> None:
    finding = found(assertion, Evidence())
    assert (finding["status"], finding["code"], finding["observed"]) == ("error", "evidence_missing", missing)


def test_a_text_that_is_not_json_is_not_evidence_about_json() -> None:
    finding = found({"json_path": {"path": "$", "equals": 1}}, Evidence(text="one"))
    assert finding["observed"] == "data: the text is not JSON"


def test_an_assertion_that_raises_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from foldlog.adapters.postconditions import HttpStatus

    def broken(self: Any, evidence: Evidence) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(HttpStatus, "judge", broken)
    finding = found({"http_status": {"equals": 1}}, Evidence())
    assert (finding["status"], finding["code"]) == ("error", "assertion_failed")
    assert finding["observed"] == "ZeroDivisionError: oh"


def test_arguments_of_the_call_stand_for_their_names() -> None:
    evidence = Evidence(data={"orders": {"7": {"state": {"paid": True}}}})
    assertion = {"json_path": {"path": "$.orders['${id}'].state", "equals": "${state}"}}
    finding = found(assertion, evidence, {"id": 7, "state": {"paid": True}})
    assert finding == {
        "assertion": {"json_path": {"path": "$.orders['7'].state", "equals": {"paid": True}}},
        "status": "passed",
    }
    assert found({"text_contains": {"text": "$${id} is ${id}"}}, Evidence(text="${id} is 7"), {"id": 7})[
        "status"
    ] == ("passed")


def test_an_argument_that_the_call_has_not_makes_an_assertion_an_error() -> None:
    finding = found({"text_contains": {"text": "${id}"}}, Evidence(text="${id}"))
    assert (finding["code"], finding["observed"]) == ("invalid", "the call has no argument 'id'")


def test_an_argument_that_an_assertion_cannot_mean_makes_it_an_error() -> None:
    finding = found({"text_contains": {"text": "${id}"}}, Evidence(text="7"), {"id": 7})
    assert finding["code"] == "invalid"
    assert "Expected `str`, got `int`" in finding["observed"]


statuses = st.lists(st.sampled_from(["passed", "failed", "error"]))


@given(statuses)
def test_one_that_failed_decides_before_one_that_could_not_be_judged(findings: list[str]) -> None:
    report = [
        {"assertion": {"exit_code": {"equals": 0}}, "status": status, "code": "c", "observed": 1}
        for status in findings
    ]
    expected = "failed" if "failed" in findings else "unverifiable" if "error" in findings else "passed"
    assert verdict(report) == expected
    assert (problem(report) is None) is (expected == "passed")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, values)
def test_a_json_value_equals_itself_and_what_json_says_is_equal(value: Any, other: Any) -> None:
    evidence = Evidence(data={"it": value})
    assert found({"json_path": {"path": "$.it", "equals": value}}, evidence)["status"] == "passed"
    verdict_on_other = found({"json_path": {"path": "$.it", "equals": other}}, evidence)["status"]
    assert verdict_on_other in {"passed", "failed"}
    if value != other:
        assert verdict_on_other == "failed"


# --- what is wrong is told when the tool is made ----------------------------------------------------------------------


@tool(effect="unsafe")
async def pay(invoice: str, amount: int = 1) -> str:
    """Pay."""
    return f"{invoice} {amount}"


@pytest.mark.parametrize(
    ("assertion", "words"),
    [
        (
            {"http_statuss": {"equals": 200}},
            "there is no assertion 'http_statuss'; did you mean 'http_status'? known: dom",
        ),
        (
            {"http_status": {"equals": "200"}},
            "http_status: Expected `int`, got `str` - at `$.equals` (arguments: equals)",
        ),
        (
            {"http_status": {"equal": 200}},
            "http_status: Object contains unknown field `equal` (arguments: equals)",
        ),
        ({"http_status": {"equals": 200, "b": 1}}, "http_status: Object contains unknown field `b`"),
        ({"json_path": {"path": "a.b", "equals": 1}}, "json_path: the path 'a.b': "),
        ({"dom_contains": {"text": "a", "selector": "p["}}, "dom_contains: the selector 'p[': Malformed"),
        ({"json_schema": {"schema": {"type": "nothing"}}}, "json_schema: not a valid JSON Schema"),
        (
            {"file_digest": {"path": "a", "sha256": "abc"}},
            "file_digest: sha256 must be 64 hexadecimal digits, not 'abc'",
        ),
        (
            {"text_contains": {"text": "${invoce}"}},
            "${invoce} is not a parameter of the tool (parameters: invoice, amount)",
        ),
        ({"file_exists": {"path": "a"}}, "an assertion about files needs workspace="),
        ({"text_contains": "a"}, 'an assertion must be written as {"name": {arguments}}'),
        ({}, 'an assertion must be written as {"name": {arguments}}, not {}'),
        ({"text_contains": {"text": ...}}, "text_contains: its arguments must be valid JSON"),
    ],
    ids=str,
)
def test_what_is_wrong_with_an_assertion_is_told_when_the_tool_is_made(assertion: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        postcondition(assertion)(pay)
    assert str(refused.value).startswith("tool 'pay'")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "arguments", "module"),
    [
        ("json_path", {"path": "$", "equals": 1}, "jsonpath_rfc9535"),
        ("dom_contains", {"text": "a"}, "bs4"),
    ],
)
def test_a_missing_extra_is_named_when_the_tool_is_made(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any], module: str
) -> None:
    imported = builtins.__import__

    def without(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted == module:
            raise ImportError(wanted)
        return imported(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs the extra postconditions: pip install 'foldlog"):
        postcondition({name: arguments})(pay)


def test_a_tool_has_one_postcondition_of_at_least_one_assertion_and_a_probe_that_fits_it() -> None:
    once = postcondition({"text_contains": {"text": "a"}})
    with pytest.raises(ConfigError, match="already has a postcondition"):
        once(once(pay))
    with pytest.raises(ConfigError, match="at least one assertion"):
        postcondition()(pay)
    with pytest.raises(ConfigError, match="is not a tool: @postcondition"):
        once(lambda: "a")  # type: ignore[arg-type]

    def probe(order: str) -> None: ...

    with pytest.raises(ConfigError, match="its probe has a parameter 'order' that the tool lacks"):
        postcondition({"text_contains": {"text": "a"}}, probe=probe)(pay)


async def test_a_tool_with_a_postcondition_is_still_the_function() -> None:
    verified = postcondition({"text_contains": {"text": "${invoice}"}})(pay)
    assert await verified("7", amount=2) == "7 2"
    assert (verified.__name__, verified.__doc__, repr(verified)) == ("pay", "Pay.", "<tool pay>")
    assert verified.spec.postcondition == [{"text_contains": {"text": "${invoice}"}}]
    assert (pay.spec.postcondition, pay.spec.parameters) == ([], verified.spec.parameters)
