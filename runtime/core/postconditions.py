"""Postconditions: the assertions that check whether a tool call achieved its purpose, and the findings of that check.

An assertion is written as its name with its arguments, `{"http_status": {"equals": 201}}`; `${name}` in a text is
replaced by that argument of the call. A report is a list of findings, as stored in the log: tables with `assertion`,
`status` (passed, failed, error), `code` and `observed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ...eventlog.errors import ConfigError, FoldlogError
from ...projections.messages import canonical_json
from ..ports.evidence import Assertion, Evidence, EvidenceMissing, Failed
from ..ports.json_values import NotJson, as_json, sound
from ..ports.plugins import installed
from ..ports.suggestions import unknown

POSTCONDITIONS = "foldlog.postconditions"
MISSING, PROBE_FAILED, INVALID, BROKEN = "evidence_missing", "probe_failed", "invalid", "assertion_failed"
"""Codes of findings with status error: no evidence, a probe that failed, invalid arguments, a broken assertion."""
OBSERVED_CHARACTERS_MAX: Final = 300

Written = Mapping[str, Mapping[str, Any]]
"""An assertion as written: one entry, the name and the arguments."""
Report = Sequence[Mapping[str, Any]]
Verdict = Literal["passed", "failed", "unverifiable"]

_REFERENCE = re.compile(r"\$(\$?)\{(\w+)\}")


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one assertion. `observed` is a short form of what was seen instead, or says what is missing."""

    assertion: dict[str, Any]
    status: Literal["passed", "failed", "error"]
    code: str = ""
    observed: Any = None


def verdict(report: Report) -> Verdict:
    """Return failed if any assertion failed, else unverifiable if any could not be judged, else passed."""
    found = {finding["status"] for finding in report}
    if "failed" in found:
        return "failed"
    return "unverifiable" if "error" in found else "passed"


def problem(report: Report) -> str | None:
    """Return the problem in one line; None if the postcondition holds."""
    match verdict(report):
        case "passed":
            return None
        case "failed":
            wrong = [finding for finding in report if finding["status"] == "failed"]
            return f"the postcondition does not hold: {'; '.join(map(finding_text, wrong))}"
        case "unverifiable":
            missing = [finding for finding in report if finding["status"] == "error"]
            return f"the postcondition cannot be verified: {'; '.join(map(finding_text, missing))}"


def finding_text(finding: Mapping[str, Any]) -> str:
    """Return a finding as text."""
    name, arguments = next(iter(finding["assertion"].items()))
    text = f"{name} {canonical_json(arguments).decode()}"
    if finding["status"] == "passed":
        return text
    observed = finding.get("observed")
    seen = observed if isinstance(observed, str) and finding["status"] == "error" else as_text(observed)
    return f"{text}: {finding['code']}, {'observed ' if finding['status'] == 'failed' else ''}{seen}"


def as_text(value: Any) -> str:
    """Return a JSON value as text."""
    return canonical_json(value).decode()


def unjudged(assertions: Sequence[Written], code: str, why: str) -> list[dict[str, Any]]:
    """Return the report for a check that could not judge any assertion, for one reason."""
    return [
        {"assertion": dict(each), "status": "error", "code": code, "observed": _short(why)}
        for each in assertions
    ]


