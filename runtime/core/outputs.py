"""Final answers: the output in them, and whether the agent's validators accept it.

A validator is a function of the user's process, so its verdict is an effect (`Evaluate`) and is stored (`evaluated`): a
null value accepts the output, a text refuses it. The step stays open until all validators have spoken, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ...eventlog.events import Evaluated
from ...projections.messages import canonical_json
from ...projections.run_state import RunState
from ..ports.json_values import WRAPPED
from .arguments import schema_problem
from .effects import Evaluate

_FENCE: Final = "```"


def output_of(state: RunState) -> str:
    """Return the output in the last answer, if that is the final one.

    A provider that wants an object gets the schema of any other output as the one property of an object
    (`json_schema.as_object`), and a model that is told the schema in its prompt likes to answer with a Markdown block
    of JSON. An answer in one of these forms is taken out of it.
    """
    answer = state.model.text if state.step_open else state.output
    text, schema = state.continued + answer, _config(state).get("output_schema")
    if schema is None:
        return text
    return next((form for form in _forms(text) if schema_problem(form, schema) is None), text)


def _forms(text: str) -> Iterator[str]:
    """Yield the candidates for the output: the answer itself, and the content of a block or an object around it."""
    block = _in_block(text)
    for form in (text,) if block is None else (text, block):
        yield form
        try:
            value = msgspec.json.decode(form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(value, dict) and set(value) == {WRAPPED}:
            yield canonical_json(value[WRAPPED]).decode()


def _in_block(text: str) -> str | None:
    """Return the content of a text that is one Markdown block; null for any other text."""
    head, _, rest = text.strip().partition("\n")
    is_block = head.strip() in {_FENCE, f"{_FENCE}json"} and rest.endswith(_FENCE)
    return rest.removesuffix(_FENCE).strip() if is_block else None


def to_validate(state: RunState) -> Evaluate | None:
    """Return the next validator to ask about the answer of the open step; null if it is not final or none is left."""
    config = _config(state)
    names = config.get("output_validators") or ()
    if not names or not _is_final(state, config):
        return None
    output = output_of(state)
    if schema_problem(output, config.get("output_schema")) is not None:
        return None
    for name in names:
        verdict = _verdict(state, name)
        if verdict is None:
            return Evaluate(name=name, ordinal=len(state.evaluations.get(name, ())), argument=output)
        if verdict.error is not None or verdict.value is not None:
            return None
    return None


def verdict_of(state: RunState) -> Evaluated | None:
    """Return the verdict that does not accept the answer of the current step; null if there is none."""
    found = (_verdict(state, name) for name in _config(state).get("output_validators") or ())
    return next((each for each in found if each and (each.error is not None or each.value is not None)), None)


def _verdict(state: RunState, name: str) -> Evaluated | None:
    given = state.evaluations.get(name, ())
    return given[-1] if given and given[-1].step == state.step else None


def _is_final(state: RunState, config: dict[str, Any]) -> bool:
    """Return whether the open step ends the run, as far as its answer is accepted."""
    if state.kind != "agent" or not state.step_open or not state.model.replied or state.calls:
        return False
    cut = state.model.finish_reason
    if cut in {"content_filter", "malformed_call"} or (
        cut == "length" and config.get("on_length") != "accept"
    ):
        return False
    return not state.queue


def _config(state: RunState) -> dict[str, Any]:
    return state.submitted.config if state.submitted is not None else {}
