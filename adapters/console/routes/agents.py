"""Stored agents: the list, versions with their differences, and what is done to them."""

from __future__ import annotations

import json
import tomllib
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from ....eventlog.errors import AgentConfigError
from ....eventlog.events import Via
from ....runtime.agents.config import config_schema
from ....runtime.catalog.records import AgentChange, AgentVersion, ConfigChange, in_order
from ...configuration.toml_text import to_toml
from ..routing import Call, Nothing, Route

Format = Literal["toml", "json"]


class StoredAgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored agent at its last version, and the workers that take its runs. `at` is Unix seconds."""

    name: str
    version: int
    model: str
    digest: str
    note: str
    by: str
    via: Via
    at: float
    workers: list[str]


class StoredAgentDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A stored agent: its last version, who changed it and when (oldest first), and whether it was removed."""

    agent: AgentVersion
    changes: list[AgentChange]
    removed: bool


class GivenAgent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration, or the text of a TOML or JSON file with one."""

    config: dict[str, Any] | None = None
    text: str = ""
    format: Format = "toml"

    def table(self) -> dict[str, Any]:
        """Return the configuration. Raises `AgentConfigError`."""
        if (self.config is None) == (not self.text):
            raise AgentConfigError("give a config, or the text of a file")
        if self.config is not None:
            return self.config
        try:
            found = tomllib.loads(self.text) if self.format == "toml" else json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise AgentConfigError(f"the text is not {self.format.upper()}: {error}") from None
        if not isinstance(found, dict):
            raise AgentConfigError("the text is not a table with the agent's keys")
        return found


class SaveAgent(GivenAgent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent to save. `version` is the one that the change was made from, 0 for a new agent; null for any."""

    version: int | None = None
    note: str = ""


class AgentProblem(msgspec.Struct, frozen=True):
    """A problem of a configuration, with the path of its key; `nearest` is the known name that was probably meant."""

    key: str
    message: str
    nearest: str | None


class AgentProblems(msgspec.Struct, frozen=True):
    """All problems for which an agent would be refused."""

    problems: list[AgentProblem]


class VersionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version; null for the last one."""

    version: int | None = None


class DiffQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two versions; `after` null is the last one."""

    before: int
    after: int | None = None


class ExportQuery(VersionQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version and the form of its file."""

    format: Format = "toml"


async def list_agents(call: Call[Nothing, Nothing]) -> list[StoredAgentRow]:
    """List the stored agents with their last versions."""
    present = [each for each in await call.runtime.log.leases.present() if not each.draining]
    return [
        StoredAgentRow(
            name=each.name,
            version=each.version,
            model=str(each.config["model"]),
            digest=each.digest,
            note=each.note,
            by=each.by,
            via=each.via,
            at=each.at,
            workers=[worker.worker for worker in present if each.name in worker.serves],
        )
        for each in await call.runtime.agents.list()
    ]


async def agent_schema(_: Call[Nothing, Nothing]) -> dict[str, Any]:
    """Show the JSON Schema of an agent's configuration, from which forms are made."""
    return config_schema()


async def show_agent(call: Call[VersionQuery, Nothing]) -> StoredAgentDetail:
    """Show a stored agent at a version, and who changed it and when."""
    agents, name = call.runtime.agents, call.path("agent")
    changes = [*await agents.changes(name)]
    version = changes[-1].version if call.query.version is None else call.query.version
    return StoredAgentDetail(
        agent=await agents.get(name, version), changes=changes, removed=changes[-1].kind == "removed"
    )


async def diff_agent(call: Call[DiffQuery, Nothing]) -> list[ConfigChange]:
    """List the keys that differ between two versions of a stored agent."""
    return [*await call.runtime.agents.diff(call.path("agent"), call.query.before, call.query.after)]


async def export_agent(call: Call[ExportQuery, Nothing]) -> Response:
    """Export a stored agent as the text of a file."""
    query = call.query
    agent = await call.runtime.agents.get(call.path("agent"), query.version)
    config = in_order(agent.config)
    text = to_toml(config) if query.format == "toml" else json.dumps(config, indent=2) + "\n"
    headers = {"Content-Disposition": f'attachment; filename="{agent.name}.{query.format}"'}
    return Response(text, headers=headers, media_type=f"application/{query.format}")


async def check_agent(call: Call[Nothing, GivenAgent]) -> AgentProblems:
    """Check an agent without saving it: all that is wrong, each with its key."""
    try:
        problems = tuple(await call.runtime.agents.check(call.body.table()))
    except AgentConfigError as error:
        problems = error.problems
    return AgentProblems([AgentProblem(*each) for each in problems])


async def save_agent(call: Call[Nothing, SaveAgent]) -> AgentVersion:
    """Save an agent as its next version; a configuration that is already the last one is left alone."""
    asked = call.body
    return await call.runtime.agents.save(
        asked.table(), version=asked.version, note=asked.note, by=call.author
    )


async def remove_agent(call: Call[VersionQuery, Nothing]) -> dict[str, bool]:
    """Remove a stored agent: nothing more is started of it, its runs go on, and its versions stay."""
    await call.runtime.agents.remove(call.path("agent"), version=call.query.version, by=call.author)
    return {"removed": True}


_AGENT = "/agents/{agent}"
ROUTES = (
    Route(method="GET", path="/agents", role="viewer", endpoint=list_agents, answer=list[StoredAgentRow]),
    Route(
        method="GET", path="/agents/schema.json", role="viewer", endpoint=agent_schema, answer=dict[str, Any]
    ),
    Route(
        method="POST",
        path="/agents/check",
        role="operator",
        endpoint=check_agent,
        body=GivenAgent,
        answer=AgentProblems,
    ),
    Route(
        method="POST", path="/agents", role="admin", endpoint=save_agent, body=SaveAgent, answer=AgentVersion
    ),
    Route(
        method="GET",
        path=_AGENT,
        role="viewer",
        endpoint=show_agent,
        query=VersionQuery,
        answer=StoredAgentDetail,
    ),
    Route(
        method="GET",
        path=f"{_AGENT}/diff",
        role="viewer",
        endpoint=diff_agent,
        query=DiffQuery,
        answer=list[ConfigChange],
    ),
    Route(
        method="GET",
        path=f"{_AGENT}/export",
        role="viewer",
        endpoint=export_agent,
        query=ExportQuery,
        media="application/toml",
    ),
    Route(
        method="DELETE",
        path=_AGENT,
        role="admin",
        endpoint=remove_agent,
        query=VersionQuery,
        answer=dict[str, bool],
    ),
)
