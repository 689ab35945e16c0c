"""The options of a new run, shared by `start`, `run` and `stream`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from ..eventlog.errors import ConfigError
from ..eventlog.events import Actor, Trigger
from ..eventlog.priorities import Priority
from .agents.config import BudgetsConfig
from .agents.tables import BudgetsTable, SettingsTable
from .ports.settings import ModelSettings
from .ports.suggestions import nearest
from .ports.tools import LONGEST_WAIT_S


class RunOptions(TypedDict, total=False):
    """The arguments of `start`, `run` and `stream` besides an agent and its input; every key is optional.

    `executor` is the name of the executor (default `local`). `messages` come before the input. `session` names the
    conversation that the run belongs to, `lane` one of its lanes, in which runs go one after the other; `user` the user
    for whom it acts. `metadata` is a JSON object that is stored with the run. Neither is shown to the model; tools find
    them in their context, and child runs inherit both.
    The others change the agent for this run: `settings` are merged into the agent's, key by key; `model` is asked
    instead of the agent's; `instructions_suffix` follows its instructions; `max_steps`, `tools` (names) and `budgets`
    may only be less than the agent's. A swarm or a loop hands them down to its agents, but for `budgets`.
    `run_id` chooses the run's id. `idempotency_key` names the submission: submitting it again returns the same run.
    `at` is the time at which it starts, an aware datetime: until then it is only stored. Not in a session.
    `priority` is `urgent`, `normal` (default) or `background`, or a number from 0 to 9 (the most urgent): if runs wait
    for a worker or a slot, each class gets its turns, 8 : 4 : 1. Runs below inherit it.
    `trigger` says what started the run (default: `Trigger(kind="api")`), with the ids of the request behind it.
    `by` is the one who starts it: a name, or an `Actor`.
    """

    executor: str
    messages: Sequence[Mapping[str, Any]]
    session: str | None
    lane: str | None
    user: str | None
    metadata: Mapping[str, Any] | None
    run_id: str | None
    idempotency_key: str | None
    model: str | None
    settings: ModelSettings | SettingsTable | None
    max_steps: int | None
    instructions_suffix: str | None
    tools: Sequence[str] | None
    budgets: BudgetsTable | BudgetsConfig | None
    trigger: Trigger | None
    by: str | Actor
    at: datetime | None
    priority: Priority | int | None


def start_time(at: object, now: float) -> float | None:
    """Return the time of a later start, in Unix seconds; null for none, or one that has come. Raises `ConfigError`."""
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ConfigError(f"at, the time of the start, must be an aware datetime, not {at!r:.60}")
    try:
        due_at = at.timestamp()
    except OverflowError:
        due_at = math.inf
    if due_at > now + LONGEST_WAIT_S:
        raise ConfigError(f"at, the time of the start, must be within a century, not {at!r:.60}")
    return due_at if due_at > now else None


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option that does not exist."""
    known = RunOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"a run has no option {name!r}{nearest(name, known)}")
