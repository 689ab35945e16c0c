"""The model request of a step, built from the state alone, and its digest (contract.md R12)."""

from __future__ import annotations

import msgspec

from ..projections.messages import canonical_json, sha256_hex
from ..projections.run_state import RunState
from .models import ModelRequest
from .rules import Rules


def model_request(state: RunState, rules: Rules, model: str) -> ModelRequest:
    """What the current step asks the model; `model` is its name without the provider."""
    return ModelRequest(
        model=model,
        messages=tuple(state.messages),
        tools=tuple(tool.schema for tool in state.tools.values()),
        output_schema=rules.output_schema,
        temperature=rules.temperature,
        max_tokens=rules.max_tokens,
        history=state.history_count,
        round=state.step,
        idempotency_key=f"{state.run}:{state.step}",
        attempt=state.model.failures + 1,
    )


def request_digest(state: RunState, rules: Rules) -> str:
    """The chain over the messages, closed with everything else that decides what a model answers."""
    closing = {
        "messages": state.messages_digest,
        "tools": [msgspec.to_builtins(tool.schema) for tool in state.tools.values()],
        "tool_choice": None,
        "output_schema": rules.output_schema,
        "temperature": rules.temperature,
        "max_tokens": rules.max_tokens,
        "model": rules.model,
    }
    return sha256_hex(canonical_json(closing))
