"""Budgets of a namespace: what all runs together may spend on a model, for a user or of an agent (W65, ADR 0057).

    [budgets]
    "model:openai:gpt-5" = { cost_usd = 50, per = "day" }
    "user:*" = [{ cost_usd = 2, per = "day" }, { tokens = 1_000_000, per = "month", time_zone = "Europe/Oslo" }]
    "user:ada" = { cost_usd = 20, per = "day" }
    namespace = { cost_usd = 1_000, per = "total" }

An hour is one of UTC, a day and a month are those of the time zone. What is spent is in registers, which only the shell
reads (`shared.spending`); here is what follows from them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    BudgetUpdated,
    LateOutcome,
    ModelFailed,
    ModelRequested,
    PlannerReplied,
    StoredEvent,
    SummaryMade,
    TokenUsage,
    Unknown,
    Usage,
)
from ...projections.money import plus_cost, usd_text
from ..ports.time_zones import zone_of

Per = Literal["hour", "day", "month", "total"]
WhenSpent = Literal["wait", "fail"]

NAMESPACE = "namespace"
EACH_USER = "user:*"
AMOUNT_MAX = 10**15
_NAME = re.compile(
    r"(provider|agent):[A-Za-z0-9_.-]{1,128}|model:[A-Za-z0-9_.-]{1,128}:\S{1,256}|user:.{1,256}"
)
_OF_A_MODEL = ("model:", "provider:")
_KEYS = ("cost_usd", "tokens", "per", "time_zone", "when_spent")
_HOUR_S = 3600.0


class SharedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """An amount for a period; `name` is as configured, such as `user:*`. Without an amount: one of other processes."""

    name: str
    cost_usd: Decimal | None = None
    tokens: int | None = None
    per: Per
    time_zone: str = "UTC"
    when_spent: WhenSpent = "wait"

    @property
    def amount(self) -> str:
        """The amount in words: `2 USD a day`; empty if it is not known."""
        if self.cost_usd is None and self.tokens is None:
            return ""
        whole = Spent(tokens=self.tokens or 0, cost_usd=str(self.cost_usd or 0))
        return f"{self.told(whole)} {'in total' if self.per == 'total' else _A[self.per]}"

    def told(self, spent: Spent) -> str:
        """Return the spent amounts as text: `1.98 USD`."""
        amounts = [f"{Decimal(spent.cost_usd):,f} USD"] if self.cost_usd is not None else []
        amounts += [f"{spent.tokens:,} tokens"] if self.tokens is not None else []
        return " and ".join(amounts)

    def period(self, at: float) -> tuple[float, float | None]:
        """Return when the period that `at` is in began, and when the next one begins; null for never."""
        if self.per == "total":
            return 0.0, None
        if self.per == "hour":
            began_at = at // _HOUR_S * _HOUR_S
            return began_at, began_at + _HOUR_S
        zone = zone_of(self.time_zone, self.name)
        today = datetime.fromtimestamp(at, zone).date()
        first = today if self.per == "day" else today.replace(day=1)
        after = today + timedelta(days=1) if self.per == "day" else _next_month(first)
        return _midnight(first, zone), _midnight(after, zone)

    def used_up(self, spent: Spent) -> bool:
        """Return whether nothing is left of an amount."""
        costs = self.cost_usd is not None and Decimal(spent.cost_usd) >= self.cost_usd
        return costs or (self.tokens is not None and spent.tokens >= self.tokens)


_A: dict[Per, str] = {"hour": "an hour", "day": "a day", "month": "a month"}


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The spending of a period; of `calls`, `unpriced` have no known cost."""

    calls: int = 0
    unpriced: int = 0
    tokens: int = 0
    cost_usd: str = "0"


class Purse(NamedTuple):
    """A budget, and whose it is: `user:ada` of `user:*`."""

    budget: SharedBudget
    owner: str

    @property
    def key(self) -> str:
        """The name of its registers."""
        return register_name(self.owner, self.budget.per, self.budget.time_zone)


