"""The stored form of a loop: what it repeats, the names of its functions, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ...eventlog.errors import AgentConfigError
from .config import JsonObject, Name, Text, explain, problems_of, within


class Stop(pydantic.BaseModel):
    """What ends a loop, asked after each iteration in this order; 0 (or an empty text) is off."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    completion: Text = ""
    """A text that the output contains when the work is done."""
    max_iterations: Annotated[StrictInt, Field(ge=0)] = 10
    timeout_s: Annotated[StrictFloat, Field(ge=0)] = 0.0
    """From the start of the first iteration to the end of the latest; an iteration is not cut short."""
    max_cost_usd: Annotated[Decimal, Field(ge=0)] = Decimal(0)
    """What all iterations cost together; those whose cost nobody knows count as nothing."""
    max_consecutive_failures: Annotated[StrictInt, Field(ge=0)] = 3
    score_threshold: Annotated[StrictFloat, Field(ge=0)] = 0.0
    """The mean of an iteration's scores."""

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _errors_are_ours(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except pydantic.ValidationError as error:
            told = AgentConfigError(explain(error, data, Stop), problems_of(error, Stop))
            raise within("stop", told) from None


class MemberConfig(pydantic.BaseModel):
    """The repeated runnable as stored: its kind and its own configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: StrictStr
    config: JsonObject


class RalphConfig(pydantic.BaseModel):
    """The stored form of a loop. `scorers` and `reflects` say which functions there are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    kind: Literal["ralph"] = "ralph"
    runnable: MemberConfig
    scorers: tuple[Annotated[StrictStr, pydantic.Field(pattern="^[A-Za-z_][A-Za-z0-9_-]{0,63}$")], ...] = ()
    reflects: StrictBool = False
    stop: Stop = Stop()

    @pydantic.model_validator(mode="after")
    def _ends(self) -> Self:
        stop = self.stop
        if stop.score_threshold and not self.scorers:
            raise ValueError("stop: score_threshold: there are no scorers, so it is never met")
        if not any(stop.model_dump().values()):
            raise ValueError("stop: every condition is off, so the loop never ends")
        return self


def read_config(data: Mapping[str, Any]) -> RalphConfig:
    """The configuration in `data`. Raises `AgentConfigError` that names each wrong key."""
    if not isinstance(data, Mapping):
        raise AgentConfigError(f"a loop is configured by a table, not {data!r:.60}")
    try:
        return RalphConfig.model_validate(dict(data))
    except pydantic.ValidationError as error:
        problems = problems_of(error, RalphConfig)
        raise AgentConfigError(explain(error, data, RalphConfig, "loop"), problems) from None
    except AgentConfigError as error:
        raise AgentConfigError(f"loop {data.get('name')!r}: {error}", error.problems) from None
