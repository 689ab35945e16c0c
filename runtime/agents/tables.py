"""The tables of a configuration as users write them: types for checkers, which refuse a misspelt key.

Each has the keys of its model in `config`, where they are described and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, Required, TypedDict

from ...eventlog.events import PolicyAction
from ..ports.settings import Cache, Effort


class SettingsTable(TypedDict, total=False):
    """`ModelSettings` as a table."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: Sequence[str] | None
    seed: int | None
    parallel_tool_calls: bool | None
    tool_choice: str | None
    reasoning: Effort | int | None
    verbosity: Literal["low", "medium", "high"] | None
    service_tier: str | None
    cache: Cache | None
    timeout_s: float | None
    headers: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None
    strict: bool | None


class ContextTable(TypedDict, total=False):
    """`ContextConfig` as a table."""

    mode: Literal["pilot", "copilot", "navigator"] | None
    history_messages_max: int | None
    summary_at_messages: int | None
    offload_at_messages: int | None
    overflow: Literal["summarize", "truncate", "none"]
    window_tokens: int | None
    trigger_pct: int
    compact_pct: int
    keep_user_tokens: int
    artifact_bytes_min: int


class MemoryTable(TypedDict, total=False):
    """`MemoryConfig` as a table."""

    scope: Required[Literal["user", "session", "task", "none"]]
    backend: str


class CeilingsTable(TypedDict, total=False):
    """`Ceilings` as a table."""

    max_tokens: int | None
    max_cost_usd: Decimal | float | str | None
    max_seconds: float | None


class BudgetsTable(CeilingsTable, total=False):
    """`BudgetsConfig` as a table."""

    step: CeilingsTable | None


class RetryTable(TypedDict, total=False):
    """`RetryConfig` as a table."""

    attempts: int
    base_s: float
    max_s: float
    jitter: bool
    exhausted: Literal["error", "pause"]
    quota: Mapping[Literal["transient", "rate_limit", "tool_failure"], int]


class BreakerTable(TypedDict, total=False):
    """`BreakerConfig` as a table."""

    failures: int
    open_s: float


class PolicyRuleTable(TypedDict, total=False):
    """`PolicyRuleConfig` as a table."""

    tool: str
    arguments: Mapping[str, str]
    unless: Mapping[str, str]
    when: str | None
    action: Required[PolicyAction]
    reason: str


class PolicyTable(TypedDict, total=False):
    """`PolicyConfig` as a table."""

    rules: Sequence[PolicyRuleTable]
    default: PolicyAction


class ConcurrencyTable(TypedDict, total=False):
    """`ConcurrencyConfig` as a table."""

    runs_max: int | None


class FilesTable(TypedDict, total=False):
    """`FilesConfig` as a table."""

    file_bytes_max: int
    request_bytes_max: int


class StopTable(TypedDict, total=False):
    """`Stop`, the conditions that end a loop, as a table."""

    completion: str
    max_iterations: int
    timeout_s: float
    max_cost_usd: Decimal | float | str
    max_consecutive_failures: int
    score_threshold: float
