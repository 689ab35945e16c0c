"""Rollbacks and retries over HTTP: a plan is shown, an admin starts it once, and its steps wait for their approvals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from foldlog.eventlog import MemoryLog
from foldlog.runtime.shared.kept_answers import KeptAnswers

from tests.http.api import Api, api, paused


async def _sold(served: Api) -> str:
    run_id, approval = await paused(served.runtime)
    run = served.runtime.get_run(run_id)
    await run.resolve(approval, "approved")
    await run.result()
    return run_id


async def _pending(client: Any, run: str) -> Any:
    while not (rows := (await client.get(f"/approvals?run={run}")).json()["rows"]):
        pass
    return rows[0]


async def test_what_a_run_did_is_undone_as_the_plan_says_once_and_by_the_one_who_asked() -> None:
    async with api(MemoryLog()) as served, served.client("admin") as client:
        run = await _sold(served)
        plan = (await client.post(f"/runs/{run}/rollback/plan")).json()
        assert (plan["run"], plan["number"], plan["rollback"]) == (run, 1, None)
        assert plan["steps"] == [
            {
                "step": "undo_1",
                "tool": "charge",
                "arguments": {"order": "17", "euros": 40},
                "by_hand": None,
                "undoes": {"run": run, "call": "c1", "tool": "refund"},
            }
        ]
        first = await client.post(
            f"/runs/{run}/rollback", json={"plan": plan["digest"]}, headers={"Idempotency-Key": "k"}
        )
        undone = first.json()["run_id"]
        assert (first.status_code, first.json()["is_new"]) == (201, True)
        assert first.headers["location"] == f"/api/v1/runs/{undone}"
        again = await client.post(
            f"/runs/{run}/rollback", json={"plan": plan["digest"]}, headers={"Idempotency-Key": "k"}
        )
        assert (again.json()["run_id"], again.headers["idempotency-replayed"]) == (undone, "true")
        other = await client.post(f"/runs/{run}/rollback")
        assert (other.status_code, other.json()) == (200, {"run_id": undone, "is_new": False})
        assert (await client.post(f"/runs/{run}/rollback/plan")).json()["rollback"] == undone
        repeated = await client.post(f"/runs/{run}/rollback", json={"plan": plan["digest"]})
        assert (repeated.status_code, repeated.json()["run_id"]) == (200, undone)
        submitted = (await served.runtime.get_run(undone).state()).submitted
        assert submitted is not None
        assert submitted.trigger is not None
        assert (submitted.trigger.kind, submitted.trigger.key) == ("rollback", run)
        assert (submitted.trigger.by, submitted.trigger.via) == ("the-admin", "api")
        assert submitted.trigger.request_id == first.headers["x-request-id"]
        asked = await _pending(client, undone)
        assert (asked["kind"], asked["tool_name"]) == ("compensation", "charge")
        await client.post(f"/approvals/{asked['approval_id']}/decision", json={"decision": "approved"})
        await served.runtime.get_run(undone).result()
        assert (await client.post(f"/runs/{run}/rollback/plan")).json()["rollback"] == undone


async def test_a_rollback_that_cannot_be_is_refused_with_its_reason_and_stores_nothing() -> None:
    async with api(MemoryLog()) as served, served.client("admin") as client:
        open_run, approval = await paused(served.runtime)
        for path in ("rollback/plan", "rollback"):
            answer = await client.post(f"/runs/{open_run}/{path}")
            assert (answer.status_code, answer.json()["error"]) == (422, "ConfigError")
            assert "is open" in answer.json()["detail"]
            assert (await client.post(f"/runs/nobody/{path}")).status_code == 404
        await served.runtime.get_run(open_run).resolve(approval, "rejected")
        await served.runtime.get_run(open_run).result()
        nothing = await client.post(f"/runs/{open_run}/rollback")
        assert "nothing to be rolled back" in nothing.json()["detail"]
        sold = await _sold(served)
        unknown = await client.post(f"/runs/{sold}/rollback/plan", json={"from_step": "c7"})
        assert "there is no call 'c7'" in unknown.json()["detail"]
        late = await client.post(f"/runs/{sold}/rollback", json={"plan": "0" * 64})
        assert late.status_code == 409
        async with served.client("operator") as operator:
            assert (await operator.post(f"/runs/{sold}/rollback/plan")).status_code == 200
            assert (await operator.post(f"/runs/{sold}/rollback")).status_code == 403
        assert len((await client.get("/runs")).json()["rows"]) == 2


async def test_a_retry_has_the_id_of_the_request_that_asked_for_it() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        started = await client.post("/runs", json={"agent": "triager", "input": "It is broken"})
        run = started.json()["run_id"]
        await served.runtime.get_run(run).result()
        again = await client.post(f"/runs/{run}/retry")
        submitted = (await served.runtime.get_run(again.json()["run_id"]).state()).submitted
        assert submitted is not None
        assert submitted.trigger is not None
        assert (submitted.trigger.kind, submitted.trigger.key) == ("retry", run)
        assert submitted.trigger.request_id == again.headers["x-request-id"]
        assert submitted.trigger.request_id != started.headers["x-request-id"]


async def test_a_retry_whose_server_died_before_it_answered_is_made_once_for_its_key() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run, _ = await paused(served.runtime)
        await served.runtime.get_run(run).cancel()

        async def retried(key: str) -> str:
            answer = await client.post(f"/runs/{run}/retry", headers={"Idempotency-Key": key})
            assert answer.status_code in {200, 201}
            return str(answer.json()["run_id"])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeptAnswers, "keep", dying_after(KeptAnswers.keep))
            with pytest.raises(asyncio.CancelledError):
                await retried("k")
        (first,) = {row.run_id for row in await served.runtime.list_runs()} - {run}
        await served.runtime.get_run(first).cancel()  # a further retry would be another run
        assert await retried("k") == first
        assert await retried("another") != first
        other = await client.post(f"/runs/{first}/retry", headers={"Idempotency-Key": "k"})
        assert other.status_code == 422


def dying_after(keep: Any) -> Any:
    """Keep the number of a retry, and die before its answer is kept."""

    async def kept(self: KeptAnswers, actor: str, key: str, *rest: Any) -> Any:
        if "\0" not in key:
            raise asyncio.CancelledError
        return await keep(self, actor, key, *rest)

    return kept
