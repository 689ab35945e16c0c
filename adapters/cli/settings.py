"""The options that every command has: which log, and how to talk."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence

import typer


@dataclasses.dataclass(frozen=True)
class Settings:
    """`server` is a URL; None: `NATS_URL`, else the project's own server."""

    server: str | None = None
    namespace: str = "default"
    quiet: bool = False
    color: bool = True

    @property
    def in_memory(self) -> bool:
        """Return whether the log is in this process alone: no other command reaches it."""
        return (self.server or os.environ.get("NATS_URL")) == "memory://"

    def command(self, *words: str, names: Sequence[str] = ()) -> str:
        """A command line that reaches the same log from another terminal, to be shown and copied.

        `names` are what it is about: one may begin with `-`, as an option does.
        """
        options: list[str] = []
        if self.server is not None:  # a URL may hold a password
            options += ["--server", '"$NATS_URL"' if "@" in self.server else shlex.quote(self.server)]
        if self.namespace != "default":
            options += ["--namespace", shlex.quote(self.namespace)]
        behind = ["--"] if any(name.startswith("-") for name in names) else []
        return " ".join(["foldlog", *options, *map(shlex.quote, [*words, *behind, *names])])


def settings_of(context: typer.Context) -> Settings:
    """What the user chose before (or behind) the command's name."""
    found = context.find_object(Settings)
    return found if found is not None else Settings()
