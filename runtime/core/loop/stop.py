"""The stop conditions of a ralph loop, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import msgspec

from .config import StopConditions

StopType = Literal[
    "completion",
    "max_iterations",
    "timeout",
    "max_cost",
    "max_consecutive_failures",
    "score_threshold",
    "user_interrupted",
    "system_error",
]


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One finished iteration, as the stop conditions see it. `cost_usd` is null if the cost is unknown."""

    failed: bool
    output: str
    scores: Mapping[str, float] = {}
    cost_usd: str | None = None
    started_at: float = 0.0
    ended_at: float = 0.0


def stop_after(stop: StopConditions, iterations: list[Iteration]) -> tuple[StopType, str] | None:
    """Return the first stop condition that holds, with its reason as text; null to continue."""
    latest = iterations[-1]
    if stop.completion and not latest.failed and stop.completion in latest.output:
        return "completion", f"the output contains {stop.completion!r}"
    if 0 < stop.max_iterations <= len(iterations):
        return "max_iterations", f"{len(iterations)} iterations are done"
    if 0 < stop.timeout_s <= (taken_s := latest.ended_at - iterations[0].started_at):
        return "timeout", f"{taken_s:.3f} s are over, of {stop.timeout_s:g} s"
    if 0 < stop.max_cost_usd <= (cost_usd := _cost(iterations)):
        return "max_cost", f"{cost_usd} USD are spent, of {stop.max_cost_usd} USD"
    if 0 < stop.max_consecutive_failures <= (failures := _failures(iterations)):
        return "max_consecutive_failures", f"{failures} iterations in a row failed"
    if latest.scores and 0 < stop.score_threshold <= (mean := _mean(list(latest.scores.values()))):
        return "score_threshold", f"the mean score is {mean:g}, of {stop.score_threshold:g}"
    return None


def _mean(scores: Sequence[float]) -> float:
    """Return the mean of the scores as written: that of three times 0.7 is 0.7, which a sum of floats misses."""
    return float(sum(Fraction(repr(score)) for score in scores) / len(scores))


def _cost(iterations: Iterable[Iteration]) -> Decimal:
    return sum((Decimal(each.cost_usd) for each in iterations if each.cost_usd is not None), Decimal(0))


def _failures(iterations: list[Iteration]) -> int:
    for count, each in enumerate(reversed(iterations)):
        if not each.failed:
            return count
    return len(iterations)
