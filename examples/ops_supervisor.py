"""The tools of the agent in ops_supervisor.toml; two of them need an approval.

foldlog agents check examples/ops_supervisor.toml --registry examples.ops_supervisor:tools
"""

import tomllib
from pathlib import Path
from typing import Any

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def service_status(service: str) -> str:
    """Tell the status of a service."""
    return f"{service} is up"


@tool(effect="unsafe")
def deploy_service(service: str, version: str) -> str:
    """Deploy a version of a service."""
    return f"{service} {version} was deployed"


@tool(effect="unsafe")
def rotate_credentials(service: str) -> str:
    """Give a service new credentials."""
    return f"{service} has new credentials"


tools = Registry(tools=[service_status, deploy_service, rotate_credentials])


def load() -> Agent[Any]:
    """Return the agent. Raises an error that names a missing tool."""
    path = Path(__file__).with_suffix(".toml")
    return Agent.from_config(tomllib.loads(path.read_text(encoding="utf-8")), tools)
