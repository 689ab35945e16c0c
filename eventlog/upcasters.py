"""Upcasters: functions that convert the JSON of an event from one version of the vocabulary to the next.

The field `v` of a commit is the version of the vocabulary in which it was written. When the meaning of an event
changes, `VERSION` is raised by one, and an upcaster for that event type and the old version is registered. Upcasters
are pure and kept for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VERSION = 1
"""The version that this code writes."""

JsonObject = dict[str, Any]
Upcast = Callable[[JsonObject], JsonObject]


class Upcasters:
    """A registry of upcasters, one for each (event type, old version)."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcast] = {}

    def register(self, event_type: str, version: int, upcast: Upcast) -> None:
        """Add the step from `version` to `version + 1` for one event type. Raises `ValueError` for a second one."""
        if (event_type, version) in self._steps:
            raise ValueError(f"{event_type!r} already has an upcaster from version {version}")
        self._steps[event_type, version] = upcast

    def upcast(self, event: JsonObject, version: int, target: int = VERSION) -> JsonObject:
        """Return the event in the form of version `target`; unchanged if no upcaster applies."""
        for step in range(version, target):
            upcast = self._steps.get((event["type"], step))
            event = upcast(event) if upcast else event
        return event


UPCASTERS = Upcasters()
"""The upcasters of foldlog's own events."""
