"""The options that every command has: the log to use, and the form of the output."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence

import typer


@dataclasses.dataclass(frozen=True)
class Settings:
    """The global options. `server` is a URL; None: `NATS_URL`, else the project's own server."""

    server: str | None = None
    namespace: str = "default"
    quiet: bool = False
    color: bool = True

    @property
    def in_memory(self) -> bool:
        """Return whether the log is in the memory of this process, out of reach of other commands."""
        return (self.server or os.environ.get("NATS_URL")) == "memory://"

    def command(self, *words: str, names: Sequence[str] = ()) -> str:
        """Return a command line that reaches the same log from another terminal, to be shown and copied.

        `names` are its positional arguments, which may begin with `-` as an option does.
        """
        options: list[str] = []
        if self.server is not None:  # a URL may hold a password
            options += ["--server", '"$NATS_URL"' if "@" in self.server else shlex.quote(self.server)]
        if self.namespace != "default":
            options += ["--namespace", shlex.quote(self.namespace)]
        separator = ["--"] if any(name.startswith("-") for name in names) else []
        return " ".join(["foldlog", *options, *map(shlex.quote, [*words, *separator, *names])])


def settings_of(context: typer.Context) -> Settings:
    """Return the global options that the user gave."""
    found = context.find_object(Settings)
    return found if found is not None else Settings()
