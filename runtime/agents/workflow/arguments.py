"""The arguments of a workflow's function: from the text of a run's input, checked before its first event."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic

from ....eventlog.errors import AgentConfigError, ConfigError

_CONFIG = pydantic.ConfigDict(arbitrary_types_allowed=True)


class Arguments:
    """The parameters of a function after its run. Raises `AgentConfigError` for one that cannot be a workflow."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        from .run import WorkflowRun

        self._name = name
        if not inspect.iscoroutinefunction(function):
            raise AgentConfigError(f"workflow {name!r}: {_called(function)} must be an async function")
        parameters = list(inspect.signature(function).parameters.values())
        hints = _hints(name, function)
        first = parameters[0] if parameters else None
        if first is None or first.kind not in {first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD}:
            raise AgentConfigError(f"workflow {name!r}: its first parameter must be the WorkflowRun")
        if hints.get(first.name, WorkflowRun) is not WorkflowRun:
            raise AgentConfigError(
                f"workflow {name!r}: its first parameter {first.name!r} must be a WorkflowRun, "
                f"not {hints[first.name]!r}"
            )
        self.output_type = hints.get("return")
        self._fields: dict[str, inspect.Parameter] = {}
        for each in parameters[1:]:
            if each.kind in {each.VAR_KEYWORD, each.VAR_POSITIONAL, each.POSITIONAL_ONLY}:
                raise AgentConfigError(
                    f"workflow {name!r}: its parameter {each.name!r} must have a name of its own"
                )
            self._fields[each.name] = each
        self._types = {key: hints.get(key, str) for key in self._fields}
        self._model = self._built()

    def _built(self) -> type[pydantic.BaseModel]:
        fields: dict[str, Any] = {}
        for key, each in self._fields.items():
            default = ... if each.default is each.empty else each.default
            fields[f"p_{key}"] = (
                self._types[key],
                pydantic.Field(default, alias=key, serialization_alias=key),
            )
        try:
            return pydantic.create_model("Arguments", __config__={**_CONFIG, "extra": "forbid"}, **fields)
        except (pydantic.PydanticUserError, TypeError, NameError) as error:
            raise AgentConfigError(
                f"workflow {self._name!r}: its parameters cannot be read: {error}"
            ) from None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, an object."""
        return self._model.model_json_schema(by_alias=True)

    def read(self, text: str) -> dict[str, Any]:
        """Return the arguments in the input of a run: by name. Raises `ConfigError`, which says what is wrong.

        With one parameter of type text the input is its value. Otherwise it is a JSON object, or, with one parameter,
        any JSON.
        """
        given = self._given(text)
        try:
            read = self._model.model_validate(given)
        except pydantic.ValidationError as error:
            raise ConfigError(f"workflow {self._name!r} does not take this input: {_told(error)}") from None
        return {key: getattr(read, f"p_{key}") for key in self._fields}

    def _given(self, text: str) -> dict[str, Any]:
        single = next(iter(self._fields)) if len(self._fields) == 1 else None
        if not self._fields:
            if text.strip() not in {"", "{}"}:
                raise ConfigError(f"workflow {self._name!r} takes no input, not {text!r:.60}")
            return {}
        is_text = single is not None and self._types[single] is str
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = text
        if isinstance(value, dict) and value.keys() <= self._fields.keys() and (value or single is None):
            return value
        if single is not None:
            return {single: text if is_text else value}
        names = ", ".join(self._fields)
        if not isinstance(value, dict):
            raise ConfigError(
                f"workflow {self._name!r} takes its arguments as a JSON object with {names}, not {text!r:.60}"
            )
        return value


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    from .run import WorkflowRun

    try:
        return typing.get_type_hints(function, localns={"WorkflowRun": WorkflowRun}, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise AgentConfigError(f"workflow {name!r}: its annotations cannot be read: {error}") from None


def _called(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)[:60]


def _told(error: pydantic.ValidationError) -> str:
    found = []
    for each in error.errors(include_url=False):
        where = ".".join(map(str, each["loc"]))
        message = "is missing" if each["type"] == "missing" else each["msg"]
        if each["type"] == "extra_forbidden":
            message = "is not a parameter"
        found.append(f"{where}: {message}" if where else message)
    return "; ".join(found)
