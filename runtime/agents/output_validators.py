"""Validators of an agent's outputs: functions of the user, and the output's type where its schema does not say all."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from ..ports.outputs import OutputRefused
from ..tools.run_context import RunContext

OUTPUT_TYPE = "output_type"
"""The validator that parses the output as the agent's type."""
ValidatedT = TypeVar("ValidatedT")
T = TypeVar("T")

_SCHEMA_SAYS_ALL = frozenset(
    {
        *("any", "none", "bool", "int", "float", "str", "list", "tuple", "dict", "literal", "enum", "union"),
        *("nullable", "default", "definitions", "definition-ref", "model", "model-fields", "model-field"),
        *("typed-dict", "typed-dict-field", "dataclass", "dataclass-args", "dataclass-field"),
    }
)
"""Kinds of pydantic's schemas that refuse nothing but what the JSON Schema refuses."""
_DATA = frozenset({"metadata", "serialization", "expected", "default", "config"})


def checks_more_than_schema(schema: Any) -> bool:
    """Return whether parsing by pydantic's schema may refuse what fits the JSON Schema."""
    if isinstance(schema, Mapping):
        kind = schema.get("type")
        if isinstance(kind, str) and (kind not in _SCHEMA_SAYS_ALL or schema.get("post_init")):
            return True
        return any(checks_more_than_schema(value) for key, value in schema.items() if key not in _DATA)
    return isinstance(schema, list | tuple) and any(map(checks_more_than_schema, schema))


class OutputValidator(Generic[T]):
    """A function of an output, or of a run and its output, that raises `OutputRefused` to refuse it."""

    def __init__(self, function: Callable[..., Awaitable[object] | object]) -> None:
        parameters = inspect.signature(function).parameters.values()
        wanted = [each for each in parameters if each.default is each.empty]
        self._function, self._takes_run = function, len(wanted) > 1

    async def refusal_of(self, output: T, run: RunContext[Any]) -> str | None:
        """Return the reason why the output is refused; null if it is accepted. Raises the errors of the function.

        Raises `TypeError` for a function that returns anything but null or the output: it may believe that false
        refuses an output, or that the run ends with what it returns.
        """
        try:
            made = self._function(run, output) if self._takes_run else self._function(output)
            if inspect.isawaitable(made):
                made = await cast("Awaitable[object]", made)
        except OutputRefused as refused:
            return str(refused) or "the output is refused"
        if made is not None and (type(made) is not type(output) or made != output):
            raise TypeError(
                f"it returns {made!r:.60}, which changes nothing: it raises OutputRefused to refuse an output, and "
                "returns nothing or the output as it is"
            )
        return None
