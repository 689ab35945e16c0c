"""Agents, swarms and loops as users write them, and the registry that holds them."""

from .agent import Agent
from .kinds import KINDS
from .loop import RalphLoop
from .swarm import Swarm

__all__ = ["Agent", "RalphLoop", "Swarm"]

KINDS |= {"agent": Agent.from_config, "ralph": RalphLoop.from_config, "swarm": Swarm.from_config}
