"""Swarms: the language of their flows, and the progress of a flow."""

from .flow import Arm, Branch, Case, Flow, Loop, Node, Parallel, Pass, Series, format_flow, names_in
from .flow_parser import parse_flow
from .predicates import At, Contains, Is, Matches, Named, Not, Predicate, Test, holds
from .progress import Failure, Progress, progress

__all__ = [
    "Arm",
    "At",
    "Branch",
    "Case",
    "Contains",
    "Failure",
    "Flow",
    "Is",
    "Loop",
    "Matches",
    "Named",
    "Node",
    "Not",
    "Parallel",
    "Pass",
    "Predicate",
    "Progress",
    "Series",
    "Test",
    "format_flow",
    "holds",
    "names_in",
    "parse_flow",
    "progress",
]
