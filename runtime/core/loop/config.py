"""The part of a loop's stored configuration that the core reads, and the arguments of the loop's functions."""

from __future__ import annotations

from decimal import Decimal

import msgspec

REFLECT = "reflect"
"""The name under which the reflection function is called and its results are stored."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a scorer: the loop's own input, the iteration (1, 2, ...) and its output."""

    input: str
    iteration: int
    output: str


class Reflection(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the reflection function: that of a scorer, plus the scores.

    The output of a failed iteration is its error.
    """

    input: str
    iteration: int
    output: str
    scores: dict[str, float] = {}
    error: str = ""


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that end a loop; 0 (or an empty text) turns one off. `Stop` documents each."""

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
    """The rules of a loop's next iteration. A stored configuration is complete, so there are no defaults."""

    runnable: _Member
    scorers: tuple[str, ...]
    reflects: bool
    stop: StopConditions

    @property
    def member(self) -> str:
        """The name of the runnable that the loop repeats."""
        return self.runnable.config.name
