"""The stored form of a loop: the runnable it repeats, the names of its functions, and its stop conditions."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ...eventlog.errors import AgentConfigError
from .config import JsonObject, Name, Text, explain, problems_of, within


class Stop(pydantic.BaseModel):
    """The stop conditions of a loop, checked after each iteration in this order; 0 (or an empty text) turns one off."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False)

    completion: Text = ""
    """A text that marks an output as complete."""
    max_iterations: Annotated[StrictInt, Field(ge=0)] = 10
    timeout_s: Annotated[StrictFloat, Field(ge=0)] = 0.0
    """From the start of the first iteration to the end of the latest; an iteration is not interrupted."""
    max_cost_usd: Annotated[Decimal, Field(ge=0)] = Decimal(0)
    """The total cost of all iterations; iterations of unknown cost count as nothing."""
    max_consecutive_failures: Annotated[StrictInt, Field(ge=0)] = 3
    score_threshold: Annotated[StrictFloat, Field(ge=0)] = 0.0
    """The mean of an iteration's scores that is good enough."""

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _errors_are_ours(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except pydantic.ValidationError as error:
            problem = AgentConfigError(explain(error, data, Stop), problems_of(error, Stop))
            raise within("stop", problem) from None


class MemberConfig(pydantic.BaseModel):
    """The repeated runnable as stored: its kind and its own configuration."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    kind: StrictStr
    config: JsonObject


class RalphConfig(pydantic.BaseModel):
    """The stored form of a loop. `scorers` and `reflects` tell which functions it has."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

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
    """Return the configuration in `data`. Raises `AgentConfigError`, which names each wrong key."""
    if not isinstance(data, Mapping):
        raise AgentConfigError(f"a loop's configuration must be a table, not {data!r:.60}")
    try:
        return RalphConfig.model_validate(dict(data))
    except pydantic.ValidationError as error:
        problems = problems_of(error, RalphConfig)
        raise AgentConfigError(explain(error, data, RalphConfig, "loop"), problems) from None
    except AgentConfigError as error:
        raise AgentConfigError(f"loop {data.get('name')!r}: {error}", error.problems) from None
