"""One attempt at a model call: deltas are published as drafts as they come, the complete reply becomes a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

import msgspec

from ...eventlog.errors import FoldlogError, LogUnavailable
from ...eventlog.ports import DraftPiece
from ...projections.messages import CallRequest
from ...projections.run_state import RunState
from ...projections.tokens import messages_tokens
from ..core.commands import ModelCallFailed, ModelReplied
from ..core.effects import CallModel, Effect
from ..core.model_calls import BUDGET_SPENT, CIRCUIT_OPEN, RETRIED_ERRORS
from ..core.model_request import model_request
from ..core.rules import Rules
from ..journal.outages import through_outages
from ..ports.json_values import as_stored, bounded, seconds_of, sound
from ..ports.models import (
    HEARD,
    CallDelta,
    ContextOverflow,
    Delta,
    FileDelta,
    Finished,
    ModelError,
    ModelProvider,
    ModelRequest,
    ProviderCall,
    ReasoningDelta,
    TextDelta,
    cut_reason,
    unknown_settings,
)
from ..shared.breakers import Breaker, provider_breaker
from ..shared.spending import Spending
from .call_timeout import PausableTimeout
from .cancellation import is_being_cancelled
from .files import made_files, with_artifacts
from .host import Outbox
from .usage import Account, account

Channel = Literal["text", "reasoning", "tool_calls"]
READ_TOKENS_PER_S = 100
"""The slowest that a model is expected to read its prompt, unless the agent configures otherwise."""
TOKENS_MAX = 10**12
"""A larger number reported by a server is ignored."""
IDLE_TOLERANCE = 0.01
"""The share by which an idle timeout may come early: moving a timer for each token costs more than the token."""


_NOTHING_YET = CallRequest(id="", name="", arguments="")


class _Answer:
    """The part of a reply that has arrived."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.files: list[FileDelta] = []
        self.provider_calls: list[ProviderCall] = []
        self.calls: dict[int, CallRequest] = {}
        self.finished: Finished | None = None
        self.request: ModelRequest | None = None
        """The request that it answers."""
        self.sizes: dict[tuple[Channel, int], int] = {}
        self._halves: dict[tuple[Channel, int], str] = {}
        """For each channel, the first half of a surrogate pair whose second half is still to come."""

    def add(self, delta: Delta) -> tuple[Channel, int, str, str] | None:
        """Add a delta; return its draft: channel, call index, text, tool name; null for none."""
        match delta:
            case TextDelta():
                text = self._characters("text", 0, delta.text)
                self.text.append(text)
                return ("text", 0, text, "") if text else None
            case ReasoningDelta():
                text = self._characters("reasoning", 0, delta.text)
                self.reasoning.append(text)
                return ("reasoning", 0, text, "") if text else None
            case CallDelta():
                text = self._characters("tool_calls", delta.index, delta.arguments)
                before = self.calls.get(delta.index, _NOTHING_YET)
                call = CallRequest(
                    id=before.id or sound(delta.id),
                    name=before.name + sound(delta.name),
                    arguments=before.arguments + text,
                )
                self.calls[delta.index] = call
                return "tool_calls", delta.index, text, call.name
            case FileDelta():
                self.files.append(delta)
                return None
            case ProviderCall():
                self.provider_calls.append(as_stored(delta))
                return None
            case Finished():
                self.finished = as_stored(delta)  # readers could not decode what is not a number
                return None

    def _characters(self, channel: Channel, index: int, text: str) -> str:
        """Return the text in whole characters: servers split surrogate pairs, or send halves that never get a pair."""
        text = self._halves.pop((channel, index), "") + text
        if text[-1:] and "\ud800" <= text[-1] <= "\udbff":
            self._halves[channel, index] = text[-1]
            text = text[:-1]
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def written(self) -> str:
        """Return everything that the model wrote, as one text."""
        calls = (f"{call.name}{call.arguments}" for call in self.calls.values())
        return "".join((*self.reasoning, *self.text, *calls))

    def advance(self, channel: Channel, index: int, text: str) -> int:
        """Return the offset of the next piece in a channel, and move it past the piece."""
        offset = self.sizes.get((channel, index), 0)
        self.sizes[channel, index] = offset + len(text)
        return offset


class ModelDriver(Outbox, Protocol):
    """The driver of a run that calls a model. `Driver` implements it."""

    @property
    def broken_off(self) -> dict[Effect, Account | None]:
        """The usage of replies that were cancelled while they arrived."""
        ...


async def call_model(driver: ModelDriver, effect: CallModel) -> ModelReplied | ModelCallFailed:
    """Perform one attempt, unless a circuit breaker is open. Raises nothing but cancellation."""
    rules = driver.journal.rules
    if rules.breaker is None:
        return await _call(driver, effect)
    model = driver.state.model.model or rules.model
    breaker = Breaker(driver.host.log, provider_breaker(model), rules.breaker)
    refused = await breaker.admit()
    if refused is not None:
        return _failed(effect, CIRCUIT_OPEN, str(refused), refused.wait_s)
    outcome = await _call(driver, effect)
    if isinstance(outcome, ModelReplied):
        await breaker.worked()
    elif outcome.error_type in RETRIED_ERRORS:  # other errors say nothing about the provider's health
        await breaker.failed(outcome.error_type, driver.state.run)
    return outcome


