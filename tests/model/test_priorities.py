"""In a line of several priorities no free slot is forgotten, in every state that can be reached (W64)."""

import pytest
from foldlog.eventlog.priorities import Priority

from tests.model.priorities import Rules, check


@pytest.mark.parametrize("owed", [{}, {"urgent": 2, "normal": -9, "background": 7}])
def test_every_run_of_a_line_with_priorities_comes_to_its_turn(owed: dict[Priority, int]) -> None:
    broken, states = check(Rules(), owed)
    assert broken == ""
    assert states > 500


def test_without_its_wake_ups_a_line_with_priorities_is_forgotten() -> None:
    assert check(Rules(ends_wake=False), {})[0] == "ends"
