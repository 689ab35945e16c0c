"""Eager coroutines: they run up to their first suspension; one that never suspends needs no task."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EagerCall(Generic[T]):
    """Runs a coroutine in the calling task up to its first suspension or its end; awaiting it returns its result.

    Errors before its first suspension are raised at once.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.value: T
        self.waits = True
        """False if the coroutine has ended; then `value` is its result."""
        try:
            self._awaited = coroutine.send(None)
        except StopIteration as end:
            self.waits, self.value = False, end.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Continue a suspended coroutine. Use once."""
        try:
            while True:
                try:
                    given = yield self._awaited
                except BaseException as error:  # noqa: BLE001 - the coroutine handles it
                    self._awaited = self._coroutine.throw(error)
                else:
                    self._awaited = self._coroutine.send(given)
        except StopIteration as end:
            value: T = end.value
            return value
