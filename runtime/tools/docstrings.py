"""The parts of a docstring that are sent to a model: the text before its first section, and parameter descriptions.

Google's `Args:` section and Sphinx's `:param name:` fields are understood; anything else after the first section is
for readers of the code and left out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

_SECTION = re.compile(r"(?P<name>[A-Z][A-Za-z ]*):\s*\Z")
_GOOGLE_ARGS = frozenset({"Args", "Arguments", "Parameters", "Params"})
_GOOGLE_SECTIONS = _GOOGLE_ARGS | {
    "Attributes",
    "Example",
    "Examples",
    "Note",
    "Notes",
    "Raises",
    "Returns",
    "See Also",
    "Warning",
    "Warnings",
    "Yields",
}
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_SPHINX_FIELD = re.compile(r":(?P<kind>\w+)(\s+[^:]+)?:")
_SPHINX_PARAM = re.compile(
    r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*(?P<text>.*)"
)


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and descriptions of parameters by name. Both may be empty."""
    lines = inspect.cleandoc(doc or "").splitlines()
    first = next((number for number, line in enumerate(lines) if _begins_section(line)), len(lines))
    sections = lines[first:]
    return "\n".join(lines[:first]).strip(), dict((*_google(sections), *_sphinx(sections)))


def _begins_section(line: str) -> bool:
    return _section(line) in _GOOGLE_SECTIONS or _SPHINX_FIELD.match(line) is not None


def _section(line: str) -> str:
    match = _SECTION.match(line)
    return match["name"] if match else ""


def _google(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    inside = False
    block: list[str] = []
    for line in lines:
        if line and not line[0].isspace():
            inside = _section(line) in _GOOGLE_ARGS
        elif inside:
            block.append(line)
    yield from _entries(inspect.cleandoc("\n".join(["", *block])).splitlines(), _GOOGLE_ENTRY)


def _sphinx(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from _entries(lines, _SPHINX_PARAM)


def _entries(lines: Iterable[str], entry: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the entries, which begin at the margin; indented lines below an entry continue it."""
    name, text = "", ""
    for line in lines:
        if line[:1].isspace() or not line:
            text += f" {line.strip()}"
            continue
        if name:
            yield name, text.strip()
        match = entry.match(line)
        name, text = (match["name"], match["text"]) if match else ("", "")
    if name:
        yield name, text.strip()