async def over_budget(driver: Outbox, spending: Spending, effect: CallModel) -> ModelCallFailed | None:
    """Return the failure of a call that no budget is left for, or that a budget of dollars cannot count (W65)."""
    model = driver.state.model.model or driver.journal.rules.model
    for purse in spending.purses(model):
        if purse.budget.cost_usd is not None and not driver.host.registry.price_known(model):
            told = f"the budget {purse.owner}: {purse.budget.amount} needs the price of {model!r}, which is unknown"
            return _failed(effect, "invalid_request", f"{told}: configure it, or count tokens")
    spent = await through_outages(driver.clock, lambda: spending.refusal(model))
    if spent is None:
        return None
    wait_s = None if spent.until is None else spent.until - driver.clock.now()
    failed = _failed(effect, BUDGET_SPENT, spent.message, wait_s)
    return msgspec.structs.replace(failed, budget=spent.budget)


async def _call(driver: ModelDriver, effect: CallModel) -> ModelReplied | ModelCallFailed:
    """Perform one attempt; its tokens count even if the reply breaks off."""
    answer = _Answer()
    try:
        outcome = await _attempt(driver, effect, answer)
    except asyncio.CancelledError:
        driver.broken_off[effect] = _used(driver, answer)
        raise
    if isinstance(outcome, ModelReplied) or outcome.usage is not None:
        return outcome
    used = _used(driver, answer)
    if used is None:
        return outcome
    return msgspec.structs.replace(outcome, usage=used.usage, cost_usd=used.cost_usd)


def _used(driver: ModelDriver, answer: _Answer) -> Account | None:
    """Return the estimated usage of a reply that broke off; null if nothing arrived, which may have cost nothing."""
    if answer.request is None or not answer.written():
        return None
    name = driver.state.model.model or driver.journal.rules.model
    return account(driver.host.registry, name, answer.request, Finished(reason=""), answer.written)


async def _attempt(driver: ModelDriver, effect: CallModel, answer: _Answer) -> ModelReplied | ModelCallFailed:
    """Perform one attempt; every failure is returned as a command."""
    state, rules = driver.state, driver.journal.rules
    name = state.model.model or rules.model
    first_s = first_token_timeout_s(rules, _prompt_tokens(state, effect.phase))
    patience = Patience(rules, first_s, asyncio.get_running_loop().time)
    try:
        provider, model = driver.host.registry.provider(name)
        request = _fitted(provider, model_request(state, rules, model, effect.phase))
        request = answer.request = with_artifacts(request, driver.host.log, driver.journal.subject.root)
        await _receive(driver, effect, provider.stream(request), answer, patience)
    except ContextOverflow as error:
        return msgspec.structs.replace(
            _model_failed(effect, error),
            window_tokens=_tokens(error.window_tokens),
            request_tokens=_tokens(error.request_tokens),
        )
    except ModelError as error:
        return _model_failed(effect, error)
    except TimeoutError:
        return _failed(effect, "transient", patience.message(name))
    except FoldlogError as error:
        return _failed(effect, "invalid_request", str(error))
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        return _failed(effect, "transient", f"the call of {name} was cancelled from within the provider")
    except Exception as error:  # noqa: BLE001 - a provider's bug must not kill the run's driver
        return _failed(effect, "invalid_request", f"{type(error).__name__}: {error}")
    if answer.finished is None:
        return _failed(effect, "transient", f"the stream of {name} ended before the answer was complete")
    used = account(driver.host.registry, name, request, answer.finished, answer.written)
    return ModelReplied(
        step=effect.step,
        attempt=effect.attempt,
        text="".join(answer.text),
        reasoning="".join(answer.reasoning),
        files=await made_files(driver, answer.files, name),
        provider_calls=tuple(answer.provider_calls),
        calls=tuple(answer.calls[index] for index in sorted(answer.calls)),
        usage=used.usage,
        usage_source=used.source,
        model=answer.finished.model or request.model,
        cost_usd=used.cost_usd,
        phase=effect.phase,
        finish_reason=cut_reason(answer.finished.reason),
        reply_items=tuple(answer.finished.reply_items),
    )


def _fitted(provider: ModelProvider, request: ModelRequest) -> ModelRequest:
    """Return the request; with settings that are not strict, without those that its provider does not know."""
    if request.settings.is_strict:
        return request
    unknown = frozenset(unknown_settings(provider, request.model, request.settings))
    return msgspec.structs.replace(request, settings=request.settings.without(unknown))


