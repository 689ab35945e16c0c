"""Documents taken apart: fenced blocks in order, headings with their anchors, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)

_FENCE = re.compile(r"(`{3,}|~{3,})(\w*)(.*)")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_HEADING = re.compile(r"(#{1,6}) +(.*?)\s*#*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)(?: \"[^\"]*\")?\)")
_CODE = re.compile(r"`[^`]*`")
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


class Block(NamedTuple):
    """A fenced block: its language, the attributes behind it (`title="file.py"`), its text, and where it begins."""

    language: str
    attributes: dict[str, str]
    text: str
    line: int


class Link(NamedTuple):
    """A link, and the line it stands on."""

    target: str
    line: int


def name_of(document: Path) -> str:
    """The document's path within the repository."""
    return document.relative_to(ROOT).as_posix()


def _lines(document: Path) -> Iterator[tuple[int, str, str | None]]:
    """Number, text and open fence of each line; a fence's own lines have the fence."""
    fence: str | None = None
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        opened = _FENCE.match(line)
        if fence is None and opened is not None:
            fence = opened[1]
            yield number, line, fence
        elif fence is not None:
            yield number, line, fence
            fence = None if line == fence else fence
        else:
            yield number, line, None


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found: list[Block] = []
    text: list[str] | None = None
    opened = Block("", {}, "", 0)
    for number, line, fence in _lines(document):
        if fence is None:
            continue
        if text is None:
            match = _FENCE.match(line)
            assert match is not None
            opened, text = Block(match[2], dict(_ATTRIBUTE.findall(match[3])), "", number), []
        elif line == fence:
            found.append(opened._replace(text="\n".join(text) + "\n"))
            text = None
        else:
            text.append(line)
    assert text is None, f"{name_of(document)}: the block of line {opened.line} is not closed"
    return found


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of blocks."""
    yield from ((number, line) for number, line, fence in _lines(document) if fence is None)


def anchors(document: Path) -> set[str]:
    """Return the anchors of the document, named as code hosts do."""
    found: set[str] = set()
    for _, line in prose(document):
        if heading := _HEADING.match(line):
            plain = _NOT_IN_ANCHORS.sub("", heading[2].lower()).replace(" ", "-")
            number = 0
            while (anchor := plain if number == 0 else f"{plain}-{number}") in found:
                number += 1
            found.add(anchor)
    return found


def links(document: Path) -> list[Link]:
    """The links of a document, but for those in code. The text of a link may be broken over lines."""
    lines = dict(prose(document))
    text = "\n".join(_CODE.sub("", lines.get(number, "")) for number in range(1, max(lines, default=0) + 1))
    return [Link(found[1], text.count("\n", 0, found.start()) + 1) for found in _LINK.finditer(text)]
