"""The evidence about a tool call's effect, and the port of the assertions that judge it.

An assertion is built once, from its arguments, and looks at nothing but the evidence: the same evidence leads to the
same finding in every process. Assertions are found by entry point group `foldlog.postconditions`; each is a function
that takes its arguments as a mapping, raises `ConfigError` for wrong ones, and returns an `Assertion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ...projections.messages import canonical_json
from .json_values import NotJson, as_json, as_stored
from .tools import ToolFailed


class FileSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the workspace. `kind`: file, directory, link, other, or null for nothing.

    `content` is null if no assertion reads it; `problem` says why the path could not be examined.
    """

    kind: str | None = None
    content: bytes | None = None
    problem: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The observed facts: the status and the body of a response, a page, JSON, an exit code; unset if not observed.

    `text` is a body, a page or an output, of the media type `text_type`. `data` is a JSON value; without one, a `text`
    that is JSON is used. `result` is shown to the model as the result of a call whose own result was lost. `files` are
    read from the workspace, by their paths as asserted.
    """

    http_status: int | None = None
    exit_code: int | None = None
    text: str | None = None
    text_type: str = "text/plain; charset=utf-8"
    data: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    files: Mapping[str, FileSeen] = {}

    def known(self, name: str) -> Any:
        """Return the field of this name. Raises `EvidenceMissing`."""
        value = getattr(self, name)
        if value is None:
            raise EvidenceMissing(name)
        return value

    def as_text(self) -> str:
        """Return the text, or the JSON as text. Raises `EvidenceMissing`."""
        if self.text is not None:
            return self.text
        if self.data is msgspec.UNSET:
            raise EvidenceMissing("text")
        return canonical_json(self.data).decode()

    def as_json(self) -> Any:
        """Return the JSON value, or the text parsed as JSON. Raises `EvidenceMissing`."""
        if self.data is not msgspec.UNSET:
            return self.data
        if self.text is None:
            raise EvidenceMissing("data")
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.MsgspecError, RecursionError):
            raise EvidenceMissing("data: the text is not JSON") from None

    def file(self, path: str) -> FileSeen:
        """Return what is at the path. Raises `EvidenceMissing`."""
        seen = self.files.get(path)
        if seen is None or seen.problem:
            raise EvidenceMissing(f"file {path}" + (f": {seen.problem}" if seen is not None else ""))
        return seen


def sound_evidence(evidence: Evidence) -> Evidence:
    """Return the evidence with its JSON as builtins. Raises `ToolFailed` if the log cannot store it."""
    changes: dict[str, Any] = {}
    try:
        for name in ("data", "result"):
            value = getattr(evidence, name)
            if value is not msgspec.UNSET:
                changes[name] = as_json(value)
        facts = msgspec.structs.replace(evidence, data=None, result=None, files={})
        as_stored(facts)
    except NotJson as error:
        raise ToolFailed(f"the evidence cannot be stored: {error}", in_doubt=True) from None
    return msgspec.structs.replace(evidence, files={}, **changes)


def of_result(result: Any, observed: Evidence | None) -> Evidence:
    """Return the evidence that a call gives by itself: what it reported as observed, else its result (JSON)."""
    if observed is not None:
        return observed
    return Evidence(text=result) if isinstance(result, str) else Evidence(data=result)


class EvidenceMissing(Exception):
    """Raised by an assertion that cannot be judged; the message names what is missing."""


class Failed(msgspec.Struct, frozen=True):
    """An assertion does not hold: a short code for the reason, and what was observed instead (JSON)."""

    code: str
    observed: Any = None


class Assertion(Protocol):
    """A condition that holds for the evidence, or does not."""

    @property
    def files(self) -> Mapping[str, bool]:
        """The workspace paths that the assertion is about, and whether it needs their content."""
        ...

    def judge(self, evidence: Evidence) -> Failed | None:
        """Return null if the assertion holds. Raises `EvidenceMissing`; any other error is reported as its own."""
        ...
