"""Runs a coroutine eagerly up to its first suspension; one that never suspends needs no task."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EagerCall(Generic[T]):
    """Runs a coroutine in the task that makes it, up to its first wait or its end; awaiting it gives what it returns.

    What it raises before its first wait is raised at once.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.value: T
        self.waits = True
        """Whether it has not come to its end; if it has, `value` is what it returned."""
        try:
            self._awaited = coroutine.send(None)
        except StopIteration as end:
            self.waits, self.value = False, end.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on with one that waits. Once."""
        try:
            while True:
                try:
                    given = yield self._awaited
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                    self._awaited = self._coroutine.throw(error)
                else:
                    self._awaited = self._coroutine.send(given)
        except StopIteration as end:
            value: T = end.value
            return value
