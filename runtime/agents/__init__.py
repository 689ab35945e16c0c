"""Agents, swarms, loops and workflows as users write them, and the registry that holds them."""

from .agent import Agent
from .kinds import KINDS
from .loop import RalphLoop
from .swarm import Swarm
from .workflow.table import WorkflowTable, workflow_of
from .workflow.workflow import Workflow

__all__ = ["Agent", "RalphLoop", "Swarm", "Workflow", "WorkflowTable"]

KINDS |= {
    "agent": Agent.from_config,
    "ralph": RalphLoop.from_config,
    "swarm": Swarm.from_config,
    "workflow": workflow_of,
}
