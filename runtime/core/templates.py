"""Templates of hooks and schedules: texts with paths (`${body.a.b[0]["odd key"]}`) and nothing more.

A template that is one path alone gives the value as it is; within a text a value that is not text is written as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from .paths import INDEX, Nowhere, Path, parse_path, value_at

_PART = re.compile(r"\$\{([^}]*)\}")
_PATH = re.compile(rf"([A-Za-z_]\w*)((?:\.[A-Za-z_][\w-]*|{INDEX})*)", re.ASCII)


class Missing(Exception):
    """A path that leads nowhere in what was sent, or to null where a name is needed."""

    def __init__(self, path: str, *, is_null: bool = False) -> None:
        super().__init__(f"{path} is null" if is_null else f"the body has no {path}")
        self.path = path


class Template:
    """A text with paths. Raises `ConfigError`, which begins with `where`, for what is not a path below `root`.

    With several roots, or any (null), the content that it is filled with is a mapping of them.
    """

    def __init__(self, text: str, where: str, root: str | Sequence[str] | None) -> None:
        self.text, self.where = text, where
        self._parts: list[str | tuple[str, Path]] = []
        end = 0
        for found in _PART.finditer(text):
            self._parts += [text[end : found.start()], (found[1], _steps(found[1], where, root))]
            end = found.end()
        self._parts.append(text[end:])
        if any("${" in part for part in self._parts if isinstance(part, str)):
            raise ConfigError(f"{where}: {text!r:.80} has a ${{ without its }}")
        self._parts = [part for part in self._parts if part]

    @property
    def roots(self) -> list[str]:
        """The first names of its paths, of a template with several roots or any."""
        return [str(part[1][0]) for part in self._parts if not isinstance(part, str) and part[1]]

    @property
    def paths(self) -> list[Path]:
        """The paths, of a template with several roots or any."""
        return [part[1] for part in self._parts if not isinstance(part, str)]

    def value(self, content: Any, *, null: Collection[str] = ()) -> Any:
        """Return the value of a path alone, else the text with its paths filled in. Raises `Missing`.

        A path that begins with a name in `null` has the value null.
        """
        values = [
            part if isinstance(part, str) else None if part[1] and part[1][0] in null else _at(content, *part)
            for part in self._parts
        ]
        if len(self._parts) == 1 and not isinstance(self._parts[0], str):
            return values[0]
        return "".join(_as_text(value) for value in values)

    def fill(self, content: Any) -> str:
        """Return the text with its paths filled in. Raises `Missing`."""
        return _as_text(self.value(content))

    def name(self, content: Any) -> str:
        """Return the text as `fill` does, for what names one thing among others. Raises `Missing`, for null, too.

        All that have no name would otherwise be one thing, named "null".
        """
        for part in self._parts:
            if not isinstance(part, str) and _at(content, *part) is None:
                raise Missing(part[0], is_null=True)
        return self.fill(content)


class Filled:
    """A template, or a table of templates, whose text is JSON."""

    def __init__(self, given: str | Mapping[str, Any], where: str, root: str | Sequence[str] | None) -> None:
        self._made = _made(given, where, root)

    def value(self, content: Any) -> Any:
        """Return the value. Raises `Missing`."""
        return _filled(self._made, content)

    def fill(self, content: Any) -> str:
        """Return the value as text. Raises `Missing`."""
        return _as_text(self.value(content))


def _made(given: Any, where: str, root: str | Sequence[str] | None) -> Any:
    if isinstance(given, str):
        return Template(given, where, root)
    if isinstance(given, Mapping):
        return {key: _made(value, f"{where}.{key}", root) for key, value in given.items()}
    return [_made(each, where, root) for each in given] if isinstance(given, list) else given


def _filled(made: Any, content: Any) -> Any:
    if isinstance(made, Template):
        return made.value(content)
    if isinstance(made, dict):
        return {key: _filled(value, content) for key, value in made.items()}
    return [_filled(each, content) for each in made] if isinstance(made, list) else made


def _steps(path: str, where: str, root: str | Sequence[str] | None) -> Path:
    found = _PATH.fullmatch(path)
    try:
        steps = () if found is None else parse_path(found[2])
    except ValueError as error:
        raise ConfigError(f"{where}: ${{{path:.60}}}: {error}") from None
    if root is None:
        if found is None:
            raise ConfigError(
                f"{where}: ${{{path:.60}}} is not a path; write ${{step.result}} or ${{input.name}}"
            )
        return (found[1], *steps)
    if not isinstance(root, str):
        if found is None or found[1] not in root:
            raise ConfigError(f"{where}: ${{{path:.60}}} is unknown; there are {', '.join(root)}")
        return (found[1], *steps)
    if found is None:
        raise ConfigError(
            f"{where}: ${{{path:.60}}} is not a path; write ${{{root}.name}} or ${{{root}.list[0]}}"
        )
    if found[1] != root:
        raise ConfigError(f"{where}: ${{{path:.60}}} must begin with {root!r}")
    return steps


def _at(content: Any, path: str, steps: Path) -> Any:
    try:
        return value_at(content, steps)
    except Nowhere:
        raise Missing(path) from None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