def filled(written: Written, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assertion with the arguments of a call filled in."""
    return {name: with_arguments(given, arguments) for name, given in written.items()}


def with_arguments(written: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the arguments of a call filled in."""
    filled: dict[str, Any] = _filled(dict(written), arguments)
    return filled


class Bound(NamedTuple):
    """An assertion bound to one call: with the call's arguments filled in, and built, or why it cannot be built."""

    written: dict[str, Any]
    assertion: Assertion | None
    problem: str = ""

    def judge(self, evidence: Evidence) -> Finding:
        """Return the finding on this evidence."""
        if self.assertion is None:
            return self._error(INVALID, self.problem)
        try:
            failed = self.assertion.judge(evidence)
        except EvidenceMissing as missing:
            return self._error(MISSING, str(missing))
        except Exception as error:  # noqa: BLE001 - the user's code
            return self._error(BROKEN, f"{type(error).__name__}: {error}")
        if failed is None:
            return Finding(assertion=self.written, status="passed")
        return self._failed(failed)

    def _failed(self, failed: Failed) -> Finding:
        return Finding(
            assertion=self.written, status="failed", code=failed.code, observed=_short(failed.observed)
        )

    def _error(self, code: str, why: str) -> Finding:
        return Finding(assertion=self.written, status="error", code=code, observed=_short(why))


def judge(bound: Sequence[Bound], evidence: Evidence) -> list[dict[str, Any]]:
    """Return the report. Pure: it depends on nothing but the evidence."""
    return [msgspec.to_builtins(each.judge(evidence)) for each in bound]


def _short(value: Any) -> Any:
    """Return a value shortened for the report; the evidence has it in full."""
    try:
        plain = as_json(value)
    except NotJson:
        plain = sound(repr(value))
    text = plain if isinstance(plain, str) else as_text(plain)
    if len(text) <= OBSERVED_CHARACTERS_MAX:
        return plain
    return f"{text[:OBSERVED_CHARACTERS_MAX]}…"


class Postcondition:
    """The assertions of a tool, validated when they are declared.

    Raises `ConfigError`, which names the tool, for an unknown assertion, wrong arguments, and a `${name}` that is not
    one of the tool's `parameters`, if those are known.
    """

    def __init__(
        self, tool: str, assertions: Sequence[Written], parameters: Collection[str] | None = None
    ) -> None:
        if not assertions:
            raise ConfigError(f"tool {tool!r}: a postcondition needs at least one assertion")
        self.written: list[dict[str, Any]] = []
        self._bound: list[Bound] = []
        self._refers = False
        for each in assertions:
            try:
                self._add(each, parameters)
            except FoldlogError as error:
                raise ConfigError(f"tool {tool!r}, postcondition: {error}") from None

    def _add(self, each: Written, parameters: Collection[str] | None) -> None:
        name, arguments = _taken_apart(each)
        if parameters is not None:
            check_references(name, arguments, parameters)
        self._refers = self._refers or any(_references(arguments))
        self.written.append({name: arguments})
        self._bound.append(Bound({name: _filled(arguments, {})}, assertion(name, _filled(arguments, {}))))

    def bound(self, arguments: Mapping[str, Any]) -> list[Bound]:
        """Return the assertions bound to a call with these arguments (JSON)."""
        return [_bind(each, arguments) for each in self.written] if self._refers else self._bound

    @property
    def reads_files(self) -> bool:
        """True if any assertion needs files as evidence."""
        return any(each.assertion is not None and each.assertion.files for each in self._bound)


def _taken_apart(written: Written) -> tuple[str, dict[str, Any]]:
    form = '{"name": {arguments}}'
    given: Any = written  # of any type
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ConfigError(f"an assertion must be written as {form}, not {given!r:.80}")
    name, arguments = next(iter(given.items()))
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"an assertion must be written as {form}, not {given!r:.80}")
    try:
        return str(name), as_json(dict(arguments))
    except NotJson as error:
        raise ConfigError(f"{name}: its arguments must be valid JSON: {error}") from None


def _bind(written: Mapping[str, dict[str, Any]], arguments: Mapping[str, Any]) -> Bound:
    name, given = next(iter(written.items()))
    filled = _filled(given, arguments)
    without = sorted(set(_references(given)) - arguments.keys())
    if without:
        return Bound({name: filled}, None, f"the call has no argument {without[0]!r}")
    try:
        return Bound({name: filled}, assertion(name, filled))
    except FoldlogError as error:
        return Bound({name: filled}, None, str(error))


def _references(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from (name for escaped, name in _REFERENCE.findall(value) if not escaped)
        case list():
            for item in value:
                yield from _references(item)
        case dict():
            for item in value.values():
                yield from _references(item)
        case _:
            pass


def check_references(where: str, written: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Raise `ConfigError` for a `${name}` in `written` that is not a parameter of the tool."""
    if unknown := sorted(set(_references(written)) - set(parameters)):
        known = ", ".join(parameters) or "none"
        raise ConfigError(f"{where}: ${{{unknown[0]}}} is not a parameter of the tool (parameters: {known})")


def _filled(value: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the value with references filled in: text that is only a reference becomes the argument itself."""
    match value:
        case str():
            whole = _REFERENCE.fullmatch(value)
            if whole is not None and not whole[1] and whole[2] in arguments:
                return arguments[whole[2]]
            return _REFERENCE.sub(lambda found: _substitute(found, arguments), value)
        case list():
            return [_filled(item, arguments) for item in value]
        case dict():
            return {key: _filled(item, arguments) for key, item in value.items()}
        case _:
            return value


def _substitute(found: re.Match[str], arguments: Mapping[str, Any]) -> str:
    if found[1]:
        return f"${{{found[2]}}}"
    if found[2] not in arguments:
        return found[0]
    value = arguments[found[2]]
    return value if isinstance(value, str) else as_text(value)


# --- installed assertions ---------------------------------------------------------------------------------------------


def assertion(name: str, arguments: Mapping[str, Any]) -> Assertion:
    """Return the assertion with this name and these arguments. Raises `ConfigError`."""
    known = installed(POSTCONDITIONS)
    if name not in known:
        raise ConfigError(unknown("assertion", name, known))
    try:
        make: Callable[[Mapping[str, Any]], Assertion] = known[name].load()
        return make(arguments)
    except FoldlogError as error:
        raise ConfigError(f"{name}: {error}") from None
    except Exception as error:
        raise ConfigError(f"{name} ({known[name].value}): {type(error).__name__}: {error}") from error
