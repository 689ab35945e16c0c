"""The stored form of a workflow that is a function: its version, and the rules that its calls are held to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import ConfigDict, Field, StrictFloat, StrictStr

from ....eventlog.errors import AgentConfigError
from ..config import (
    APPROVAL_TIMEOUT_S_MAX,
    ConcurrencyConfig,
    Name,
    Names,
    PolicyConfig,
    Positive,
    Text,
    explain,
    problems_of,
)

OPERATIONS_MAX = 10_000
"""The default for the most operations of a run."""


class WorkflowRules(pydantic.BaseModel):
    """The fields that functions and tables have in common."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True, allow_inf_nan=False)

    name: Name
    kind: Literal["workflow"] = "workflow"
    version: Annotated[StrictStr, Field(min_length=1, max_length=64)] = "1"
    """The version of the code. A run keeps the one that it began with."""
    description: Text = ""
    """Its description, for the model of an agent that has it as a tool."""
    operations_max: Annotated[Positive, Field(le=1_000_000)] = OPERATIONS_MAX
    """The most operations of a run; beyond, it ends with the error `operations_max`."""
    hitl_tools: Names = ()
    policy: PolicyConfig | None = None
    concurrency: ConcurrencyConfig | None = None
    run_timeout_s: Annotated[StrictFloat, Field(gt=0)] | None = None
    approval_timeout_s: Annotated[StrictFloat, Field(gt=0, le=APPROVAL_TIMEOUT_S_MAX)] | None = None


class FunctionConfig(WorkflowRules):
    """A workflow that is a function. Tools that it does not list are known once it calls them."""

    tools: Names = ()


def read_config(data: Mapping[str, Any]) -> FunctionConfig:
    """Return the configuration in `data`. Raises `AgentConfigError`, which names each wrong key."""
    if not isinstance(data, Mapping):
        raise AgentConfigError(f"a workflow's configuration must be a table, not {data!r:.60}")
    try:
        return FunctionConfig.model_validate(dict(data))
    except pydantic.ValidationError as error:
        problems = problems_of(error, FunctionConfig)
        raise AgentConfigError(explain(error, data, FunctionConfig, "workflow"), problems) from None
