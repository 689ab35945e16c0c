"""The built-in assertions (entry point group `foldlog.postconditions`): each is a value that judges evidence.

Two need the extra `postconditions`: `json_path` (RFC 9535, by python-jsonpath) and `dom_contains` (CSS selectors, by
Beautiful Soup on Python's own HTML parser). Both are imported when such an assertion is created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from ..eventlog.errors import ConfigError
from ..projections.messages import sha256_hex
from ..runtime.ports.evidence import Assertion, Evidence, Failed
from ..runtime.ports.json_schema import check_output_schema
from ..runtime.ports.schema_problems import value_problem

AssertionT = TypeVar("AssertionT", bound="_Assertion")
_NO_FILES: Mapping[str, bool] = MappingProxyType({})
_SHA256 = re.compile(r"[0-9a-fA-F]{64}|.*\$\{.*")


class _Assertion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An assertion whose fields are its arguments."""

    @property
    def files(self) -> Mapping[str, bool]:
        """Return the files that the assertion needs: none."""
        return _NO_FILES

    def check(self) -> None:
        """Raise `ConfigError` for invalid arguments."""


def _made(kind: type[AssertionT]) -> Callable[[Mapping[str, Any]], Assertion]:
    def make(arguments: Mapping[str, Any]) -> Assertion:
        try:
            made = msgspec.convert(dict(arguments), kind)
        except msgspec.ValidationError as error:
            known = ", ".join(kind.__struct_fields__)
            raise ConfigError(f"{error} (arguments: {known})") from None
        made.check()
        return made  # type: ignore[return-value] # each kind has a `judge`

    return make


class HttpStatus(_Assertion, frozen=True, kw_only=True):
    """The response has this status."""

    equals: int

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `http_status`."""
        return _equal(self.equals, evidence.known("http_status"))


class ExitCode(_Assertion, frozen=True, kw_only=True):
    """The program exited with this code."""

    equals: int

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `exit_code`."""
        return _equal(self.equals, evidence.known("exit_code"))


class TextContains(_Assertion, frozen=True, kw_only=True):
    """The body, page or output contains the text."""

    text: str

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `text`, else by `data` as text."""
        seen = evidence.as_text()
        return None if self.text in seen else Failed("not_found", seen)


class JsonPath(_Assertion, frozen=True, kw_only=True):
    """The path selects at least one value, and each equals the given one as JSON (1 equals 1.0, but not true)."""

    path: str
    equals: Any

    def check(self) -> None:
        """Raise `ConfigError` for an invalid path, or if the extra is not installed."""
        _json_path(self.path)

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `data`, else by `text` parsed as JSON."""
        found = _json_path(self.path)(evidence.as_json())
        if not found:
            return Failed("nothing_there")
        others = [value for value in found if value_problem(value, {"const": self.equals})]
        return Failed("not_equal", others[0]) if others else None


class JsonSchema(_Assertion, frozen=True, kw_only=True):
    """The JSON value matches the schema (draft 2020-12)."""

    schema: dict[str, Any]

    def check(self) -> None:
        """Raise `ConfigError` for an invalid schema."""
        try:
            check_output_schema(self.schema)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `data`, else by `text` parsed as JSON."""
        problem = value_problem(evidence.as_json(), self.schema, formats=True)
        return None if problem is None else Failed("not_met", problem)


class DomContains(_Assertion, frozen=True, kw_only=True):
    """The visible text of the page, or with a CSS selector of a selected element, contains the text."""

    text: str
    selector: str | None = None
    case_insensitive: bool = False

    def check(self) -> None:
        """Raise `ConfigError` for an invalid selector, or if the extra is not installed."""
        soup = _beautiful_soup()
        if self.selector is not None:
            try:
                soup("", "html.parser").select(self.selector)
            except Exception as error:  # noqa: BLE001 - of Beautiful Soup's own selector library
                raise ConfigError(f"the selector {self.selector!r}: {str(error).splitlines()[0]}") from None

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by `text`, as HTML."""
        page = _beautiful_soup()(evidence.as_text(), "html.parser")
        elements = [page] if self.selector is None else page.select(self.selector)
        if not elements:
            return Failed("nothing_there")
        seen = [_words(each.get_text(" ")) for each in elements]
        wanted = self._folded(_words(self.text))
        return None if any(wanted in self._folded(text) for text in seen) else Failed("not_found", seen[0])

    def _folded(self, text: str) -> str:
        return text.casefold() if self.case_insensitive else text


class FileExists(_Assertion, frozen=True, kw_only=True):
    """A regular file exists at the path."""

    path: str

    @property
    def files(self) -> Mapping[str, bool]:
        """Return the file, whose content is not needed."""
        return {self.path: False}

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by the file in the workspace."""
        kind = evidence.file(self.path).kind
        return None if kind == "file" else Failed("no_file", kind)


class FileDigest(_Assertion, frozen=True, kw_only=True):
    """A regular file exists at the path, and its content has this SHA-256 (hex)."""

    path: str
    sha256: str

    @property
    def files(self) -> Mapping[str, bool]:
        """Return the file, whose content is needed."""
        return {self.path: True}

    def check(self) -> None:
        """Raise `ConfigError` for an invalid digest."""
        if not _SHA256.fullmatch(self.sha256):
            raise ConfigError(f"sha256 must be 64 hexadecimal digits, not {self.sha256!r}")

    def judge(self, evidence: Evidence) -> Failed | None:
        """Judge by the file in the workspace."""
        file = evidence.file(self.path)
        if file.content is None:
            return Failed("no_file", file.kind)
        return _equal(self.sha256.lower(), sha256_hex(file.content))


def _equal(wanted: Any, seen: Any) -> Failed | None:
    return None if wanted == seen else Failed("not_equal", seen)


def _words(text: str) -> str:
    """Collapse white space to single spaces."""
    return " ".join(text.split())


def _json_path(path: str) -> Callable[[Any], list[Any]]:
    try:
        import jsonpath_rfc9535
    except ImportError:
        raise _lacking("json_path") from None
    try:
        found = jsonpath_rfc9535.JSONPathEnvironment().compile(path)
    except jsonpath_rfc9535.JSONPathError as error:
        raise ConfigError(f"the path {path!r}: {str(error).splitlines()[0]}") from None
    return lambda value: [match.value for match in found.finditer(value)]


def _beautiful_soup() -> Callable[[str, str], Any]:
    try:
        import bs4
    except ImportError:
        raise _lacking("dom_contains") from None
    return bs4.BeautifulSoup


def _lacking(name: str) -> ConfigError:
    return ConfigError(f"{name} needs the extra postconditions: pip install 'foldlog[postconditions]'")


dom_contains = _made(DomContains)
exit_code = _made(ExitCode)
file_digest = _made(FileDigest)
file_exists = _made(FileExists)
http_status = _made(HttpStatus)
json_path = _made(JsonPath)
json_schema = _made(JsonSchema)
text_contains = _made(TextContains)
