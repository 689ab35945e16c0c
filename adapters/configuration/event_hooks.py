"""Read the hooks on the ends of runs: the `[hooks.<name>]` tables of the configuration that have `on`."""

from __future__ import annotations

from typing import Any

from ...eventlog.priorities import Priority
from ...runtime.triggers.event_hooks import EventHook, On, checked_hooks
from .project_file import project_tables
from .strict_tables import StrictTable


class EventHookTable(StrictTable):
    """One `[hooks.<name>]` table with `on`; the fields are those of `EventHook`."""

    on: On
    of: str | list[str]
    agent: str
    input: str | dict[str, Any] = "${run.output}"
    when: str | None = None
    priority: Priority | int = "normal"


def load_event_hooks() -> list[EventHook]:
    """Return the hooks on ends of the project's configuration. Raises `ConfigError`, which names the table."""
    found = project_tables("hooks")
    hooks: list[EventHook] = []
    for name, given in found.tables.items():
        if isinstance(given, dict) and "on" in given:
            table = EventHookTable.read(given, found.where(name))
            of = (table.of,) if isinstance(table.of, str) else tuple(table.of)
            hooks.append(
                EventHook(
                    name=name,
                    on=table.on,
                    of=of,
                    agent=table.agent,
                    input=table.input,
                    when=table.when,
                    priority=table.priority,
                )
            )
    checked_hooks(hooks, {hook.name: found.where(hook.name) for hook in hooks})
    return hooks
