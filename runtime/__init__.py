"""Deciding and driving what is next: agents, tools, the pure core that decides and the executors that drive runs.

A public name is loaded when it is first used, so that the core can be imported without the packages above it.
"""

import typing

from ..eventlog.events import Custom, Trigger
from ..eventlog.lazy_names import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from .agents import Agent, RalphLoop, Swarm
    from .agents.loop_config import Stop
    from .agents.registry import Registry
    from .agents.workflow.run import WorkflowRun
    from .agents.workflow.table import WorkflowTable
    from .agents.workflow.workflow import Workflow, workflow
    from .core.loop.config import Reflection, Scored
    from .core.swarm import format_flow, parse_flow
    from .driving.host import Host
    from .executors.durable import DurableExecutor
    from .executors.local import LocalExecutor
    from .executors.worker import Worker
    from .forks.plan import ForkPlan, PlannedCall, PlannedNode, PlannedOperation
    from .handle import RunHandle, RunResult, SentSignal
    from .options import RunOptions
    from .ports.evidence import Evidence
    from .ports.executor import CAPABILITIES, Executor
    from .ports.files import File
    from .ports.outputs import OutputRefused
    from .ports.settings import ModelSettings
    from .ports.tools import Answer, ChildFailed, Retryable, Signal, ToolFailed
    from .runtime import Runtime
    from .shared.log_ids import LogIds
    from .tools.context import ArtifactRef, Callback, ToolContext
    from .tools.decorator import tool
    from .tools.run_context import RunContext
    from .tools.verified import postcondition
    from .triggers.event_hooks import EventHook
    from .triggers.schedule import Schedule
    from .triggers.schedules import ScheduleRow

__all__ = [
    "CAPABILITIES",
    "Agent",
    "Answer",
    "ArtifactRef",
    "Callback",
    "ChildFailed",
    "Custom",
    "DurableExecutor",
    "EventHook",
    "Evidence",
    "Executor",
    "File",
    "ForkPlan",
    "Host",
    "LocalExecutor",
    "LogIds",
    "ModelSettings",
    "OutputRefused",
    "PlannedCall",
    "PlannedNode",
    "PlannedOperation",
    "RalphLoop",
    "Reflection",
    "Registry",
    "Retryable",
    "RunContext",
    "RunHandle",
    "RunOptions",
    "RunResult",
    "Runtime",
    "Schedule",
    "ScheduleRow",
    "Scored",
    "SentSignal",
    "Signal",
    "Stop",
    "Swarm",
    "ToolContext",
    "ToolFailed",
    "Trigger",
    "Worker",
    "Workflow",
    "WorkflowRun",
    "WorkflowTable",
    "format_flow",
    "parse_flow",
    "postcondition",
    "tool",
    "workflow",
]

_LOADED_LATER = {
    "Agent": "agents",
    "Answer": "ports.tools",
    "ArtifactRef": "tools.context",
    "CAPABILITIES": "ports.executor",
    "ChildFailed": "ports.tools",
    "DurableExecutor": "executors.durable",
    "EventHook": "triggers.event_hooks",
    "Evidence": "ports.evidence",
    "Executor": "ports.executor",
    "File": "ports.files",
    "ForkPlan": "forks.plan",
    "Host": "driving.host",
    "LocalExecutor": "executors.local",
    "LogIds": "shared.log_ids",
    "ModelSettings": "ports.settings",
    "OutputRefused": "ports.outputs",
    "PlannedCall": "forks.plan",
    "PlannedNode": "forks.plan",
    "PlannedOperation": "forks.plan",
    "RalphLoop": "agents",
    "Reflection": "core.loop.config",
    "Registry": "agents.registry",
    "Retryable": "ports.tools",
    "RunContext": "tools.run_context",
    "RunHandle": "handle",
    "RunOptions": "options",
    "RunResult": "handle",
    "Runtime": "runtime",
    "Schedule": "triggers.schedule",
    "ScheduleRow": "triggers.schedules",
    "Scored": "core.loop.config",
    "SentSignal": "handle",
    "Signal": "ports.tools",
    "Stop": "agents.loop_config",
    "Swarm": "agents",
    "Callback": "tools.context",
    "ToolContext": "tools.context",
    "ToolFailed": "ports.tools",
    "Worker": "executors.worker",
    "format_flow": "core.swarm",
    "parse_flow": "core.swarm",
    "postcondition": "tools.verified",
    "tool": "tools.decorator",
    "Workflow": "agents.workflow.workflow",
    "WorkflowRun": "agents.workflow.run",
    "WorkflowTable": "agents.workflow.table",
    "workflow": "agents.workflow.workflow",
}

if not typing.TYPE_CHECKING:  # for a checker, a name that is not imported above does not exist
    __getattr__ = _lazy_names(__name__, _LOADED_LATER)


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
