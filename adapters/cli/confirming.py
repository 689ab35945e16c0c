"""Ask for confirmation on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from .output.terminal import Screen


def agreed(screen: Screen, question: str, act: str) -> bool:
    """Ask for confirmation. Call it without open connections. Raises `ConfigError` without a terminal."""
    from ...eventlog.errors import ConfigError

    try:
        answer = typer.confirm(question, default=False, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)  # ends the line of the question
        raise ConfigError(f"cannot ask for confirmation without a terminal; use --yes to {act}") from None
    if answer:
        return True
    screen.say("nothing was done")
    return False
