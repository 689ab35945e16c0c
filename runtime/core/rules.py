"""The rules that the core decides by: a small frozen value, read once per run from an agent's configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from ...eventlog.events import Submitted, ToolEffect
from ..ports.files import FILE_BYTES_MAX, REQUEST_BYTES_MAX
from ..ports.native_tools import NativeTool, native_tool
from ..ports.settings import ModelSettings
from .lineage import fork_policy
from .policy import Policy, joined

ASKED_EFFECTS: frozenset[ToolEffect] = frozenset({"unsafe", "idempotent"})
"""The effects that a fork requests approvals for. Its calls have their own idempotency keys, so even a call that was
idempotent for the parent would be carried out a second time."""

PARK_RETRY_S = 10.0
"""A retry that is due later than this parks the run (a timer in the log); an earlier one is waited for in place."""

RULES_NOW = 1
"""The rules of runs submitted now (ADR 0024). A release that changes a decision increments this number."""


def has_rule(submitted: Submitted | None, number: int) -> bool:
    """Return whether a run was submitted under these rules or later ones; a run not yet submitted has all of them.

    No release has changed a decision yet, so nothing calls this. A changed decision gets a named constant here, and a
    branch at the place of the decision.
    """
    return submitted is None or submitted.rules >= number


APPROVAL_TIMEOUT_S = 7 * 24 * 3600.0
RETRYABLE_ATTEMPTS = 3
"""Attempts of a pure or idempotent tool that raises `Retryable` without declaring `max_attempts`."""


class RetryRules(msgspec.Struct, frozen=True):
    """Backoff of model calls: `base_s` x 2^n, at most `max_s`, spread by up to a quarter; `attempts` in all."""

    attempts: int = 5
    base_s: float = 0.2
    max_s: float = 20.0
    jitter: bool = True
    exhausted: Literal["error", "pause"] = "error"
    """The reaction of a run when its model and all fallbacks have failed."""
    quota: dict[str, int] = {}
    """The most retries of the run in all, by error type; types that are missing are not limited."""


MODES = {"pilot": (100, 100, 100), "copilot": (20, 10, 50), "navigator": (10, 5, 20)}
"""By mode: messages of history, messages kept by a summary, messages from which results are offloaded sooner."""


class ContextRules(msgspec.Struct, frozen=True):
    """The rules for keeping the prompt within the window. `windows`: the agent has a `context` table."""

    windows: bool = False
    history_messages_max: int | None = None
    summary_at_messages: int | None = None
    offload_at_messages: int | None = None
    overflow: Literal["summarize", "truncate", "none"] = "summarize"
    window_tokens: int | None = None
    trigger_pct: int = 80
    compact_pct: int = 90
    keep_user_tokens: int = 20_000
    artifact_bytes_min: int = 32_768

    @property
    def kept_messages(self) -> int:
        """The number of messages that a cut leaves: well below the limit, so that the next cut is some way off."""
        most = self.history_messages_max or 0
        return max(1, min(self.summary_at_messages or most, most // 2))


class Ceiling(msgspec.Struct, frozen=True):
    """A ceiling for the run or for each step: `name` as in the configuration, `limit` a decimal."""

    name: str
    scope: Literal["tokens", "cost", "seconds"]
    limit: str


class BreakerRules(msgspec.Struct, frozen=True):
    """The consecutive `failures` after which a circuit breaker opens, and how long it stays open."""

    failures: int = 5
    open_s: float = 30.0


class FileRules(msgspec.Struct, frozen=True):
    """The size limits of a file, and of all files of one model request."""

    file_bytes_max: int = FILE_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX


class Rules(msgspec.Struct, frozen=True):
    """The part of a configuration that the core decides by. Its defaults are those of a configuration, too."""

    model: str = ""
    max_steps: int = 10
    settings: ModelSettings = ModelSettings()
    on_length: Literal["error", "continue", "accept"] = "error"
    """The handling of a final answer that the provider cut off at its length limit."""
    output_schema: dict[str, Any] | None = None
    output_retries: int = 1
    native_tools: tuple[NativeTool, ...] = ()
    """The tools that the provider runs itself, within the replies of steps."""
    hitl_tools: frozenset[str] = frozenset()
    approved_effects: frozenset[ToolEffect] = frozenset()
    """Tools with these effects need an approval, by any name; forks use this to request approvals again."""
    policy: Policy = Policy()
    injected_tool_args: dict[str, str] = {}
    emit_mcp_progress: bool = True
    loop_threshold: int = 3
    retry: RetryRules = RetryRules()
    fallback_models: tuple[str, ...] = ()
    breaker: BreakerRules | None = None
    """Null for an agent whose calls have no circuit breaker."""
    model_idle_timeout_s: float = 120.0
    model_first_token_timeout_s: float | None = None
    """Null for the default of `model_call`, which depends on the length of the prompt."""
    model_timeout_s: float = 600.0
    step_timeout_s: float | None = None
    run_timeout_s: float | None = None
    approval_timeout_s: float = APPROVAL_TIMEOUT_S
    planning: bool = False
    planning_model: str | None = None
    planning_instructions: str = ""
    tells_window: bool = False
    """If true, each message says how full the window is."""
    limit_pct: int | None = None
    """The percentage of the window that the run may use."""
    context: ContextRules = ContextRules()
    ceilings: tuple[Ceiling, ...] = ()
    files: FileRules = FileRules()
    runs_max: int | None = None
    """The most runs of the agent that may be driven at once."""

    @property
    def models(self) -> tuple[str, ...]:
        """All models that a run may call, as provider:model."""
        planning = (self.planning_model,) if self.planning and self.planning_model else ()
        return (self.model, *planning, *self.fallback_models)


def rules_of_run(submitted: Submitted) -> Rules:
    """Return the rules of a run: those of its configuration, and those that forks add."""
    rules = rules_of(submitted.config)
    if submitted.policy:
        policy = joined(submitted.config.get("policy") or {}, submitted.policy)
        rules = msgspec.structs.replace(rules, policy=policy)
    if fork_policy(submitted) in {None, "run"}:
        return rules
    return msgspec.structs.replace(rules, approved_effects=ASKED_EFFECTS)


_AS_GIVEN = (
    "model",
    "max_steps",
    "on_length",
    "output_schema",
    "output_retries",
    "injected_tool_args",
    "emit_mcp_progress",
    "loop_threshold",
    "model_idle_timeout_s",
    "model_first_token_timeout_s",
    "model_timeout_s",
    "step_timeout_s",
    "run_timeout_s",
    "approval_timeout_s",
    "planning_model",
    "planning_instructions",
)
"""The keys of a configuration that a field of `Rules` takes as they are."""


def rules_of(config: Mapping[str, Any]) -> Rules:
    """Return the rules of a serialised configuration, which was validated when the run was submitted."""
    given = {name: config[name] for name in _AS_GIVEN if config.get(name) is not None}
    settings = msgspec.convert(config.get("settings") or {}, ModelSettings)
    if settings.timeout_s is not None:
        given["model_timeout_s"] = settings.timeout_s
    retry = {k: v for k, v in (config.get("retry") or {}).items() if k in RetryRules.__struct_fields__}
    return Rules(
        **given,
        settings=settings,
        native_tools=tuple(map(native_tool, config.get("native_tools") or ())),
        hitl_tools=frozenset(config.get("hitl_tools") or ()),
        policy=msgspec.convert(config.get("policy") or {}, Policy),
        retry=RetryRules(**retry),
        fallback_models=tuple(config.get("fallback_models") or ()),
        breaker=BreakerRules(**config["breaker"]) if config.get("breaker") is not None else None,
        planning=config.get("planning_enabled", False),
        tells_window=config.get("budget_awareness") == "per-message",
        limit_pct=_limit_pct(config.get("budget_awareness") or ""),
        context=_context_rules(config.get("context")),
        ceilings=tuple(_ceilings(config.get("budgets") or {})),
        files=FileRules(**(config.get("files") or {})),
        runs_max=(config.get("concurrency") or {}).get("runs_max"),
    )


def _limit_pct(awareness: str) -> int | None:
    return int(awareness.removeprefix("limit:")) if awareness.startswith("limit:") else None


def _context_rules(table: Mapping[str, Any] | None) -> ContextRules:
    """Return the numbers of the mode; explicit numbers override them."""
    if table is None:
        return ContextRules()
    history, summary, offload = MODES.get(table.get("mode") or "", (None, None, None))
    numbers = {
        "history_messages_max": history,
        "summary_at_messages": summary,
        "offload_at_messages": offload,
    }
    given = {key: value for key, value in table.items() if key in ContextRules.__struct_fields__}
    return ContextRules(**{**numbers, **given, "windows": True})


def _ceilings(budgets: Mapping[str, Any]) -> Iterator[Ceiling]:
    scopes: tuple[tuple[str, Literal["tokens", "cost", "seconds"]], ...] = (
        ("max_tokens", "tokens"),
        ("max_cost_usd", "cost"),
        ("max_seconds", "seconds"),
    )
    for prefix, table in (("", budgets), ("step.", budgets.get("step") or {})):
        for key, scope in scopes:
            if table.get(key) is not None:
                yield Ceiling(prefix + key, scope, str(table[key]))


def backoff_s(retry: RetryRules, failures: int, seed: str) -> float:
    """Return the wait after the n-th failure (1, 2, ...). The jitter comes from `seed`, so it is deterministic."""
    spread = hashlib.sha256(f"{seed}:{failures}".encode()).digest()[0] / 255 * 0.5 + 0.75
    pause_s = min(retry.max_s, retry.base_s * 2.0 ** (failures - 1))
    return pause_s * float(spread) if retry.jitter else pause_s
