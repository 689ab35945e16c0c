"""The JSON Schemas of configuration files: agents, swarms, loops. Each includes the tables that may be nested in it.

They describe the shape. Constraints between keys (names in a flow, an entry among the agents) are checked on reading.
"""

from __future__ import annotations

import copy
from typing import Any

import pydantic
from pydantic.json_schema import models_json_schema

from ..ports.json_schema import DRAFT
from .config import AgentConfig, config_schema
from .loop_config import RalphConfig
from .swarm_config import SwarmConfig
from .workflow.table_config import TableConfig

_MODELS: dict[str, type[pydantic.BaseModel]] = {
    "agent": AgentConfig,
    "ralph": RalphConfig,
    "swarm": SwarmConfig,
    "workflow": TableConfig,
}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind: agent, swarm, ralph, workflow (a table). Raises `KeyError`."""
    if kind == "agent":
        return config_schema()
    _, schema = models_json_schema([(model, "validation") for model in _MODELS.values()])
    defs = schema["$defs"]
    _complete(defs)
    top = copy.deepcopy(defs[_MODELS[kind].__name__])
    return {"$schema": DRAFT, **top, "$defs": defs}


def _complete(defs: dict[str, Any]) -> None:
    """Add the schemas of nested tables to those of a swarm and a loop, whose models accept any table."""
    swarm, member = defs[SwarmConfig.__name__], defs["MemberConfig"]
    swarm["properties"]["agents"] = {
        "type": "array",
        "minItems": 1,
        "description": "Tables of agents, or of swarms and loops with their kind; names must be unique.",
        "items": {"anyOf": [_with_kind(kind, defs) for kind in _MODELS]},
    }
    swarm["required"] = [*swarm.get("required", ()), "agents"]
    own = member.pop("properties")
    member["anyOf"] = [
        {"properties": {"kind": {**own["kind"], "const": kind}, "config": _reference(kind)}}
        for kind in _MODELS
    ]
    member["properties"] = {"kind": True, "config": True}


def _with_kind(kind: str, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table among others: its kind is required, unless it is an agent."""
    if kind != "agent":
        return {**_reference(kind), "required": ["kind"]}
    agent = copy.deepcopy(defs[AgentConfig.__name__])
    agent["properties"]["kind"] = {"const": kind}
    defs["AgentTable"] = agent
    return {"$ref": "#/$defs/AgentTable"}


def _reference(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_MODELS[kind].__name__}"}
