"""Python values as JSON builtins, exactly or not at all: tool results become part of the log.

Sets are sorted, so that every process stores the same text (within a pydantic model the model decides). Bytes become
URL-safe base64, times ISO 8601, decimals strings. pydantic is loaded only for values that need it: the core runs
without it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec

from ...projections.messages import canonical_json

StructT = TypeVar("StructT", bound=msgspec.Struct)

WRAPPED = "response"
"""The one property of an object that stands for an output of another type."""


INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1
"""The integers that the log's JSON codec can store."""
HEAD_CHARACTERS, TAIL_CHARACTERS = 12_000, 4_000
"""The length of the head and the tail kept of an error's text, in characters."""


WAIT_S_MAX = 365 * 24 * 3600.0


class NotJson(ValueError):
    """The value has no JSON form; the message says which part and why."""


def as_stored(value: StructT) -> StructT:
    """Return the value as the log would return it. Raises `NotJson` if its fields do not match their declared types.

    Callers and tools may pass values of any type, and once stored, no reader could get past a malformed one.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except UnicodeEncodeError:
        raise NotJson("text that is not valid Unicode") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotJson(str(error) or "it is nested too deeply") from None


def sound(text: str) -> str:
    """Return the text as valid UTF-8: what is not a character becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def bounded(text: str) -> str:
    """Return the text as valid UTF-8; only the head and the tail if it is too long."""
    text = sound(text)
    left_out = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:HEAD_CHARACTERS]}\n[{left_out} characters are left out]\n{text[-TAIL_CHARACTERS:]}"


def seconds_of(value: object) -> float | None:
    """Return a wait in seconds requested by a third party, at most a year; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(0.0, float(value)), WAIT_S_MAX)


def as_json(value: Any) -> Any:
    """Return the value as None, bool, int, float, str, list and dict. Raises `NotJson`."""
    try:
        return _convert(value, "")
    except RecursionError:
        raise NotJson("it contains itself, or is nested too deeply") from None


def _convert(value: Any, path: str) -> Any:
    match value:
        case None | bool():
            return value
        case enum.Enum():
            return _convert(value.value, path)
        case str() | int() | float():
            return _scalar(value, path)
        case Mapping():
            return _object(value, path)
        case list() | tuple():
            return [_convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
        case AbstractSet():
            return sorted((_convert(item, f"{path}{{}}") for item in value), key=canonical_json)
        case _:
            return _convert(_of_object(value, path), path)


def _scalar(value: str | float, path: str) -> str | float:
    match value:
        case str():
            return _text(value, path)
        case int():
            return _integer(value, path)
        case _:
            return _finite(value, path)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(path, "text that is not valid Unicode") from None
    return str(value)


def _integer(value: int, path: str) -> int:
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _refused(path, "an integer of more than 64 bits; return it as text")
    return int(value)


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise _refused(path, f"the number {value}")
    return float(value)


def _object(value: Mapping[Any, Any], path: str) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key, path)
        if name in converted:
            raise _refused(path, f"two keys that are both written {name!r}")
        converted[_text(name, path)] = _convert(item, f"{path}.{name}" if path else name)
    return converted


def _key(key: Any, path: str) -> str:
    import pydantic_core

    try:
        [name] = pydantic_core.to_jsonable_python({key: None})
    except (ValueError, pydantic_core.PydanticSerializationError):
        raise _refused(path, f"a key of type {type(key).__name__}") from None
    return str(name)


def _of_object(value: Any, path: str) -> Any:
    """Unwrap one layer: the fields as a mapping, or pydantic's serialisation."""
    if isinstance(value, msgspec.Struct):
        return _of_struct(value)
    if dataclasses.is_dataclass(value) and not hasattr(value, "__pydantic_serializer__"):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return _by_pydantic(value, path)


def _by_pydantic(value: Any, path: str) -> Any:
    """Serialise models, dataclasses, times, bytes and anything else that pydantic supports."""
    import pydantic_core

    try:
        _check_finite(value)
        plain = pydantic_core.to_jsonable_python(
            value, bytes_mode="base64", inf_nan_mode="constants", fallback=_fallback
        )
    except NotJson as error:
        raise _refused(path, str(error)) from None
    except (ValueError, TypeError, pydantic_core.PydanticSerializationError) as error:
        raise _refused(path, f"a {type(value).__name__} ({error})") from None
    if type(plain) is type(value):
        raise _refused(path, f"a {type(value).__name__}")
    return plain


def _check_finite(value: Any) -> None:
    """Raise `NotJson` for NaN in a model, which would write it as null unless configured otherwise."""
    import pydantic

    if isinstance(value, pydantic.BaseModel) and "ser_json_inf_nan" not in value.model_config:
        for number in _floats(value.model_dump(warnings=False)):
            _finite(number, "")


def _floats(value: Any) -> Iterator[float]:
    match value:
        case float():
            yield value
        case Mapping():
            for item in value.values():
                yield from _floats(item)
        case list() | tuple() | AbstractSet():
            for item in value:
                yield from _floats(item)
        case _:
            pass


def _of_struct(value: msgspec.Struct) -> Any:
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), enc_hook=as_json)
    except (TypeError, ValueError) as error:
        raise NotJson(f"a {type(value).__name__} ({error})") from None


def _fallback(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _of_struct(value)
    raise NotJson(f"a {type(value).__name__}")


def _refused(path: str, what: str) -> NotJson:
    return NotJson(f"{what} at {path}" if path else what)
