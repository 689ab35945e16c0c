"""One run in depth, and the namespace around it: what is shown is folded from the log, and proven where it can be."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from foldlog.adapters.console.patches import patch
from foldlog.adapters.console.routes import operating
from foldlog.adapters.console.table import ROUTES
from foldlog.eventlog import MemoryLog
from foldlog.eventlog.events import BudgetUpdated
from foldlog.eventlog.names import budget_subject
from foldlog.eventlog.ports import RegisterKind, Stored
from foldlog.runtime import Runtime
from foldlog.runtime.journal.register import read_register, register_write
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.http.api import api, paused, triager

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


def patched(value: Any, operations: Any) -> Any:
    """Apply a JSON Patch, as RFC 6902 says."""
    document = {"": copy.deepcopy(value)}
    for operation in operations:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")]
        target: Any = document
        for key in keys[:-1]:
            target = target[int(key) if isinstance(target, list) else key]
        last = keys[-1]
        if isinstance(target, list):
            if operation["op"] == "remove":
                del target[int(last)]
            elif operation["op"] == "add":
                target.append(operation["value"])
            else:
                target[int(last)] = operation["value"]
        elif operation["op"] == "remove":
            del target[last]
        else:
            target[last] = operation["value"]
    return document[""]


@given(VALUES, VALUES)
def test_a_patch_turns_one_value_into_the_other(before: Any, after: Any) -> None:
    assert patched(before, list(patch(before, after))) == after
    assert list(patch(before, before)) == []


async def finished(runtime: Runtime, **options: Any) -> str:
    run = await runtime.start(triager(), "It is broken", **options)
    await run.result()
    return run.run_id


async def refunded(runtime: Runtime, **options: Any) -> str:
    run_id, approval = await paused(runtime, **options)
    await runtime.get_run(run_id).resolve(approval, "approved", by="ada")
    await runtime.get_run(run_id).result()
    return run_id


async def test_the_timeline_has_a_row_for_each_event_and_a_bar_for_what_takes_time() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime)
        found = (await client.get(f"/runs/{run_id}/timeline?level=engine")).json()
        head = (await client.get(f"/runs/{run_id}/events?engine=1")).json()["head"]
        assert [row["revision"] for row in found["rows"]] == list(range(1, head + 1))
        assert found["cursor"] == found["rows"][-1]["cursor"]
        bars = {bar["id"]: bar for bar in found["bars"]}
        assert {bar["lane"] for bar in bars.values()} == {"run", "worker", "step", "model", "tool"}
        assert all(bar["end"] is not None and bar["end"] >= bar["start"] for bar in bars.values())
        assert any(bar["state"] == "paused" for bar in bars.values())
        key = (await client.get(f"/runs/{run_id}/timeline?level=key")).json()["rows"]
        assert 0 < len(key) < head


async def test_the_state_at_a_revision_and_the_patches_between_agree() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime)
        head = (await client.get(f"/runs/{run_id}")).json()["row"]["revision"]
        states = [
            (await client.get(f"/runs/{run_id}/at/{revision}")).json()["state"]
            for revision in range(1, head + 1)
        ]
        for revision in range(1, head):
            found = (await client.get(f"/runs/{run_id}/at/{revision}..{revision + 1}")).json()["patch"]
            assert patched(states[revision - 1], found) == states[revision]
        whole = (await client.get(f"/runs/{run_id}/at/1..{head}")).json()["patch"]
        assert patched(states[0], whole) == states[-1]
        assert (await client.get(f"/runs/{run_id}/at/{head + 1}")).status_code == 422


async def test_a_prompt_is_shown_as_it_was_sent_with_its_proof() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime)
        events = (await client.get(f"/runs/{run_id}/events?engine=1")).json()["rows"]
        asked = [event for event in events if event["type"] == "model_requested"]
        for event in asked:
            sent = (await client.get(f"/runs/{run_id}/prompts/{event['revision']}")).json()
            assert (sent["proven"], sent["digest"]) == (True, event["digest"])
            assert [each > 0 for each in sent["message_tokens"]] == [True] * len(sent["messages"])
        assert [tool["name"] for tool in sent["tools"]] == ["refund"]
        assert (await client.get(f"/runs/{run_id}/prompts/1")).status_code == 422


async def test_messages_evidence_and_costs_of_a_run_are_shown() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime)
        messages = (await client.get(f"/runs/{run_id}/messages")).json()["messages"]
        assert messages[0]["content"] == "Order 17 is broken"
        (call,) = (await client.get(f"/runs/{run_id}/evidence")).json()
        assert (call["tool_name"], call["success"]) == ("refund", True)
        costs = (await client.get(f"/runs/{run_id}/costs")).json()["rows"]
        assert [row["step"] for row in costs] == [1, 2]


async def test_an_export_is_byte_for_byte_and_another_log_imports_it() -> None:
    async with api(MemoryLog()) as one, api(MemoryLog()) as two:
        run_id = await refunded(one.runtime)
        async with one.client("viewer") as client:
            lines = (await client.get(f"/runs/{run_id}/export?artifacts=1")).content
        async with two.client("operator") as client:
            assert (await client.post("/import", content=lines)).status_code == 403
        async with two.client("admin") as client:
            assert (await client.post("/import", content=lines)).json()["runs"] == [run_id]
            assert (await client.post("/import", content=lines)).json()["skipped"] == [run_id]
            again = (await client.get(f"/runs/{run_id}/export?artifacts=1")).content
            assert _commits(again) == _commits(lines)
            assert (await client.post("/import", content=lines.replace(b"17", b"18"))).status_code >= 400


async def test_an_erased_run_is_gone_at_every_address_of_it_but_among_its_family() -> None:
    async with api(MemoryLog()) as served:
        run_id = await refunded(served.runtime)
        await served.runtime.delete(run_id)
        async with served.client("viewer") as client:
            paths = [route.path for route in ROUTES if route.method == "GET" and "{run}" in route.path]
            paths = [path.format(run=run_id) for path in paths if path.count("{") == 1]
            paths.append(f"/monitor?run={run_id}")
            for path in paths:
                assert (await client.get(path)).status_code == (200 if path.endswith("/tree") else 410), path
            assert f"/runs/{run_id}/export" in paths


def _commits(lines: bytes) -> list[Any]:
    return [{k: v for k, v in json.loads(line).items() if k != "position"} for line in lines.splitlines()]


async def test_an_artifact_is_saved_and_never_shown_in_place() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await finished(served.runtime)
        page = b"<script>alert(1)</script>"
        digest = await served.runtime.log.artifacts.of(run_id).put(page)
        for answer in (
            await client.get(f"/artifacts/{digest}"),
            await client.get(f"/artifacts/{digest}?run={run_id}"),
        ):
            assert answer.content == page
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"].startswith("attachment")
            assert answer.headers["content-security-policy"].startswith("sandbox")
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await client.get(f"/artifacts/{'0' * 64}")).status_code == 404
        assert (await client.get("/artifacts/nonsense")).status_code == 422


async def test_a_fork_starts_only_by_the_plan_that_was_shown() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id = await refunded(served.runtime)
        asked = {"at": 8, "tools": "replay"}
        plan = (await client.post(f"/runs/{run_id}/fork/plan", json=asked)).json()
        assert [call["becomes"] for call in plan["calls"]]
        for wrong in ({}, {"plan": "0" * 64}, {"plan": plan["digest"], "tools": "run"}):
            answer = await client.post(f"/runs/{run_id}/fork", json=asked | wrong)
            assert (answer.status_code, len(answer.json()["digest"])) == (409, 64)
        key = {"idempotency-key": "f1"}
        first = await client.post(f"/runs/{run_id}/fork", json=asked | {"plan": plan["digest"]}, headers=key)
        assert first.status_code == 201
        again = await client.post(f"/runs/{run_id}/fork", json=asked | {"plan": plan["digest"]}, headers=key)
        assert again.json()["run_id"] == first.json()["run_id"]
        fork = first.json()["run_id"]
        await served.runtime.get_run(fork).result()
        shown = (await client.get(f"/runs/{run_id}")).json()
        assert shown["forks"] == [fork]
        compared = (await client.post("/compare", json={"a": run_id, "b": fork})).json()
        assert compared["boundaries"] > 0


async def test_a_run_is_compared_with_itself_with_another_and_with_a_file() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        one, two = await finished(served.runtime), await refunded(served.runtime)
        same = (await client.post("/compare", json={"a": one, "b": one})).json()
        assert (same["equal"], same["rows"], same["first_difference"]) == (True, [], None)
        text = (await client.get(f"/runs/{one}/export")).text
        assert (await client.post("/compare", json={"a": one, "b_file": text})).json()["equal"]
        other = (await client.post("/compare", json={"a": one, "b": two, "limit": 2})).json()
        assert not other["equal"]
        assert other["first_difference"]["rule"]
        assert (len(other["rows"]), other["next"]) == (2, 2)
        every = {"a": one, "b_file": text, "rows": "all"}
        rows = (await client.post("/compare", json=every)).json()["rows"]
        assert [row["kind"] for row in rows] == ["same"] * same["boundaries"] != []
        first = (await client.post("/compare", json=every | {"limit": 3})).json()
        rest = (await client.post("/compare", json=every | {"after": first["next"]})).json()
        assert (first["rows"] + rest["rows"], rest["next"]) == (rows, None)
        for wrong in ({"a": one}, {"a": one, "b": two, "b_file": "x"}, {"a": one, "b": "nobody"}):
            assert (await client.post("/compare", json=wrong)).status_code in {404, 422}
        page = await client.post("/compare/page", json={"a": one, "b": two})
        assert page.headers["content-disposition"].startswith("attachment")
        assert '<h1><span class="different">' in page.text


async def test_the_tree_of_a_run_has_its_origin_and_the_forks_of_its_forks() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        origin = await refunded(served.runtime)
        fork = await served.runtime.fork(origin, at=3, tools="replay")
        await fork.result()
        second = await served.runtime.fork(fork.run_id, at=3, tools="replay")
        await second.result()
        trees = [(await client.get(f"/runs/{run}/tree")).json() for run in (origin, second.run_id)]
        assert trees[0] == trees[1]
        found = [(each["row"]["run_id"], each["depth"], each["relation"]) for each in trees[0]["rows"]]
        assert found == [(origin, 0, ""), (fork.run_id, 1, "fork"), (second.run_id, 2, "fork")]
        assert not trees[0]["more"]
        listed = (await client.get("/runs", params={"forks": "0"})).json()["rows"]
        assert [row["run_id"] for row in listed] == [origin]
        told = (await client.get(f"/runs/{fork.run_id}")).json()["trace_id"]
        assert told == hashlib.sha256(fork.run_id.encode()).hexdigest()[:32]


async def test_a_batch_tells_what_it_would_do_and_then_what_came_of_each() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        runs = [(await paused(served.runtime))[0] for _ in range(3)]
        done = await finished(served.runtime)
        asked = {"action": "cancel", "filter": {"status": "paused"}, "note": "enough"}
        dry = (await client.post("/batch", json=asked | {"dry_run": True})).json()
        assert dry == {"count": 3, "results": []}
        assert (await client.post("/batch", json=asked | {"count": 2})).status_code == 409
        told = (await client.post("/batch", json=asked | {"count": 3})).json()
        assert {each["id"]: each["told"] for each in told["results"]} == dict.fromkeys(runs, "cancelled")
        mixed = (await client.post("/batch", json={"action": "pause", "ids": [done, "nobody"]})).json()
        assert [each["status"] for each in mixed["results"]] == [409, 404]
        for wrong in (
            {"action": "cancel"},
            {"action": "burn", "ids": ["x"]},
            {"action": "cancel", "ids": ["x"] * 2, "filter": {}},
            {"action": "cancel", "filter": {}, "count": 4},
        ):
            assert (await client.post("/batch", json=wrong)).status_code == 422


async def test_a_filter_selects_only_runs_that_the_action_can_be_for() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        runs = [(await paused(served.runtime))[0] for _ in range(2)]
        done = await finished(served.runtime)

        async def count(action: str, **query: Any) -> int:
            every = {"action": action, "filter": query, "all": True, "dry_run": True}
            return int((await client.post("/batch", json=every)).json()["count"])

        assert [await count(action) for action in ("pause", "resume", "cancel", "retry")] == [0, 2, 2, 0]
        assert [await count("approve"), await count("retry", status="completed")] == [2, 1]
        everything = {"action": "cancel", "filter": {}, "all": True, "count": 2}
        told = (await client.post("/batch", json=everything)).json()
        assert {each["id"] for each in told["results"]} == set(runs)
        assert await count("retry") == 2
        await served.runtime.delete(runs[0])
        retried = (await client.post("/batch", json=everything | {"action": "retry", "count": 1})).json()
        assert [(each["id"], each["status"]) for each in retried["results"]] == [(runs[1], 200)]
        assert done not in {each["id"] for each in retried["results"]}


async def test_approvals_are_answered_in_a_batch() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        asked = [(await paused(served.runtime))[1] for _ in range(2)]
        told = (await client.post("/batch", json={"action": "reject", "ids": asked, "note": "no"})).json()
        assert [each["told"] for each in told["results"]] == ["rejected", "rejected"]
        assert (await client.get("/approvals")).json()["rows"] == []


async def test_a_run_is_retried_and_driven() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        assert (await client.post(f"/runs/{run_id}/retry")).status_code == 422
        await client.post(f"/runs/{run_id}/cancel")
        first = await client.post(f"/runs/{run_id}/retry", json={"number": 1})
        again = await client.post(f"/runs/{run_id}/retry", json={"number": 1})
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["run_id"] == again.json()["run_id"]
        assert (await client.post(f"/runs/{first.json()['run_id']}/drive")).status_code == 200


async def test_a_run_with_its_retries_is_one_job_where_its_newest_run_stands() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        first, second, third = [await finished(served.runtime, user=user) for user in ("ada", "bo", "cy")]
        again = await served.runtime.retry(first)
        await again.result(timeout_s=30)
        seen, place = list[list[str]](), ""
        while place is not None:
            page = (await client.get("/jobs", params={"limit": 1, "before": place})).json()
            seen += [[run["run_id"] for run in job["runs"]] for job in page["rows"]]
            place = page["next"]
        assert seen == [[first, again.run_id], [third], [second]]
        for run in (first, again.run_id):
            job = (await client.get(f"/jobs/{run}")).json()
            assert (job["job_id"], job["status"], job["rollbacks"]) == (first, "completed", [])
            assert [each["run_id"] for each in job["runs"]] == [first, again.run_id]
        assert [job["job_id"] for job in (await client.get("/jobs?user=bo")).json()["rows"]] == [second]
        assert (await client.get("/jobs?status=error")).json() == {"rows": [], "next": None}
        assert (await client.get("/jobs?status=lost")).status_code == 422
        assert (await client.get("/jobs/00-none")).status_code == 404


async def test_who_waits_and_why_is_one_sentence_everywhere() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        queue = (await client.get("/queue")).json()
        (waiting,) = queue["waiting"]
        assert (waiting["row"]["run_id"], waiting["why"]["kind"]) == (run_id, "approval")
        assert (await client.get(f"/runs/{run_id}")).json()["why"] == waiting["why"]
        (agent,) = queue["agents"]
        assert (agent["agent"], agent["queued"], agent["driven"], agent["parked"]) == ("desk", 0, 0, 1)


async def test_the_namespace_is_shown() -> None:
    async with api(MemoryLog()) as served, served.client("admin") as client:
        run_id = await finished(served.runtime, session="s/1")
        assert (await client.get("/sessions")).json() == [{"session": "s/1", "runs": 1}]
        turns = (await client.get("/sessions/s%2F1")).json()["turns"]
        assert [turn["run"] for turn in turns] == [run_id]
        assert (await client.post("/sessions/s%2F1/drop", json={"turns": 1})).json() == {"dropped": 1}
        assert (await client.get("/sessions/s%2F1")).json()["turns"] == []
        (worker,) = (await client.get("/workers")).json()["rows"]
        assert (worker["drives"], worker["silent_s"]) == ([], 0.0)
        for path in ("/lanes", "/slots", "/breakers"):
            assert (await client.get(path)).json() == {"rows": []}
        assert (await client.get("/budgets")).json() == {"rows": [], "next": None}
        (day,) = (await client.get("/costs?by=agent")).json()["rows"]
        assert (day["key"], day["runs"]) == ("triager", 1)
        checked = (await client.get("/monitor")).json()
        assert checked["violations"] == []
        assert checked["events"] > 0
        assert (await client.get(f"/monitor?run={run_id}")).json()["violations"] == []
        assert {row["lag"] for row in (await client.get("/projections")).json()} == {0}
        assert (await client.post("/projections/rebuild")).status_code == 200
        assert len((await client.get("/runs")).json()["rows"]) == 1
        text = (await client.get("/metrics")).text
        assert 'foldlog_runs{namespace="default",status="completed"} 1' in text


async def test_what_is_spent_of_budgets_is_shown_with_what_is_left() -> None:
    log = MemoryLog()
    budgets = {
        "user:*": {"tokens": 10, "per": "month", "time_zone": "Asia/Tokyo"},
        "agent:desk": {"cost_usd": 5, "tokens": 7, "per": "total"},
    }
    async with api(log, budgets=budgets) as served, served.client("viewer") as client:
        assert [row["owner"] for row in (await client.get("/budgets")).json()["rows"]] == ["agent:desk"]
        await finished(served.runtime, user="ada")
        desk, ada = (await client.get("/budgets")).json()["rows"]
    assert (ada["owner"], ada["calls"], ada["amount"]) == ("user:ada", 1, "10 tokens a month")
    assert (ada["left_tokens"], ada["left_usd"]) == (max(0, 10 - ada["tokens"]), None)
    assert ada["began_at"] < log.clock.now() < ada["until"]
    assert (desk["amount"], desk["calls"]) == ("5 USD and 7 tokens in total", 0)
    assert (desk["left_usd"], desk["left_tokens"], desk["until"]) == ("5", 7, None)


@pytest.mark.parametrize(("kept_s", "times_read"), [(600.0, 1), (-1.0, 3)])
async def test_pages_of_budgets_hold_each_once_and_are_of_one_reading_also_if_another_user_spends_meanwhile(
    kept_s: float, times_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "BUDGETS_KEPT_S", kept_s)
    log, reads = MemoryLog(), Counter[str]()
    heads = log.events.heads

    def counted(shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        reads[kind] += 1
        return heads(shard, kind)

    monkeypatch.setattr(log.events, "heads", counted)
    budgets = {
        "user:*": [{"tokens": 10**6, "per": per} for per in ("day", "total")],
        "agent:desk": {"tokens": 7, "per": "total"},
    }
    async with api(log, budgets=budgets) as served, served.client("viewer") as client:
        for user in ("cy", "bo"):
            await finished(served.runtime, user=user)
        seen, place, before = list[tuple[str, str]](), "", reads["budget"]
        while place is not None:
            page = (await client.get("/budgets", params={"limit": 2, "before": place})).json()
            seen += [(row["owner"], row["per"]) for row in page["rows"]]
            place = page["next"]
            if len(seen) == 2:
                await finished(served.runtime, user="ada")
        users = [(f"user:{name}", per) for name in ("bo", "cy") for per in ("day", "total")]
        assert seen == [("agent:desk", "total"), *users]
        assert reads["budget"] - before == times_read * log.events.shards
        assert (await client.get("/budgets?before=nonsense")).status_code == 422
        assert (await client.get("/budgets?limit=501")).status_code == 422


async def test_a_server_without_the_budgets_shows_what_is_spent_without_amounts() -> None:
    log = MemoryLog()
    async with api(log, budgets={"user:*": {"tokens": 10**6, "per": "day"}}) as served:
        await finished(served.runtime, user="ada")
        async with served.client("viewer") as client:
            (known,) = (await client.get("/budgets")).json()["rows"]
    async with api(log) as served, served.client("viewer") as client:
        (row,) = (await client.get("/budgets")).json()["rows"]
    assert known["calls"] == 1
    assert row == known | {"amount": "", "when_spent": "", "left_tokens": None}


async def test_what_was_spent_in_a_period_that_is_over_or_of_a_zone_that_is_unknown_is_not_shown() -> None:
    log = MemoryLog()
    old = BudgetUpdated(name="user:old", per="day", began_at=86400.0, calls=3, tokens=9)
    strange = BudgetUpdated(
        name="user:far", per="day", time_zone="Moon/Sea", began_at=2e10, calls=3, tokens=9
    )
    for each in (old, strange):
        subject = budget_subject(0, f"{each.name} {each.per} {each.time_zone}")
        head, _events = await read_register(log, subject)
        write = register_write(log, subject, head, each)
        await log.events.append(write)
    async with api(log) as served, served.client("viewer") as client:
        assert (await client.get("/budgets")).json() == {"rows": [], "next": None}


async def test_schedules_are_applied_paused_and_deleted() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        given_ = {"name": "daily", "agent": "triager", "input": "x", "every": "1h"}
        made = await client.post("/schedules", json=given_)
        assert made.status_code == 200, made.text
        assert made.json()["by"] == "the-operator"
        coming = made.json()["coming"]
        assert [later - earlier for earlier, later in itertools.pairwise(coming)] == [3600.0] * 4
        assert (await client.patch("/schedules/daily", json={"paused": True})).json()["paused"]
        assert len((await client.get("/schedules")).json()) == 1
        assert (await client.delete("/schedules/daily")).json() == {"deleted": True}
        assert (await client.patch("/schedules/daily", json={"paused": True})).status_code == 404
        assert (await client.post("/schedules", json={"name": "x"})).status_code == 422


async def test_the_openapi_document_has_every_route_and_its_schemas_hold_for_the_answers() -> None:
    budgets = {"agent:desk": {"tokens": 10**6, "per": "day"}, "namespace": {"tokens": 10**6, "per": "total"}}
    async with api(MemoryLog(), budgets=budgets) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime, session="s")
        document = (await client.get("/openapi.json")).json()
        told = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
        assert told == {(route.method, route.path.replace(":path}", "}")) for route in ROUTES}
        names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
        assert len(names) == len(set(names))
        for path in (
            "/runs",
            "/runs/{run}",
            "/runs/{run}/timeline",
            "/runs/{run}/events",
            "/approvals",
            "/queue",
            "/workers",
            "/budgets",
            "/jobs",
            "/jobs/{job}",
        ):
            schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"][
                "schema"
            ]
            answer = (await client.get(path.format(run=run_id, job=run_id))).json()
            Draft202012Validator(schema | {"components": document["components"]}).validate(answer)
        assert (await client.get("/schema.json")).json()["$schema"]


async def test_heavy_questions_are_answered_two_at_a_time_for_each_caller() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await refunded(served.runtime)
        asked = [client.get(f"/runs/{run_id}/at/3") for _ in range(6)]
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
        assert statuses[:2] == [200, 200]
        assert set(statuses) <= {200, 429}


@pytest.mark.parametrize(
    "path",
    ["/runs/x/timeline?level=all", "/costs?by=moon", "/costs?from=monday", "/runs/x/at/1..", "/runs/x/at/y"],
)
async def test_a_wrong_question_is_told_what_is_wrong(path: str) -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        answer = await client.get(path)
        assert answer.status_code in {404, 422}
        assert json.loads(answer.content)["detail"]
