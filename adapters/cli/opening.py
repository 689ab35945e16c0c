"""Open a runtime for a command that reads or steers runs: no agents are registered unless a registry is given.

Runs and approvals are given by their ids, or by any unique prefix or suffix of one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from ...projections.approvals import ApprovalRow
    from ...projections.run_list import RunRow
    from ...runtime import Registry, Runtime
    from ...runtime.core.shared_budgets import SharedBudget
    from .output.records import LogFormat

_PART_MIN = 4
_CANDIDATES = 5


@contextlib.asynccontextmanager
async def opened(
    settings: Settings,
    registry: Registry | None = None,
    *,
    budgets: tuple[SharedBudget, ...] | None = None,
    log_format: LogFormat = "text",
) -> AsyncIterator[Runtime]:
    """Open a runtime on the log that the user chose. Raises `ConfigError`, `LogUnavailable`.

    `budgets` are those of the namespace, instead of what the registry makes of the project's configuration.
    """
    from ...runtime import Runtime
    from .output.records import show_logs

    show_logs(form=log_format)
    async with Runtime.open(
        settings.server,
        namespace=settings.namespace,
        registry=registry,
        limits={} if registry is None else None,
        budgets={} if registry is None else budgets,
    ) as runtime:  # limits apply to driving only; an invalid one must not prevent reading
        yield runtime


async def run_named(runtime: Runtime, text: str) -> str:
    """Return the full id of a run. Raises `RunNotFound`, which names the candidates, and `ConfigError`."""
    from ...eventlog.errors import RunNotFound

    text = _bare(text)
    try:
        return (await runtime.locate(text)).id
    except RunNotFound:
        found = [] if len(text) < _PART_MIN else await (await runtime.index()).runs_named(text)
        if len(found) == 1:
            return found[0].run_id
        if found:
            told = _ambiguous(text, "runs", [_told_run(row) for row in found])
            raise RunNotFound(told) from None
        raise RunNotFound(
            f"no run in namespace {runtime.log.namespace!r} has the id, prefix or suffix {text!r}"
            f"{_too_short(text)}; `foldlog runs list` shows all runs, and `foldlog events verify --all` names those "
            "that were purged by hand"
        ) from None


async def approval_named(runtime: Runtime, text: str) -> ApprovalRow:
    """Return the approval with this id, prefix or suffix. Raises `ApprovalError`, which names the candidates."""
    from ...eventlog.errors import ApprovalError

    text = _bare(text)
    found = await (await runtime.index()).approvals_named(text) if text else []
    if found and (len(text) >= _PART_MIN or found[0].approval_id == text):
        if len(found) == 1:
            return found[0]
        told = [f"{row.approval_id} ({row.tool_name or row.kind} of {row.run_id})" for row in found]
        raise ApprovalError(_ambiguous(text, "approvals", told))
    raise ApprovalError(
        f"no approval in namespace {runtime.log.namespace!r} has the id, prefix or suffix {text!r}"
        f"{_too_short(text)}; `foldlog approvals list --all` shows all approvals"
    )


def run_among(what: str, text: str, runs: Iterable[str]) -> str:
    """Return the full id of one of the runs in `what`. Raises `RunNotFound`, which names the candidates."""
    from ...eventlog.errors import RunNotFound

    text, known = _bare(text), list(dict.fromkeys(runs))
    found = [run for run in known if run == text]
    if not found and len(text) >= _PART_MIN:
        found = [run for run in known if run.startswith(text) or run.endswith(text)]
    if len(found) > 1:
        raise RunNotFound(_ambiguous(text, f"runs in {what}", found))
    if not found:
        raise RunNotFound(f"no run in {what} has the id, prefix or suffix {text!r}{_too_short(text)}")
    return found[0]


def _bare(text: str) -> str:
    """Return an id as copied from a table, without the ellipsis."""
    return text.strip("…")


def _told_run(row: RunRow) -> str:
    return f"{row.run_id} ({row.agent}, {row.status})"


def _ambiguous(text: str, what: str, found: list[str]) -> str:
    more = ", and others" if len(found) > _CANDIDATES else ""
    candidates = ", ".join(found[:_CANDIDATES])
    return f"{text!r} is a prefix or suffix of several {what}: {candidates}{more}; give more of the id"


def _too_short(text: str) -> str:
    return "" if len(text) >= _PART_MIN else f" (a prefix or suffix needs at least {_PART_MIN} characters)"
