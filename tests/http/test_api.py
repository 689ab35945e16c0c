"""The HTTP API: what it shows is what the log says, and what it does is an event with its actor."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from foldlog.adapters.console.routes import session
from foldlog.adapters.console.table import ROUTES
from foldlog.eventlog import ConfigError, MemoryLog, SystemClock
from foldlog.eventlog.faults import FaultyLog, Outage
from foldlog.runtime import Runtime

from tests.http.api import Api, api, paused, triager


async def _finished(runtime: Runtime, **options: Any) -> str:
    run = await runtime.start(triager(), "It is broken", **options)
    await run.result()
    return run.run_id


async def test_a_run_that_is_started_here_is_listed_and_shown_with_its_events() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        started = await client.post("/runs", json={"agent": "triager", "input": "It is broken\nHelp"})
        assert started.status_code == 201
        run_id = started.json()["run_id"]
        assert started.headers["location"] == f"/api/v1/runs/{run_id}"
        await served.runtime.get_run(run_id).result()
        (row,) = (await client.get("/runs")).json()["rows"]
        assert (row["run_id"], row["status"], row["input"]) == (run_id, "completed", "It is broken")
        assert (row["trigger"]["kind"], row["trigger"]["by"]) == ("api", "the-operator")
        assert row["trigger"]["request_id"] == started.headers["x-request-id"]
        shown = (await client.get(f"/runs/{run_id}")).json()
        assert (shown["input"], shown["output"]) == ("It is broken\nHelp", "triaged")
        assert row.pop("family") == shown["totals"]
        assert shown["row"] == row
        assert (await client.get("/runs/counts")).json()["completed"] == 1


async def test_a_run_is_started_with_its_priority_and_a_wrong_one_is_named() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        asked = {"agent": "triager", "input": "Help"}
        started = await client.post("/runs", json={**asked, "priority": 8})
        run = served.runtime.get_run(started.json()["run_id"])
        await run.result()
        assert (await client.get(f"/runs/{run.run_id}")).json()["row"]["priority"] == "urgent"
        for wrong in (10, -1):
            refused = await client.post("/runs", json={**asked, "priority": wrong})
            assert refused.status_code == 422
            assert "a priority is urgent, normal, background" in refused.text
        assert (await client.post("/runs", json={**asked, "priority": "high"})).status_code == 422


async def test_the_events_of_a_run_are_those_of_its_log_whatever_the_pages() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await _finished(served.runtime)
        whole = (await client.get(f"/runs/{run_id}/events?engine=1")).json()
        revisions = [event["revision"] for event in whole["rows"]]
        assert revisions == list(range(1, whole["head"] + 1))
        paged: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = (await client.get(f"/runs/{run_id}/events?engine=1&limit=2&after={after}")).json()
            paged += page["rows"]
            after = page["next"]
        assert paged == whole["rows"]
        shown = (await client.get(f"/runs/{run_id}/events")).json()["rows"]
        assert [event["type"] for event in shown] == ["status", "step", "text", "usage", "step", "status"]
        one = (await client.get(f"/runs/{run_id}/events/7")).json()
        assert one["event"] == whole["rows"][6]
        assert one["commit"]["revision"] <= 7 < one["commit"]["revision"] + one["commit"]["events"]
        assert (await client.get(f"/runs/{run_id}/events/700")).status_code == 404


async def test_pages_of_the_list_hold_every_run_once() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        runs = [await _finished(served.runtime, user=f"u{number % 2}") for number in range(5)]
        seen, place = list[str](), ""
        while True:
            page = (await client.get("/runs", params={"limit": 2, "before": place})).json()
            seen += [row["run_id"] for row in page["rows"]]
            if page["next"] is None:
                break
            place = page["next"]
        assert seen == runs[::-1]
        mine = (await client.get("/runs?user=u1")).json()["rows"]
        assert [row["run_id"] for row in mine] == [runs[3], runs[1]]
        assert (await client.get("/runs?before=nonsense")).status_code == 422


async def test_an_approval_is_answered_once_and_the_second_hears_who_was_first() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as ada, served.client("admin") as bo:
        run_id, approval = await paused(served.runtime)
        (row,) = (await ada.get("/approvals")).json()["rows"]
        assert (row["approval_id"], row["arguments"]) == (approval, {"order": "17", "euros": 40})
        whole = (await ada.get(f"/approvals/{approval}")).json()
        assert whole.pop("effect") == "unsafe"
        assert set(whole.pop("schema")["properties"]) == set(row["arguments"])
        assert whole == row
        no = await ada.post(f"/approvals/{approval}/decision", json={"decision": "rejected", "note": "twice"})
        assert no.json() == {
            "approval_id": approval,
            "run_id": run_id,
            "decision": "rejected",
            "by": "the-operator",
        }
        yes = await bo.post(f"/approvals/{approval}/decision", json={"decision": "approved"})
        assert (yes.status_code, yes.json()["by"], yes.json()["decision"]) == (
            409,
            "the-operator",
            "rejected",
        )
        assert (await ada.get("/approvals")).json()["rows"] == []
        (decided,) = (await ada.get("/approvals?pending=0")).json()["rows"]
        assert decided["by"] == "the-operator"
        assert (await ada.get("/approvals/none")).status_code == 404
        await served.runtime.get_run(run_id).result()


async def test_an_answer_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        _run, approval = await paused(served.runtime)
        bad = await client.post(
            f"/approvals/{approval}/decision", json={"decision": "approved", "arguments": {"euros": "many"}}
        )
        assert (bad.status_code, bad.json()["error"]) == (422, "ApprovalError")
        assert len((await client.get("/approvals")).json()["rows"]) == 1


async def test_commands_are_events_with_their_actor() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        assert (await client.post(f"/runs/{run_id}/messages", json={"content": "Hurry"})).status_code == 200
        assert (await client.post(f"/runs/{run_id}/pause")).status_code == 200
        assert (await client.post(f"/runs/{run_id}/resume")).json()["run_id"] == run_id
        found = await client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
        assert found.json() == {"run_id": run_id, "found": "cancelled"}
        again = await client.post(f"/runs/{run_id}/cancel")
        assert again.json()["found"] == "already_cancelled"
        events = (await client.get(f"/runs/{run_id}/events?engine=1")).json()["rows"]
        by = {event["type"]: event.get("by") for event in events[::-1]}  # the first of each type
        acted = [event for event in events if event.get("by")]
        assert {event["via"] for event in acted if "via" in event} == {"api"}
        assert by["message_queued"] == "the-operator"
        assert (by["cancel_requested"], by["pause_requested"]) == ("the-operator", "the-operator")
        late = await client.post(f"/runs/{run_id}/pause")
        assert (late.status_code, late.json()["error"]) == (409, "RunFinished")


async def test_the_same_key_finds_the_run_that_it_has_started_also_at_another_server() -> None:
    log = MemoryLog()
    asked = {"agent": "triager", "input": "It is broken"}
    async with api(log) as one, api(log) as two:
        async with one.client("operator", idempotency_key="k") as client:
            first = (await client.post("/runs", json=asked)).json()["run_id"]
            other = await client.post("/runs", json={"agent": "triager", "input": "Something else"})
            assert other.status_code == 422
        async with two.client("operator", idempotency_key="k") as client:
            assert (await client.post("/runs", json=asked)).json()["run_id"] == first
        async with two.client("admin", idempotency_key="k") as client:  # another person's key
            assert (await client.post("/runs", json=asked)).json()["run_id"] != first


REFUSED: list[tuple[int, str, str, Any]] = [
    (404, "GET", "/runs/nobody", None),
    (422, "GET", "/runs/n%20o", None),
    (404, "GET", "/nothing", None),
    (405, "DELETE", "/runs", None),
    (422, "GET", "/runs?status=done", None),
    (422, "GET", "/runs?limit=501", None),
    (422, "GET", "/runs?limit=1&limit=2", None),
    (422, "GET", "/runs?colour=red", None),
    (400, "POST", "/runs", b"{"),
    (422, "POST", "/runs", b"{}"),
    (422, "POST", "/runs", b'{"agent": "nobody", "input": "x"}'),
    (422, "POST", "/runs", b'{"agent": "triager", "input": "x", "executor": "none"}'),
    (422, "POST", "/runs", b'{"agent": "triager", "input": 1}'),
    (422, "POST", "/runs", b'{"agent": "triager", "input": "x", "colour": "red"}'),
    (400, "POST", "/runs", b'{"agent": "triager", "input": "x", "metadata": {"a": ' + b"[" * 200_000),
    (400, "POST", "/runs", b'{"agent": "triager", "input": "\\ud800"}'),
    (413, "POST", "/runs", b'{"agent": "triager", "input": "' + b"x" * (9 << 20) + b'"}'),
]


@pytest.mark.parametrize(("status", "method", "path", "body"), REFUSED)
async def test_a_wrong_request_is_told_what_is_wrong(status: int, method: str, path: str, body: Any) -> None:
    async with (
        api(MemoryLog()) as served,
        served.client("operator", content_type="application/json") as client,
    ):
        answer = await client.request(method, path, content=body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status
        assert problem["detail"]
        assert problem["request_id"] == answer.headers["x-request-id"]
        assert (await client.get("/runs")).json()["rows"] == []


async def test_what_is_no_json_is_not_read_as_json() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        answer = await client.post("/runs", content=b"agent=triager", headers={"content-type": "text/plain"})
        assert answer.status_code == 415


async def test_the_id_of_a_request_is_kept_if_it_is_one() -> None:
    async with api(MemoryLog()) as served, served.client() as client:
        for given in ("06h0qp0hscd8c0qki6eraodjoc", "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"):
            answer = await client.get("/health", headers={"x-request-id": given})
            assert answer.headers["x-request-id"] == given
        for given in ("", "r-1", "x" * 200):
            answer = await client.get("/health", headers={"x-request-id": given})
            assert re.fullmatch(r"[0-9a-z]{26}", answer.headers["x-request-id"])


async def test_an_answer_that_has_not_changed_is_not_sent_again() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        run_id = await _finished(served.runtime)
        tag = (await client.get(f"/runs/{run_id}/events")).headers["etag"]
        again = await client.get(f"/runs/{run_id}/events", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")


async def test_a_server_is_ready_once_its_projections_have_followed_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LAG_MAX", 0)
    log = MemoryLog()
    async with api(log) as other:
        for _ in range(3):
            await _finished(other.runtime)
    async with api(log) as served, served.client() as client, asyncio.timeout(120):
        while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - the server follows by itself
            await asyncio.sleep(0)


async def test_while_the_log_is_away_callers_are_asked_to_come_again() -> None:
    log = FaultyLog(MemoryLog(), [Outage(1, operation="events.append", duration_s=3600)])
    async with api(log) as served, served.client("operator") as client:
        answer = await client.post("/runs", json={"agent": "triager", "input": "x"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (answer.json()["error"], (await client.get("/ready")).status_code) == ("LogUnavailable", 503)
        assert (await client.get("/health")).status_code == 200
        await log.release()
        assert (await client.get("/ready")).status_code == 200


# --- access ---------------------------------------------------------------------------------------------------------


async def test_the_documents_of_the_formats_are_served() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        assert (await client.get("/asyncapi.json")).json()["asyncapi"] == "3.0.0"
        assert (await client.get("/openapi.json")).json()["openapi"] == "3.1.0"
        assert "$defs" in (await client.get("/schema.json")).json()


def test_whoever_may_only_look_changes_nothing() -> None:
    looks = [route for route in ROUTES if route.role in {None, "viewer"} and route.method != "GET"]
    assert {(route.method, route.path) for route in looks if route.cost != "heavy"} == {
        ("POST", "/session"),
        ("DELETE", "/session"),
    }


async def _signed_in(served: Api, **given: str) -> Any:
    client = served.client()
    answer = await client.post("/session", json=given, headers={"origin": "http://127.0.0.1:7717"})
    return client, answer


async def test_a_browser_signs_in_with_a_token_or_with_a_key_that_serves_once() -> None:
    async with api(MemoryLog()) as served:
        client, answer = await _signed_in(served, token="operator")
        assert (answer.status_code, answer.json()["name"]) == (200, "the-operator")
        cookie = answer.headers["set-cookie"]
        assert re.match(r"foldlog-\w+=[\w-]{43}; ", cookie)
        assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert (await client.get("/me")).json()["via"] == "console"
        key = served.door.identity.one_time_key()
        other, answer = await _signed_in(served, key=key)
        assert (answer.json()["name"], answer.json()["role"]) == ("local", "admin")
        _, answer = await _signed_in(served, key=key)
        assert answer.status_code == 401
        assert (await other.delete("/session")).status_code == 403
        gone = await other.delete("/session", headers={"sec-fetch-site": "same-origin"})
        assert gone.status_code == 204
        assert (await other.get("/me")).status_code == 401


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"sec-fetch-site": "same-origin"}),
        (200, {"origin": "http://127.0.0.1:7717"}),
        (403, {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:7717"}),
        (403, {"sec-fetch-site": "cross-site"}),
        (403, {"sec-fetch-site": "none"}),
        (403, {"origin": "http://127.0.0.1:7718"}),
        (403, {"origin": "http://localhost:7717"}),
        (403, {"origin": "null"}),
        (403, {}),
    ],
)
async def test_a_write_that_another_page_made_the_browser_send_is_refused(
    status: int, headers: dict[str, str]
) -> None:
    async with api(MemoryLog()) as served:
        run_id, _ = await paused(served.runtime)
        client, answer = await _signed_in(served, token="operator")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        async with served.client() as other:
            answer = await other.post(f"/runs/{run_id}/cancel", headers={"cookie": cookie, **headers})
            assert answer.status_code == status
            row = (await client.get(f"/runs/{run_id}")).json()["row"]
            assert row["status"] == ("cancelled" if status == 200 else "paused")


async def test_a_host_that_is_not_ours_is_not_served() -> None:
    async with api(MemoryLog(), allow_hosts=("desk.example",)) as served, served.client("viewer") as client:
        for host in ("evil.example", "evil.example:7717", "10.0.0.1", "127.0.0.1.evil.example", ""):
            assert (await client.get("/me", headers={"host": host})).status_code == 421
        for host in ("localhost:1", "127.0.0.1", "[::1]:7717", "desk.example", "DESK.example:443"):
            assert (await client.get("/me", headers={"host": host})).status_code == 200


async def test_whoever_is_let_in_without_a_token_is_local_and_other_pages_stay_outside() -> None:
    async with api(MemoryLog(), no_auth=True) as served, served.client() as client:
        assert (await client.get("/me")).json()["name"] == "local"
        asked = {"agent": "triager", "input": "x"}
        assert (await client.post("/runs", json=asked)).status_code == 201
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}):
            assert (await client.post("/runs", json=asked, headers=headers)).status_code == 403
    with pytest.raises(ConfigError, match="loopback"):
        async with api(MemoryLog(), no_auth=True, host="0.0.0.0"):
            pass


async def test_who_only_reads_is_a_viewer_whatever_the_token() -> None:
    async with api(MemoryLog(), read_only=True) as served, served.client("admin") as client:
        assert (await client.get("/me")).json()["role"] == "viewer"
        assert (await client.post("/runs", json={"agent": "triager", "input": "x"})).status_code == 403


async def test_a_proxy_names_the_user_if_it_is_one_that_is_trusted() -> None:
    named = {"X-Forwarded-User": "eva", "X-Forwarded-Role": "operator", "sec-fetch-site": "same-origin"}
    async with api(MemoryLog(), trust_proxies=("127.0.0.0/8",)) as served, served.client() as client:
        assert (await client.get("/me", headers=named)).json()["name"] == "eva"
        asked = {"agent": "triager", "input": "x"}
        assert (await client.post("/runs", json=asked, headers=named)).status_code == 201
        assert (await client.get("/me", headers=named | {"X-Forwarded-Role": "root"})).status_code == 403
    async with api(MemoryLog(), trust_proxies=("10.0.0.0/8",)) as served, served.client() as client:
        assert (await client.get("/me", headers=named)).status_code == 401


async def test_only_listed_origins_may_call_and_only_with_a_token() -> None:
    origin = {"origin": "https://app.example"}
    async with api(MemoryLog(), allow_origins=("https://app.example",)) as served:
        async with served.client("operator") as client:
            answer = await client.post("/runs", json={"agent": "triager", "input": "x"}, headers=origin)
            assert answer.status_code == 201
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "access-control-allow-credentials" not in answer.headers
            other = await client.get("/me", headers={"origin": "https://evil.example"})
            assert "access-control-allow-origin" not in other.headers
        async with served.client() as client:
            asked = await client.options("/runs", headers=origin)
            assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (
                204,
                origin["origin"],
            )


async def test_answers_are_not_kept_or_guessed_by_browsers() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        headers = (await client.get("/runs")).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


class StillClock(SystemClock):
    """A clock whose wall time stands still, so that no rate is filled up while a test is slow."""

    def now(self) -> float:
        return 1_000_000.0


async def test_sign_ins_and_writes_have_their_rates() -> None:
    async with api(MemoryLog(clock=StillClock())) as served, served.client("operator") as client:
        answers = [(await client.post("/session", json={"token": "wrong"})).status_code for _ in range(11)]
        assert answers == [401] * 10 + [429]
        wait = (await client.post("/session", json={"token": "operator"})).headers["retry-after"]
        assert 1 <= int(wait) <= 60
        answers = [(await client.post("/runs/x/pause")).status_code for _ in range(121)]
        assert answers == [404] * 120 + [429]
        async with served.client("admin") as other:
            assert (await other.post("/runs/x/pause")).status_code == 404


async def test_the_api_can_be_behind_a_proxy_that_keeps_a_prefix() -> None:
    async with api(MemoryLog(), base_path="/tools/foldlog") as served, served.client("viewer") as client:
        assert (await client.get("http://127.0.0.1:7717/tools/foldlog/api/v1/me")).status_code == 200
        assert (await client.get("/me")).status_code == 404
    for wrong in ("foldlog", "/foldlog/", "/a b"):
        with pytest.raises(ConfigError, match="--base-path"):
            async with api(MemoryLog(), base_path=wrong):
                pass


async def test_every_body_and_answer_is_json_of_its_struct() -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        for path in ("/runs", "/approvals", "/me", "/runs/counts"):
            answer = await client.get(path)
            assert answer.headers["content-type"] == "application/json"
            json.loads(answer.content)
