"""Options whose value is JSON, given on the command line or in a file."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable
from typing import Any

import typer


def json_option(name: str, text: str | None, *, an_object: bool) -> Any:
    """Return the value, or None if there is none. Raises `typer.BadParameter`, which names the option."""
    if text is None:
        return None
    value = _parsed(name, text)
    if an_object and not isinstance(value, dict):
        raise typer.BadParameter(f"{name} must be a JSON object")
    return value


def metadata_option(name: str, given: Iterable[str]) -> dict[str, Any]:
    """Return one object from all values, each a JSON object or `KEY=VALUE`. Raises `typer.BadParameter`."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if text.lstrip().startswith(("{", "[")) or not equals:
            found |= json_option(name, text, an_object=True)
        elif key:
            found[key] = value
        else:
            raise typer.BadParameter(f"{name} is written KEY=VALUE, or as a JSON object, not {text!r}")
    return found


def settings_option(name: str, given: Iterable[str]) -> dict[str, Any]:
    """Return settings from `KEY=VALUE`: a value is parsed as JSON if possible, else it is text.

    Raises `typer.BadParameter`.
    """
    import msgspec

    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{name} is written KEY=VALUE, not {text!r}")
        try:
            found[key] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            found[key] = value
    return found


def messages_option(name: str, path: str | None) -> list[Any]:
    """Return the messages in a JSON file, none without a file. Raises `typer.BadParameter`, which names the option."""
    from ...eventlog.errors import ConfigError
    from ...eventlog.files import read_bounded

    if path is None:
        return []
    try:
        text = read_bounded(path).decode()
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{name}: {path} cannot be read: {error}") from None
    value = _parsed(name, text)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise typer.BadParameter(f"{name}: {path} must hold a JSON list of messages")
    return value


def _parsed(name: str, text: str) -> Any:
    try:
        return jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{name} is not JSON: {error}") from None
