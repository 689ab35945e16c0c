"""What is next: agents, tools, the pure core that decides and the executors that drive runs."""

from ..eventlog.events import Custom
from .agent import Agent
from .context import ArtifactRef, ToolContext
from .durable import DurableExecutor, Worker
from .evidence import Evidence
from .executor import CAPABILITIES, Executor
from .fork_plan import ForkPlan, PlannedCall, PlannedNode
from .host import Host
from .kinds import KINDS as _KINDS
from .local import LocalExecutor
from .ralph import RalphLoop
from .registry import Registry
from .runtime import RunHandle, RunResult, Runtime
from .swarm import Swarm
from .toolport import Answer, ChildFailed, Retryable, ToolFailed
from .tools import tool
from .verified_tool import postcondition

__all__ = [
    "CAPABILITIES",
    "Agent",
    "Answer",
    "ArtifactRef",
    "ChildFailed",
    "Custom",
    "DurableExecutor",
    "Evidence",
    "Executor",
    "ForkPlan",
    "Host",
    "LocalExecutor",
    "PlannedCall",
    "PlannedNode",
    "RalphLoop",
    "Registry",
    "Retryable",
    "RunHandle",
    "RunResult",
    "Runtime",
    "Swarm",
    "ToolContext",
    "ToolFailed",
    "Worker",
    "postcondition",
    "tool",
]

_KINDS |= {"agent": Agent.from_config, "ralph": RalphLoop.from_config, "swarm": Swarm.from_config}
