"""`foldlog runs cancel`, `resume` and `retry`, for one run or all that the filters of `runs list` select."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..actors import operator
from ..bulk import Bulk, Done, carry_out, selected, show
from ..exits import NO, OK, PAUSED
from ..opening import opened
from ..output.terminal import Screen
from ..settings import Settings
from .listing import Filters

if TYPE_CHECKING:
    from ....runtime import RunHandle


async def cancel_runs(
    settings: Settings, run: str | None, filters: Filters, bulk: Bulk, reason: str, by: str
) -> int:
    """Cancel the selected runs, and return the exit code."""
    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await selected(runtime, run, filters, bulk, "cancel")
        above = {row.run_id for row in rows}
        meant = [row.run_id for row in rows if not above & {row.parent, row.root_id} - {row.run_id}]
        if bulk.dry_run or not meant:
            return await show(runtime, screen, meant, "would be cancelled", json=bulk.json)

        async def cancelled(each: str) -> Done:
            found = await runtime.get_run(each).cancel(reason, by=operator(by))
            code = OK if found.endswith("cancelled") else NO
            return Done(run_id=each, words=found.replace("_", " "), document={"found": found}, code=code)

        return await carry_out(meant, cancelled, bulk, screen, single=run is not None)


async def resume_runs(settings: Settings, run: str | None, filters: Filters, bulk: Bulk, by: str) -> int:
    """Resume the selected runs, and return the exit code."""
    import msgspec

    from ..output.views import answers_to

    screen = Screen(settings)
    async with opened(settings) as runtime:
        rows = await selected(runtime, run, filters, bulk, "resume")
        meant = [row.run_id for row in rows]
        if bulk.dry_run or not meant:
            return await show(runtime, screen, meant, "would be resumed", json=bulk.json)

        async def resumed(each: str) -> Done:
            handle = runtime.get_run(each)
            await handle.resume(by=operator(by))
            pending = await handle.pending()
            document = msgspec.to_builtins(pending)
            if pending.paused is None:
                return Done(run_id=each, words="resumed", document=document)
            answers = [
                answer
                for approval in pending.approvals
                for answer in answers_to(settings, approval.approval_id, approval.kind, approval.arguments)
            ]
            words = f"still paused ({pending.paused}); to continue it"
            return Done(run_id=each, words=words, document=document, code=PAUSED, more=answers)

        return await carry_out(meant, resumed, bulk, screen, single=run is not None)


async def retry_runs(
    settings: Settings,
    run: str | None,
    filters: Filters,
    bulk: Bulk,
    how: tuple[str | None, str | None],
    *,
    from_failure: bool,
) -> int:
    """Retry the selected runs, and return the exit code. `how`: the path of a registry, and the executor, if given."""
    from ..loading import executor_for, load_registry

    path, named = how
    if run is not None and ":" in run and path is None:
        run, path = None, run  # the ids of runs have no colon
    screen, registry = Screen(settings), load_registry(path) if path is not None else None
    async with opened(settings, registry) as runtime:
        executor, runs_in = executor_for(runtime, named, path)
        meant = [row.run_id for row in await selected(runtime, run, filters, bulk, "retry")]
        if bulk.dry_run or not meant:
            return await show(runtime, screen, meant, "would be retried", json=bulk.json)

        async def retried(each: str) -> Done:
            number = None if run is not None else 1
            found: RunHandle[Any] = await runtime.retry(
                each, from_failure=from_failure, number=number, executor=executor, by=operator()
            )
            if runs_in == "process":
                await _until_rest(found)
            status = await found.status()
            words = f"{'retried' if found.is_new else 'was retried before'} as run {found.run_id} ({status})"
            document = {"retry": found.run_id, "is_new": found.is_new, "status": status}
            return Done(run_id=each, words=words, document=document)

        return await carry_out(meant, retried, bulk, screen, single=run is not None)


async def _until_rest(run: RunHandle[Any]) -> None:
    """Wait until a run that this process drives ends or pauses."""
    async with contextlib.aclosing(run.stream(family=False)) as events:
        async for event in events:
            if event.type == "status" and event.status in {"paused", "completed", "error", "cancelled"}:
                return
