"""The actor of a command: the user of this machine, or the name that `--by` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...eventlog.events import Actor


def user_name() -> str:
    """Return the name of the user of this machine, the actor of its commands; empty if it has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def operator(by: str = "") -> Actor:
    """Return the actor of a command: the given name, else the user of this machine; `via` is the command line."""
    from ...eventlog.events import Actor

    return Actor(by=by or user_name(), via="cli")
