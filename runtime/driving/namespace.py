"""The policy that holds for all runs of a namespace: that of the project, and the calls approved for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...eventlog.errors import ConfigError
from ...eventlog.ports import Log
from ..agents.agent import Agent
from ..agents.config import AgentConfig, asks_for_approvals, shared_policy
from ..agents.native_tools import denied
from ..agents.registry import Registry
from ..agents.workflow.workflow import Workflow
from ..core.limits import check_limits
from ..core.policy import joined
from ..core.shared_budgets import SharedBudget, check_budgets
from ..ports.plugins import PROJECT, installed, made
from ..ports.runnable import Runnable
from ..shared.approved_calls import ApprovedCalls


def project_limits(given: Mapping[str, int] | None) -> dict[str, int]:
    """Return the given limits, or those of the project's configuration. Raises `ConfigError`."""
    if given is not None:
        return check_limits(given, "limits")
    reader = installed(PROJECT).get("default")
    place, table = made(reader, "limits") if reader is not None else ("", {})
    return check_limits(table, place) if table else {}


def project_budgets(
    registry: Registry[Any] | None, given: Mapping[str, Any] | tuple[SharedBudget, ...] | None = None
) -> tuple[SharedBudget, ...]:
    """Return the given budgets, or those of the project's configuration. Raises `ConfigError`.

    A model that has one must be known in the registry, with its price if dollars are counted; without a registry, only
    the workers may know it. Budgets that are given as such were checked by who gives them.
    """
    if isinstance(given, tuple):
        return given
    place, table = "budgets", given
    if given is None:
        reader = installed(PROJECT).get("default")
        place, table = made(reader, "budgets") if reader is not None else ("", {})
    budgets = check_budgets(table, place) if table else ()
    for each in budgets:
        kind, _, model = each.name.partition(":")
        try:
            if kind == "model" and registry is not None:
                registry.provider(model)
                _must_be_priced(registry, model, each)
        except ConfigError as error:
            raise ConfigError(f"{place}: the budget of {each.name!r}: {error}") from None
    return budgets


def _must_be_priced(registry: Registry[Any], model: str, budget: SharedBudget) -> None:
    if budget.cost_usd is not None and not registry.price_known(model):
        raise ConfigError(f"the price of {model!r} is unknown: configure it, or count tokens")


class NamespacePolicy:
    """Reads the policy of new runs. `given` is the table of the project's policy; null: as configured.

    It may have `always`, too: calls that are approved for good, as a stored run has them.
    """

    def __init__(self, log: Log, given: Mapping[str, Any] | None) -> None:
        self.approved = ApprovedCalls(log)
        self._table: dict[str, Any] | None = None
        self._always: list[dict[str, Any]] = []
        if given is not None:
            table = dict(given)
            self._always = list(table.pop("always", ()))
            self._table = shared_policy(table, "policy") if table else {}

    def table(self) -> dict[str, Any]:
        """Return the project's policy; empty if it has none. Raises `ConfigError`."""
        if self._table is None:
            reader = installed(PROJECT).get("default")
            place, table = made(reader, "policy") if reader is not None else ("", {})
            self._table = shared_policy(table, place) if table else {}
        return self._table

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it. Raises `ConfigError`."""
        table = self.table()
        return frozenset({"approvals"} if table and asks_for_approvals(table) else ())

    async def of_run(self, reachable: Iterable[Runnable[Any]]) -> dict[str, Any]:
        """Return the policy to submit a run with that reaches these. Raises `ConfigError`, `LogUnavailable`.

        Approved calls are read only if an agent or workflow among them, or the project, asks for approvals.
        """
        table = self.table()
        configs = [each.config for each in reachable if isinstance(each, Agent | Workflow)]
        for each in configs if table else ():
            if isinstance(each, AgentConfig):
                _check_native_tools(each, table)
        if not self.capabilities() and not any(
            each.hitl_tools or (each.policy is not None and asks_for_approvals(each.policy.model_dump()))
            for each in configs
        ):
            return table
        calls = await self.approved.read()
        always = self._always + [{"tool": each.tool, "arguments": each.arguments} for each in calls]
        return {**table, "always": always} if always else table


def _check_native_tools(config: AgentConfig, table: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a native tool that the project's policy does not allow."""
    own = config.policy.model_dump(mode="json", exclude_none=True) if config.policy is not None else {}
    for why in denied(joined(own, table), [tool.type for tool in config.native_tools or ()]):
        raise ConfigError(f"agent {config.name!r}: {why}")
