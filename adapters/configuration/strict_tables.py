"""Strict parsing of tables that users write by hand: errors name the place and the nearest known key."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ...eventlog.errors import ConfigError
from ...runtime.ports.suggestions import nearest


class StrictTable(BaseModel):
    """A table with fixed keys. No value is converted, no key is ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    raise PydanticCustomError("unknown_key", f"unknown key {key!r}{nearest(str(key), known)}")
        return data

    @classmethod
    def read(cls, data: Any, where: str) -> Self:
        """Return the table in `data`. Raises `ConfigError`, which names `where` and each wrong place in it."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            told = (": ".join(filter(None, (_place(fault["loc"]), fault["msg"]))) for fault in faults)
            raise ConfigError(f"{where}: {'; '.join(told)}") from None


def _place(path: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
