"""Content from callers and tools, converted to the parts that the log stores and the bytes stored next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.parts import FilePart, Part, TextPart
from ...projections.messages import content_of, file_part_problem, sha256_hex
from ..ports.files import Content, File, parts_of
from ..ports.json_values import sound
from .rules import FileRules

CountTokens = Callable[[FilePart, bytes | None], int | None]
"""Counts the tokens of a file in a prompt by the rule of its provider; null if the provider publishes none."""


class Held(msgspec.Struct, frozen=True):
    """Content to be stored. `parts` is empty for one text; `data` are the bytes of its files by their SHA-256 (hex).

    `known` are the artifacts that have to be in the log already.
    """

    text: str
    parts: tuple[Part, ...] = ()
    data: Mapping[str, bytes] = {}
    known: tuple[str, ...] = ()


def no_count(_file: FilePart, _data: bytes | None) -> int | None:
    """Return null: no provider has a rule."""
    return None


def held(content: Content, rules: FileRules, count: CountTokens = no_count) -> Held:
    """Return the content as it is stored. Raises `ConfigError` for a file over the limit, or an invalid part."""
    parts: list[Part] = []
    data: dict[str, bytes] = {}
    known: list[str] = []
    for given in parts_of(content):
        if isinstance(given, TextPart):
            parts += [given] if given.text else []  # some vendors refuse an empty one
        elif isinstance(given, FilePart):
            problem = file_part_problem(given)
            if problem is not None:
                raise ConfigError(problem)
            parts.append(given)
            known += [given.artifact] if given.artifact else []
        else:
            made = _file_part(given, rules)
            if given.data is not None and made.artifact is not None:
                data[made.artifact] = given.data
            parts.append(msgspec.structs.replace(made, tokens=count(made, given.data)))
    text, whole = content_of(parts)
    return Held(text, whole, data, tuple(known))


def _file_part(file: File, rules: FileRules) -> FilePart:
    if file.data is None:
        return FilePart(media_type=file.media_type, name=sound(file.name), url=file.url, detail=file.detail)
    if len(file.data) > rules.file_bytes_max:
        raise ConfigError(
            f"{file} has {len(file.data):,} bytes, more than the {rules.file_bytes_max:,} of one file "
            "(files.file_bytes_max of the agent)"
        )
    return FilePart(
        media_type=file.media_type,
        name=sound(file.name),
        artifact=sha256_hex(file.data),
        bytes=len(file.data),
        detail=file.detail,
    )


def check_total(files: Mapping[str, int], rules: FileRules) -> None:
    """Raise `ConfigError` if files, with their sizes by artifact, are too large for one request."""
    total = sum(files.values())
    if total > rules.request_bytes_max:
        raise ConfigError(
            f"the files have {total:,} bytes together, more than the {rules.request_bytes_max:,} of one request "
            "(files.request_bytes_max of the agent)"
        )
