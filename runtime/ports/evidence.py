"""What was seen of the world after a tool call, and the port of the assertions that are judged by it.

An assertion is made from its arguments, once, and judges without looking at anything else: the same evidence leads to
the same finding, in every process. Assertions are found by entry point group `foldlog.postconditions`; each is a
function that takes its arguments as a mapping, raises `ConfigError` for wrong ones, and returns an `Assertion`.
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

    `content` is null where nobody asked for it; `problem` says why the path could not be looked at.
    """

    kind: str | None = None
    content: bytes | None = None
    problem: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, as far as it was looked at: the status and the body of a response, a page, JSON, an exit code.

    `text` is a body, a page or an output, of the media type `text_type`. `data` is a JSON value; where there is none, a
    `text` that is JSON counts. `result` is what the model reads as the result of a call whose own was lost. `files` are
    filled in from the workspace, by their paths as asserted.
    """

    http_status: int | None = None
    exit_code: int | None = None
    text: str | None = None
    text_type: str = "text/plain; charset=utf-8"
    data: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    files: Mapping[str, FileSeen] = {}

    def known(self, name: str) -> Any:
        """The field of this name. Raises `EvidenceMissing`."""
        value = getattr(self, name)
        if value is None:
            raise EvidenceMissing(name)
        return value

    def as_text(self) -> str:
        """The text, or the JSON as text. Raises `EvidenceMissing`."""
        if self.text is not None:
            return self.text
        if self.data is msgspec.UNSET:
            raise EvidenceMissing("text")
        return canonical_json(self.data).decode()

    def as_json(self) -> Any:
        """The JSON value, or the text read as one. Raises `EvidenceMissing`."""
        if self.data is not msgspec.UNSET:
            return self.data
        if self.text is None:
            raise EvidenceMissing("data")
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.MsgspecError, RecursionError):
            raise EvidenceMissing("data: the text is no JSON") from None

    def file(self, path: str) -> FileSeen:
        """What is at the path. Raises `EvidenceMissing`."""
        seen = self.files.get(path)
        if seen is None or seen.problem:
            raise EvidenceMissing(f"file {path}" + (f": {seen.problem}" if seen is not None else ""))
        return seen


def sound_evidence(evidence: Evidence) -> Evidence:
    """The evidence with JSON builtins where JSON has to be. Raises `ToolFailed` for what the log cannot hold."""
    changes: dict[str, Any] = {}
    try:
        for name in ("data", "result"):
            value = getattr(evidence, name)
            if value is not msgspec.UNSET:
                changes[name] = as_json(value)
        facts = msgspec.structs.replace(evidence, data=None, result=None, files={})
        as_stored(facts)
    except NotJson as error:
        raise ToolFailed(f"evidence holds what cannot be stored: {error}", in_doubt=True) from None
    return msgspec.structs.replace(evidence, files={}, **changes)


def of_result(result: Any, observed: Evidence | None) -> Evidence:
    """The evidence that a call gives by itself: what it said that it saw, else its result (JSON)."""
    if observed is not None:
        return observed
    return Evidence(text=result) if isinstance(result, str) else Evidence(data=result)


class EvidenceMissing(Exception):
    """Raised by an assertion that cannot be judged; the message names what is missing."""


class Failed(msgspec.Struct, frozen=True):
    """An assertion does not hold: why in a word, and what was seen instead (JSON)."""

    code: str
    observed: Any = None


class Assertion(Protocol):
    """Something that holds of the evidence, or not."""

    @property
    def files(self) -> Mapping[str, bool]:
        """The paths of the workspace that it is about, and whether it has to read them."""
        ...

    def judge(self, evidence: Evidence) -> Failed | None:
        """Null if it holds. Raises `EvidenceMissing`; whatever else it raises counts as its own error."""
        ...
