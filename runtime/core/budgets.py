"""Budgets: the context advisory for the model, the limit of the window, and ceilings of tokens, cost and time.

Exceeding a ceiling pauses the run at the step boundary, with an approval of kind budget: `approved` with
`arguments={"raise": amount}` raises that one ceiling, `rejected` ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import msgspec

from ...eventlog.errors import ApprovalError
from ...eventlog.events import ApprovalRequested, Budget, Parked, Status, Text, TokenUsage
from ...eventlog.names import digest_of
from ...projections.money import plus_cost
from ...projections.prompt import budget_line
from ...projections.run_state import RunState
from .compaction import exceeds, next_tokens
from .rules import Ceiling, Rules
from .turn import Turn

RAISE_MAX = 10**15
"""Above this a ceiling would have no effect; up to it, amounts are counted exactly."""
KIND = "budget"


# --- the window -------------------------------------------------------------------------------------------------------


def advise(turn: Turn) -> None:
    """Add the advisory that says how full the window is, right before a step."""
    context = turn.state.context
    if context.shows_budget and context.window_tokens is not None:
        turn.add(
            Budget(
                kind="advisory",
                scope="context",
                used=context.tokens,
                limit=context.window_tokens,
                message=budget_line(context.tokens, context.window_tokens),
            )
        )


def stop(turn: Turn) -> bool:
    """End the run if its next call would exceed the context limit and compaction can free no more room."""
    state, limit, window = turn.state, turn.rules.limit_pct, turn.state.context.window_tokens
    if limit is None or window is None or state.step >= turn.rules.max_steps or not exceeds(state, limit):
        return False
    used = next_tokens(state)
    message = f"Stopped: the context budget of {limit}% is used up ({used}/{window} tokens)."
    turn.add(
        Budget(kind="limit", scope="context", used=used, limit=window * limit // 100, message=message),
        Text(text=message),
        Status(status="completed", reason="budget_limit"),
    )
    return True


# --- ceilings ---------------------------------------------------------------------------------------------------------


class _Passed(msgspec.Struct, frozen=True):
    ceiling: Ceiling
    used: Decimal | None
    limit: Decimal

    @property
    def message(self) -> str:
        """The reason as text."""
        used = "an unknown amount" if self.used is None else f"{self.used:f}"
        return f"{self.ceiling.name} of {self.limit:f} is passed: {used} used"


def pause(turn: Turn) -> bool:
    """Pause when a ceiling is exceeded; end the run if an operator rejected the raise, or it timed out."""
    state = turn.state
    for approval in state.approvals.values():
        resolution = approval.resolution
        if approval.request.kind != KIND or resolution is None or resolution.decision == "approved":
            continue
        why = (
            "the approval to raise it timed out"
            if resolution.decision == "timed_out"
            else "an operator did not raise it"
        )
        note = f": {resolution.note}" if resolution.note else ""
        name = approval.request.arguments.get("budget", "")
        turn.fail("budget_exceeded", f"{name} is passed, and {why}{note}", recoverable=False, step=None)
        return True
    found = next(_passed(state, turn.rules), None)
    if found is not None:
        _ask(turn, found)
    return found is not None


def _passed(state: RunState, rules: Rules) -> Iterator[_Passed]:
    for ceiling in rules.ceilings:
        limit = Decimal(ceiling.limit) + Decimal(state.spent.raised.get(ceiling.name, "0"))
        used = _used(state, ceiling)
        if used > limit if used is not None else not _goes_on_uncounted(state, ceiling):
            yield _Passed(ceiling, used, limit)


def _goes_on_uncounted(state: RunState, ceiling: Ceiling) -> bool:
    """Return whether an operator approved going on although the amount used is unknown."""
    requests = (approval for approval in state.approvals.values() if approval.request.kind == KIND)
    return any(
        approval.resolution is not None
        and approval.resolution.decision == "approved"
        and approval.request.arguments.get("budget") == ceiling.name
        and approval.request.arguments.get("used") is None
        for approval in requests
    )


def _used(state: RunState, ceiling: Ceiling) -> Decimal | None:
    """Return the amount used, by the run with all runs below it or by its last step; null if it is unknown."""
    of_step = ceiling.name.startswith("step.")
    match ceiling.scope:
        case "tokens":
            whole = (
                state.model.usage + state.spent.step_broken if of_step else state.usage + state.inner_usage
            )
            return _tokens(whole)
        case "cost":
            of_run = plus_cost(state.cost_usd, state.inner_cost_usd)
            cost = state.spent.step_cost_usd if of_step else of_run
            return None if cost is None else Decimal(cost)
        case "seconds":
            spent = state.spent
            return Decimal(str(round(spent.step_seconds if of_step else spent.seconds, 3)))


def _tokens(usage: TokenUsage) -> Decimal:
    return Decimal(max(usage.total_tokens, usage.input_tokens + usage.output_tokens))


def _ask(turn: Turn, passed: _Passed) -> None:
    state, name = turn.state, passed.ceiling.name
    ordinal = sum(1 for approval in state.approvals.values() if approval.request.kind == KIND)
    turn.add(
        Budget(
            kind="limit",
            scope=passed.ceiling.scope,
            used=_number(passed.used or Decimal(0)),
            limit=_number(passed.limit),
            message=passed.message,
        ),
        ApprovalRequested(
            approval_id=f"ap-{digest_of(state.run, KIND, str(ordinal))[:16]}",
            kind=KIND,
            arguments={
                "budget": name,
                "limit": f"{passed.limit:f}",
                "used": None if passed.used is None else f"{passed.used:f}",
            },
            expires_at=turn.now + turn.rules.approval_timeout_s,
        ),
        Status(status="paused", reason="budget"),
        Parked(reason="budget"),
    )


def _number(amount: Decimal) -> int | float:
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def check_raise(arguments: dict[str, object] | None) -> None:
    """Raise `ApprovalError` unless the arguments raise the ceiling by an amount."""
    amount = (arguments or {}).get("raise")
    named = arguments is not None and arguments.keys() == {"raise"}
    if (
        not named
        or isinstance(amount, bool)
        or not isinstance(amount, int | float | str)
        or not _positive(amount)
    ):
        raise ApprovalError(
            'a budget is raised by an amount: approve with arguments={"raise": AMOUNT}, more than 0 and at most '
            f"{RAISE_MAX:,}, or reject to end the run"
        )


def _positive(amount: float | str) -> bool:
    try:
        number = Decimal(str(amount))
    except ArithmeticError:
        return False
    return number.is_finite() and 0 < number <= RAISE_MAX


# --- what is left -----------------------------------------------------------------------------------------------------


class BudgetUse(msgspec.Struct, frozen=True):
    """The use of one budget, as decimals; `used` is null for an unknown cost.

    `name` is that of the configuration (`max_steps`, `context`, and the ceilings), `scope` what is counted: steps,
    context (tokens), tokens, cost, seconds.
    """

    name: str
    scope: str
    used: str | None
    limit: str


def uses(state: RunState, rules: Rules) -> Iterator[BudgetUse]:
    """Yield the budgets of an agent's run and their use, with raised ceilings; other kinds of runs have none."""
    if state.kind != "agent":
        return
    yield BudgetUse("max_steps", "steps", str(state.steps_completed), str(rules.max_steps))
    if state.context.window_tokens is not None:
        limit = state.context.window_tokens * (rules.limit_pct or 100) // 100
        yield BudgetUse("context", "context", str(state.context.tokens), str(limit))
    for ceiling in rules.ceilings:
        limit_and_raised = Decimal(ceiling.limit) + Decimal(state.spent.raised.get(ceiling.name, "0"))
        used = _used(state, ceiling)
        shown = None if used is None else f"{used:f}"
        yield BudgetUse(ceiling.name, ceiling.scope, shown, f"{limit_and_raised:f}")