def register_name(owner: str, per: Per, time_zone: str) -> str:
    """Return the name of the registers of a budget, whatever its amount is."""
    return f"{owner} {per} {time_zone}"


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that is used up. `until` is the start of its next period; null if the run is not to wait for it."""

    budget: str
    message: str
    until: float | None


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime.combine(day, time.min, zone).timestamp()


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


# --- the configuration ------------------------------------------------------------------------------------------------


def check_budgets(table: object, where: str) -> tuple[SharedBudget, ...]:
    """Return the budgets of a table. Raises `ConfigError`, which begins with `where`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table of budgets")
    found: list[SharedBudget] = []
    for name, given in table.items():
        if not isinstance(name, str) or not (name == NAMESPACE or _NAME.fullmatch(name)):
            raise ConfigError(
                f'{where}: {name!r:.80} has no budget; write "model:PROVIDER:MODEL", "provider:NAME", "user:NAME", '
                '"user:*" for each user, "agent:NAME" or namespace'
            )
        entries = given if isinstance(given, list | tuple) else [given]
        found += [_checked(name, entry, f"{where}: the budget of {name!r}") for entry in entries]
    return tuple(found)


def _checked(name: str, entry: object, where: str) -> SharedBudget:
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f'{where} must be a table, such as {{ cost_usd = 2, per = "day" }}, not {entry!r:.40}'
        )
    unknown = [key for key in entry if key not in _KEYS]
    if unknown:
        raise ConfigError(f"{where} has no {unknown[0]!r:.40}; it has {', '.join(_KEYS)}")
    cost_usd, tokens = entry.get("cost_usd"), entry.get("tokens")
    if cost_usd is None and tokens is None:
        raise ConfigError(f"{where} needs an amount: cost_usd, tokens, or both")
    per = _one_of(entry.get("per"), get_args(Per), f"{where}: per")
    zone = entry.get("time_zone", "UTC")
    zone_of(zone, where)
    when_spent = entry.get("when_spent", "fail" if per == "total" else "wait")
    _one_of(when_spent, get_args(WhenSpent), f"{where}: when_spent")
    if per == "total" and when_spent == "wait":
        raise ConfigError(f'{where}: a total has no next period to wait for; when_spent must be "fail"')
    return SharedBudget(
        name=name,
        cost_usd=None if cost_usd is None else _amount(cost_usd, f"{where}: cost_usd"),
        tokens=None if tokens is None else int(_amount(tokens, f"{where}: tokens", whole=True)),
        per=per,
        time_zone=zone,
        when_spent=when_spent,
    )


def _one_of(given: object, words: Sequence[str], where: str) -> Any:
    if given not in words:
        raise ConfigError(f"{where} must be {' or '.join(words)}, not {given!r:.40}")
    return given


def _amount(given: object, where: str, *, whole: bool = False) -> Decimal:
    try:
        amount = Decimal(str(given)) if isinstance(given, int | float | str | Decimal) else Decimal("NaN")
    except ArithmeticError:
        amount = Decimal("NaN")
    fits = amount.is_finite() and 0 < amount <= AMOUNT_MAX and not isinstance(given, bool)
    if not fits or (whole and not isinstance(given, int)):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"{where} must be {kind} above 0 and at most {AMOUNT_MAX:,}, not {given!r:.40}")
    return amount


# --- whose calls they are ---------------------------------------------------------------------------------------------


def purses_of(budgets: Iterable[SharedBudget], model: str, user: str | None, agent: str) -> Iterator[Purse]:
    """Yield the budgets that a call of `provider:model` by a run of the agent for the user is under.

    A user with budgets of its own has no others.
    """
    mine = (f"model:{model}", f"provider:{model.partition(':')[0]}", f"agent:{agent}", NAMESPACE)
    own = f"user:{user}" if user is not None else None
    each = own is not None and all(budget.name != own for budget in budgets)
    for budget in budgets:
        if budget.name in mine or budget.name == own:
            yield Purse(budget, budget.name)
        elif budget.name == EACH_USER and each and own is not None:
            yield Purse(budget, own)