def _failed(
    effect: CallModel, error_type: str, message: str, retry_after_s: float | None = None
) -> ModelCallFailed:
    return ModelCallFailed(
        step=effect.step,
        attempt=effect.attempt,
        error_type=error_type,
        message=bounded(message),
        retry_after_s=seconds_of(retry_after_s),
        phase=effect.phase,
    )


def _model_failed(effect: CallModel, error: ModelError) -> ModelCallFailed:
    failed = _failed(effect, error.error_type, str(error), error.retry_after_s)
    return msgspec.structs.replace(failed, usage=error.usage, cost_usd=error.cost_usd)


def _tokens(stated: object) -> int | None:
    """Return a token count as reported by a provider; null for anything else."""
    return stated if isinstance(stated, int) and 0 < stated <= TOKENS_MAX else None


def _prompt_tokens(state: RunState, phase: str) -> int:
    """Return the approximate size of the prompt."""
    return messages_tokens(state.messages) if phase else state.context.tokens


def first_token_timeout_s(rules: Rules, prompt_tokens: int) -> float:
    """Return how long a model may be silent before its first delta: it has to read the prompt first."""
    if rules.model_first_token_timeout_s is not None:
        return rules.model_first_token_timeout_s
    return rules.model_idle_timeout_s + prompt_tokens / READ_TOKENS_PER_S


class Patience:
    """The timeouts of one attempt, in the event loop's time: which one comes first, and which one has passed."""

    def __init__(self, rules: Rules, first_s: float, now: Callable[[], float]) -> None:
        self._rules, self._first_s, self._now = rules, first_s, now
        self._started = self._moved = now()
        self._heard = self._answered = False

    def over_at(self) -> float:
        """Return the time at which the attempt times out, unless the server is heard of before."""
        return min(self._started + self._rules.model_timeout_s, self._silent_at())

    def _silent_at(self) -> float:
        return self._idle_at() if self._answered or self._reads_on() else self._started + self._first_s

    def _idle_at(self) -> float:
        return self._moved + self._rules.model_idle_timeout_s

    def _reads_on(self) -> bool:
        """Return whether signs of life from the server extend the first-token timeout."""
        return self._heard and self._idle_at() > self._started + self._first_s

    def hears(self, *, answer: bool) -> bool:
        """Note a delta (`answer`) or a sign of life from the server; return whether the timer is worth moving."""
        now = self._now()
        begins = answer and not self._answered
        if not begins and now - self._moved <= self._rules.model_idle_timeout_s * IDLE_TOLERANCE:
            return False
        self._moved, self._heard, self._answered = now, True, self._answered or answer
        return True

    def message(self, model: str) -> str:
        """Return the error message of the timeout that has passed, with the setting that changes it."""
        if self._started + self._rules.model_timeout_s <= self._silent_at():
            total_s = self._rules.model_timeout_s
            return f"the answer of {model} took longer than {total_s:g} s (model_timeout_s of the agent)"
        if self._answered or self._reads_on():
            idle_s = self._rules.model_idle_timeout_s
            where = "within its answer" if self._answered else "at work before its answer"
            return f"{model} fell silent {where} for {idle_s:g} s (model_idle_timeout_s of the agent)"
        return (
            f"{model} sent nothing of its answer within {self._first_s:g} s (model_first_token_timeout_s of the agent: "
            "a server that takes long to read a prompt, or to load a model, needs more)"
        )


async def _receive(
    driver: ModelDriver, effect: CallModel, deltas: AsyncIterator[Delta], answer: _Answer, patience: Patience
) -> None:
    limit = PausableTimeout(patience.over_at() - asyncio.get_running_loop().time(), driver.clock)
    await limit.of(_take_all(driver, effect, deltas, answer, limit, patience))


async def _take_all(
    driver: ModelDriver,
    effect: CallModel,
    deltas: AsyncIterator[Delta],
    answer: _Answer,
    limit: PausableTimeout,
    patience: Patience,
) -> None:
    def heard(*, answer: bool = False) -> None:
        if patience.hears(answer=answer):
            limit.move(patience.over_at())

    listening = HEARD.set(heard)
    try:
        async for delta in deltas:
            heard(answer=True)
            draft = answer.add(delta)
            if draft is not None and not effect.phase:  # readers only see the calls of steps
                await _publish(driver, effect, answer, *draft)
    finally:
        HEARD.reset(listening)
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()


async def _publish(
    driver: ModelDriver,
    effect: CallModel,
    answer: _Answer,
    channel: Channel,
    index: int,
    text: str,
    tool_name: str,
) -> None:
    piece = DraftPiece(
        run=driver.state.run,
        step=effect.step,
        attempt=effect.attempt,
        epoch=driver.epoch,
        channel=channel,
        offset=answer.advance(channel, index, text),
        text=text,
        index=index,
        tool_name=tool_name,
        at=driver.clock.now(),
    )
    try:
        await driver.host.log.drafts.publish(driver.state.root, piece)
    except LogUnavailable:
        return  # a late draft is worthless; the stored text corrects the stream
