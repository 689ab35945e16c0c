"""The fold's table: each stored event has one function, and the function is written for it."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import pytest
from foldlog.eventlog.events import ENGINE, OBSERVABLE, Event, Unknown
from foldlog.projections.fold import FOLDS


def test_each_event_is_folded_by_exactly_one_function() -> None:
    stored = [*OBSERVABLE, *ENGINE, Unknown]
    assert sorted(each.__name__ for each in FOLDS) == sorted({each.__name__ for each in stored})


@pytest.mark.parametrize("event", FOLDS, ids=lambda event: event.__name__)
def test_the_function_is_written_for_the_event(event: type[Event]) -> None:
    fold: Any = FOLDS[event]
    _, parameter, *_ = inspect.signature(fold).parameters
    written_for = get_type_hints(fold)[parameter]
    assert written_for is Any or event in (get_args(written_for) or (written_for,))
