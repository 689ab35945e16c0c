"""A loop's stored configuration as the core reads it, and what its functions are given."""

from __future__ import annotations

from decimal import Decimal

import msgspec

REFLECT = "reflect"
"""The name under which the function that reflects is called and stored."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What a scorer gets: the loop's own input, the iteration (1, 2, ...) and its output."""

    input: str
    iteration: int
    output: str


class Reflection(msgspec.Struct, frozen=True, kw_only=True):
    """What the function that reflects gets: as a scorer, with the scores. A failed iteration's output is its error."""

    input: str
    iteration: int
    output: str
    scores: dict[str, float] = {}
    error: str = ""


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """When a loop ends; 0 (or an empty text) is off. `Stop` says what each means."""

    completion: str
    max_iterations: int
    timeout_s: float
    max_cost_usd: Decimal
    max_consecutive_failures: int
    score_threshold: float


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Member(msgspec.Struct, frozen=True):
    config: _Named


class LoopRules(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about a loop's next iteration. The stored configuration is complete, so nothing has a default."""

    runnable: _Member
    scorers: tuple[str, ...]
    reflects: bool
    stop: StopConditions

    @property
    def member(self) -> str:
        """The name of what the loop repeats."""
        return self.runnable.config.name
