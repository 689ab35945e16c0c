"""The stop conditions of a ralph loop, in their order."""

from __future__ import annotations

import msgspec
import pytest
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.core.loop.config import StopConditions
from foldlog.runtime.core.loop.stop import Iteration, stop_after

OFF = Stop(max_iterations=0, max_consecutive_failures=0)
GOOD = Iteration(
    failed=False,
    output="all DONE",
    scores={"a": 0.5, "b": 1.0},
    cost_usd="0.50",
    started_at=10.0,
    ended_at=13.0,
)
BAD = Iteration(failed=True, output="", cost_usd=None, started_at=13.0, ended_at=14.0)


def stored(stop: Stop) -> StopConditions:
    """As the log has them."""
    return msgspec.convert(stop.model_dump(mode="json"), StopConditions)


@pytest.mark.parametrize(
    ("stop", "iterations", "found"),
    [
        (OFF, [GOOD] * 100, None),
        ({"completion": "DONE"}, [GOOD], "completion"),
        ({"completion": "DONE"}, [BAD], None),
        ({"max_iterations": 2}, [GOOD], None),
        ({"max_iterations": 2}, [GOOD, GOOD], "max_iterations"),
        ({"timeout_s": 3.0}, [GOOD], "timeout"),
        ({"timeout_s": 3.5}, [GOOD], None),
        ({"timeout_s": 3.5}, [GOOD, BAD], "timeout"),
        ({"max_cost_usd": "1"}, [GOOD, BAD], None),
        ({"max_cost_usd": "1"}, [GOOD, BAD, GOOD], "max_cost"),
        ({"max_consecutive_failures": 2}, [BAD, GOOD, BAD], None),
        ({"max_consecutive_failures": 2}, [GOOD, BAD, BAD], "max_consecutive_failures"),
        ({"score_threshold": 0.75}, [GOOD], "score_threshold"),
        ({"score_threshold": 0.76}, [GOOD], None),
        ({"score_threshold": 0.1}, [GOOD, BAD], None),
    ],
)
def test_a_condition_holds_from_its_number_on(
    stop: Stop | dict[str, object], iterations: list[Iteration], found: str | None
) -> None:
    asked = stop if isinstance(stop, Stop) else Stop.model_validate({**OFF.model_dump(), **stop})
    answer = stop_after(stored(asked), iterations)
    assert (answer[0] if answer is not None else None) == found


@pytest.mark.parametrize(
    ("scores", "threshold"),
    [((0.7, 0.7, 0.7), 0.7), ((0.1, 0.2), 0.15), ((1.0, 1.0, 0.0), 2 / 3), ((1.7e308, 1.7e308), 1.7e308)],
)
def test_a_mean_is_that_of_the_scores_as_they_are_written(
    scores: tuple[float, ...], threshold: float
) -> None:
    stop = Stop(score_threshold=threshold)
    scored = Iteration(failed=False, output="", scores={str(n): score for n, score in enumerate(scores)})
    found = stop_after(stored(stop), [scored])
    assert found is not None
    assert found[0] == "score_threshold"
    assert stop_after(stored(Stop(score_threshold=threshold * (1 + 1e-9))), [scored]) is None


def test_the_first_condition_that_holds_is_the_one_that_is_told() -> None:
    conditions = {
        "completion": {"completion": "DONE"},
        "max_iterations": {"max_iterations": 1},
        "timeout": {"timeout_s": 1.0},
        "max_cost": {"max_cost_usd": "0.1"},
        "score_threshold": {"score_threshold": 0.1},
    }
    held: dict[str, object] = OFF.model_dump()
    for name in reversed(conditions):
        held |= conditions[name]
        answer = stop_after(stored(Stop.model_validate(held)), [GOOD])
        assert answer is not None
        assert answer[0] == name
