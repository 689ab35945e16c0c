"""Swarms: agents that work one input together, the language of their flows, and how far a flow is."""

from .flow import Arm, Branch, Case, Flow, Loop, Node, Parallel, Pass, Series, format_flow, names_in
from .flow_parser import parse_flow
from .predicates import At, Contains, Is, Matches, Named, Not, Predicate, Test, holds
from .progress import NodeRun, Progress, Start, progress
from .swarm import Swarm
from .swarm_config import SwarmConfig

__all__ = [
    "Arm",
    "At",
    "Branch",
    "Case",
    "Contains",
    "Flow",
    "Is",
    "Loop",
    "Matches",
    "Named",
    "Node",
    "NodeRun",
    "Not",
    "Parallel",
    "Pass",
    "Predicate",
    "Progress",
    "Series",
    "Start",
    "Swarm",
    "SwarmConfig",
    "Test",
    "format_flow",
    "holds",
    "names_in",
    "parse_flow",
    "progress",
]