def owners_of(budget: SharedBudget, budgets: Iterable[SharedBudget], known: Iterable[str]) -> Iterator[Purse]:
    """Yield the purses of a budget; those of each user for the users among the known owners."""
    if budget.name != EACH_USER:
        yield Purse(budget, budget.name)
        return
    own = {each.name for each in budgets}
    yield from (Purse(budget, name) for name in known if name.startswith("user:") and name not in own)


def purses_in(registers: Iterable[BudgetUpdated]) -> Iterator[Purse]:
    """Yield the purses that registers are of, without amounts; none of a time zone that is unknown in this process."""
    owners = {register_name(each.name, each.per, each.time_zone): each for each in registers}
    for _name, each in sorted(owners.items()):
        with contextlib.suppress(ConfigError):
            zone_of(each.time_zone, each.name)
            yield Purse(SharedBudget(name=each.name, per=each.per, time_zone=each.time_zone), each.name)


def is_of_a_model(budget: str) -> bool:
    """Return whether a budget, as `model_failed` names it, is that of the model, so that another may be called."""
    return budget.startswith(_OF_A_MODEL)


def judged(purse: Purse, spent: Spent, now: float) -> SpentBudget | None:
    """Return the refusal of a call; null if the budget is not used up."""
    budget = purse.budget
    if not budget.used_up(spent):
        return None
    _began_at, until = budget.period(now)
    again = f"; the next period begins at {told_at(until, budget.time_zone)}" if until is not None else ""
    name = f"{purse.owner}: {budget.amount}"
    return SpentBudget(
        budget=name,
        message=f"the budget {name} is used up ({budget.told(spent)} spent){again}",
        until=until if budget.when_spent == "wait" else None,
    )


def told_at(at: float, time_zone: str) -> str:
    """Return a time as it is written in its time zone."""
    return datetime.fromtimestamp(at, zone_of(time_zone, "time_zone")).isoformat(timespec="seconds")


# --- what is spent ----------------------------------------------------------------------------------------------------


class ModelCallCost(NamedTuple):
    """A call that was paid for: the model, as `provider:model`, its tokens, and its cost, null if it is unknown."""

    model: str
    usage: TokenUsage
    cost_usd: str | None


def paid_in(events: Iterable[StoredEvent | Unknown], model: str) -> Iterator[ModelCallCost]:
    """Yield the model calls that a run's own events pay for; `model` was requested last before them."""
    for event in events:
        if event.agent_path:  # forwarded from an inner agent, whose run has it
            continue
        match event:
            case ModelRequested():
                model = event.model
            case Usage() | PlannerReplied() | SummaryMade():
                yield ModelCallCost(model, event.usage, event.cost_usd)
            case ModelFailed() | LateOutcome() if event.usage is not None:
                yield ModelCallCost(model, event.usage, event.cost_usd)
            case _:
                pass


def counted(now: BudgetUpdated, began_at: float, call: ModelCallCost) -> BudgetUpdated:
    """Return the register with one more call; a new period begins at nothing, and a clock that is behind counts now."""
    if began_at > now.began_at:
        now = BudgetUpdated(name=now.name, per=now.per, time_zone=now.time_zone, began_at=began_at)
    usage = call.usage
    return msgspec.structs.replace(
        now,
        calls=now.calls + 1,
        unpriced=now.unpriced + (call.cost_usd is None),
        tokens=now.tokens + max(usage.total_tokens, usage.input_tokens + usage.output_tokens),
        cost_usd=plus_cost(now.cost_usd, call.cost_usd or "0") or now.cost_usd,
    )


def sum_of(parts: Iterable[BudgetUpdated], began_at: float) -> Spent:
    """Return what all shards have spent in the period that began then."""
    current = [each for each in parts if each.began_at >= began_at]
    return Spent(
        calls=sum(each.calls for each in current),
        unpriced=sum(each.unpriced for each in current),
        tokens=sum(each.tokens for each in current),
        cost_usd=usd_text(sum((Decimal(each.cost_usd) for each in current), Decimal(0))),
    )
