"""Old events read as new ones: functions from the JSON of one vocabulary version to that of the next.

A commit says in `v` which version of the vocabulary it was written in. When the meaning of an event changes, `VERSION`
rises by one and an upcaster for that event type and the old version is registered. Upcasters are pure and stay
for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VERSION = 1
"""The version that this code writes."""

JsonObject = dict[str, Any]
Upcast = Callable[[JsonObject], JsonObject]


class Upcasters:
    """A registry of upcasters, one for each (event type, version it was written in)."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcast] = {}

    def register(self, event_type: str, version: int, upcast: Upcast) -> None:
        """Add the step from `version` to `version + 1` for one event type. Raises `ValueError` for a second one."""
        if (event_type, version) in self._steps:
            raise ValueError(f"there is an upcaster of {event_type!r} from version {version} already")
        self._steps[event_type, version] = upcast

    def upcast(self, event: JsonObject, version: int, target: int = VERSION) -> JsonObject:
        """The event as version `target` would have written it; unchanged where nothing is registered."""
        for step in range(version, target):
            upcast = self._steps.get((event["type"], step))
            event = upcast(event) if upcast else event
        return event


UPCASTERS = Upcasters()
"""The upcasters of foldlog's own events."""
