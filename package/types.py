"""The types of public signatures, for annotations in programs: those that no other public package has.

Importing it loads all of foldlog, so import it under `TYPE_CHECKING` where that matters.
"""

from __future__ import annotations

from .eventlog.events import Actor, ForkTools, OnError, OnTimeout
from .eventlog.ports import Announce, Deliveries, HeldLease, Offer, Presence, RegisterKind
from .eventlog.sealing import KeyWrapper
from .eventlog.upcasters import Upcast
from .projections.approvals import ApprovalRow
from .projections.history import History
from .projections.pending import Pending
from .projections.projector import RunIndex
from .projections.run_state import RunState
from .replay.canonical.structure import Ignored
from .replay.ordering.comparison import Compared, Side
from .replay.parity.fault_spec import FaultsLike
from .replay.parity.parity import ExecutorLike, InputsLike, ParityOptions
from .replay.parity.scripts import ScriptLike
from .replay.parity.stage import ForkOf
from .replay.traces.recording import Recording
from .runtime.agents.agent import AgentFields, Instructions, KnownTools, ToolLike
from .runtime.agents.config import AgentConfig
from .runtime.agents.deps import DepsFactory
from .runtime.agents.loop import Reflect, Scorer
from .runtime.agents.secrets import SecretSource
from .runtime.agents.swarm_config import Mode
from .runtime.agents.tables import StopTable
from .runtime.agents.workflow.config import FunctionConfig
from .runtime.agents.workflow.operations import Operation
from .runtime.agents.workflow.run import Branch, KnowsTools, RunProgram
from .runtime.agents.workflow.table import Known
from .runtime.agents.workflow.table_config import StepConfig, TableConfig
from .runtime.agents.workflow.table_decider import TableDecider
from .runtime.agents.workflow.workflow import Decider
from .runtime.burying.erasure import Receipt
from .runtime.burying.options import EraseOptions
from .runtime.catalog.agents import StoredAgents
from .runtime.catalog.records import AgentChange, AgentVersion, ConfigChange
from .runtime.core.postconditions import Written
from .runtime.core.shared_budgets import SharedBudget
from .runtime.core.swarm.flow import Arm, Flow
from .runtime.core.swarm.predicates import Test
from .runtime.driving.namespace import NamespacePolicy
from .runtime.handle import CallOutcome, Decision, Namespace
from .runtime.operating.operations import Operations
from .runtime.rollbacks.rollback import RollbackPlan
from .runtime.runtime import RunListing
from .runtime.shared.plans import PlanVersion, StandingPlans
from .runtime.tools.compensation import Compensate
from .runtime.tools.context import CallFacts, ChildOptions
from .runtime.tools.decorator import Decorate, PythonTool
from .runtime.tools.run_context import RunFacts
from .runtime.tools.verified import Files, VerifiedTool, Verify
from .runtime.triggers.calendar import Calendar
from .runtime.triggers.schedules import Schedules
from .runtime.usage import Used

__all__ = [
    "Actor",
    "AgentChange",
    "AgentConfig",
    "AgentFields",
    "AgentVersion",
    "Announce",
    "ApprovalRow",
    "Arm",
    "Branch",
    "Calendar",
    "CallFacts",
    "CallOutcome",
    "ChildOptions",
    "Compared",
    "Compensate",
    "ConfigChange",
    "Decider",
    "Decision",
    "Decorate",
    "Deliveries",
    "DepsFactory",
    "EraseOptions",
    "ExecutorLike",
    "FaultsLike",
    "Files",
    "Flow",
    "ForkOf",
    "ForkTools",
    "FunctionConfig",
    "HeldLease",
    "History",
    "Ignored",
    "InputsLike",
    "Instructions",
    "KeyWrapper",
    "Known",
    "KnownTools",
    "KnowsTools",
    "Mode",
    "Namespace",
    "NamespacePolicy",
    "Offer",
    "OnError",
    "OnTimeout",
    "Operation",
    "Operations",
    "ParityOptions",
    "Pending",
    "PlanVersion",
    "Presence",
    "PythonTool",
    "Receipt",
    "Recording",
    "Reflect",
    "RegisterKind",
    "RollbackPlan",
    "RunFacts",
    "RunIndex",
    "RunListing",
    "RunProgram",
    "RunState",
    "Schedules",
    "Scorer",
    "ScriptLike",
    "SecretSource",
    "SharedBudget",
    "Side",
    "StandingPlans",
    "StepConfig",
    "StopTable",
    "StoredAgents",
    "TableConfig",
    "TableDecider",
    "Test",
    "ToolLike",
    "Upcast",
    "Used",
    "VerifiedTool",
    "Verify",
    "Written",
]
