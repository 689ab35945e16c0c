"""The runtime of a command that only looks or speaks: the same log, and nothing registered unless named.

Runs and approvals are named by their ids, or by the shortest beginning or end that names one alone.
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

_PART_MIN = 4
_CANDIDATES = 5


@contextlib.asynccontextmanager
async def opened(settings: Settings, registry: Registry | None = None) -> AsyncIterator[Runtime]:
    """A runtime on the log that the user chose. Raises `ConfigError`, `LogUnavailable`."""
    from ...runtime import Runtime
    from .output.records import show_logs

    show_logs()
    async with Runtime.open(settings.server, namespace=settings.namespace, registry=registry) as runtime:
        yield runtime


async def run_named(runtime: Runtime, text: str) -> str:
    """The id of the run that a user means. Raises `RunNotFound`, which names those that it could be, `ConfigError`."""
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
            f"there is no run {text!r} in namespace {runtime.log.namespace!r}, nor one whose id begins or ends so"
            f"{_too_short(text)}; `foldlog runs list` shows those there are"
        ) from None


async def approval_named(runtime: Runtime, text: str) -> ApprovalRow:
    """The approval that a user means. Raises `ApprovalError`, which names those that it could be."""
    from ...eventlog.errors import ApprovalError

    text = _bare(text)
    found = await (await runtime.index()).approvals_named(text) if text else []
    if found and (len(text) >= _PART_MIN or found[0].approval_id == text):
        if len(found) == 1:
            return found[0]
        told = [f"{row.approval_id} ({row.tool_name or row.kind} of {row.run_id})" for row in found]
        raise ApprovalError(_ambiguous(text, "approvals", told))
    raise ApprovalError(
        f"there is no approval {text!r} in namespace {runtime.log.namespace!r}, nor one whose id begins or ends so"
        f"{_too_short(text)}; `foldlog approvals list` shows those there are"
    )


def run_among(what: str, text: str, runs: Iterable[str]) -> str:
    """The one of the runs in `what` that a user means. Raises `RunNotFound`, which names those that it could be."""
    from ...eventlog.errors import RunNotFound

    text, known = _bare(text), list(dict.fromkeys(runs))
    found = [run for run in known if run == text]
    if not found and len(text) >= _PART_MIN:
        found = [run for run in known if run.startswith(text) or run.endswith(text)]
    if len(found) > 1:
        raise RunNotFound(_ambiguous(text, f"runs in {what}", found))
    if not found:
        raise RunNotFound(
            f"there is no run {text!r} in {what}, nor one whose id begins or ends so{_too_short(text)}"
        )
    return found[0]


def _bare(text: str) -> str:
    """An id as it was copied from a table, without the mark of what was left out."""
    return text.strip("…")


def _told_run(row: RunRow) -> str:
    return f"{row.run_id} ({row.agent}, {row.status})"


def _ambiguous(text: str, what: str, found: list[str]) -> str:
    more = ", and others" if len(found) > _CANDIDATES else ""
    candidates = ", ".join(found[:_CANDIDATES])
    return f"{text!r} is the beginning or end of several {what}: {candidates}{more}; say more of the id"


def _too_short(text: str) -> str:
    return "" if len(text) >= _PART_MIN else f" (a part of an id has at least {_PART_MIN} characters)"
