"""Tokens in the log (W62), keys of requests (W61), answers without words (W58), and the door as strangers try it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from foldlog.adapters.console.table import ROUTES
from foldlog.eventlog import ConfigError, MemoryLog
from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.commits import decode
from foldlog.eventlog.events import MessageQueued
from foldlog.eventlog.faults import FaultyLog, StaleRead
from foldlog.runtime import Runtime
from foldlog.runtime.burying.retention import Retention, erase_due
from foldlog.runtime.shared.access_tokens import AccessTokens
from foldlog.runtime.shared.kept_answers import KEPT_S
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.api import Api, api, bearer, paused


async def test_a_token_is_shown_once_and_lets_in_until_it_is_revoked_at_every_server() -> None:
    log = MemoryLog()
    async with api(log) as one, api(log) as two, one.client("admin") as admin:
        issued = await admin.post("/tokens", json={"name": "bo", "role": "operator"})
        assert issued.status_code == 201
        token = issued.json()["token"]
        assert re.fullmatch(r"fl_[\w-]{43}", token)
        listed = await admin.get("/tokens")
        assert token not in listed.text
        (row,) = [row for row in listed.json() if row["source"] == "log"]
        assert row["used_at"] is None
        assert {each["name"]: each["used_at"] is not None for each in listed.json()}["the-admin"]
        assert (row["name"], row["role"], row["by"]) == ("bo", "operator", "the-admin")
        again = await admin.post("/tokens", json={"name": "bo", "role": "admin"})
        assert (again.status_code, again.json()["error"]) == (422, "ConfigError")
        async with two.client() as bo:
            bo.headers["authorization"] = f"Bearer {token}"
            await _until_answered(bo, 200)
            assert (await bo.get("/me")).json()["name"] == "bo"
            assert (await bo.get("/tokens")).status_code == 403
            browser = two.client()
            signed = await browser.post(
                "/session", json={"token": token}, headers={"sec-fetch-site": "same-origin"}
            )
            assert signed.status_code == 200
            assert (await admin.delete("/tokens/bo")).json() == {"revoked": True}
            await _until_answered(bo, 401)
            assert (await browser.get("/me")).status_code == 401  # the session ends with its token
        assert (await admin.delete("/tokens/bo")).status_code == 404
    written = b"".join([stored.data async for stored in log.events.read(AccessTokens(log)._subject)])
    assert token.encode() not in written
    assert hashlib.sha256(token.encode()).hexdigest().encode() in written


async def _until_answered(client: Any, status: int) -> None:
    """Ask until the server has heard of what another one has stored."""
    async with asyncio.timeout(120):
        while (await client.get("/me")).status_code != status:  # noqa: ASYNC110 - it is the server that hears of it
            await asyncio.sleep(0)


async def test_a_token_that_has_expired_lets_nobody_in_and_may_be_replaced() -> None:
    log = MemoryLog()
    tokens = AccessTokens(log)
    old = await tokens.issue("bo", "viewer", expires_s=1e-6)
    async with api(log) as served, served.client() as client:
        assert (await client.get("/me", headers={"authorization": f"Bearer {old.token}"})).status_code == 401
        new = await tokens.issue("bo", "viewer", expires_s=None)
        client.headers["authorization"] = f"Bearer {new.token}"
        await _until_answered(client, 200)
    for wrong in (-1.0, 0.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            await tokens.issue("eve", "viewer", expires_s=wrong)
    with pytest.raises(ConfigError):
        await tokens.issue("a b", "viewer")


async def test_two_who_issue_a_token_to_one_holder_at_once_make_one() -> None:
    log = MemoryLog()
    both = await asyncio.gather(
        *(AccessTokens(log).issue("bo", "viewer") for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in both) == ["ConfigError", "Issued"]


async def test_a_stale_read_hides_no_token_from_who_revokes_it_and_keeps_none_that_is_gone() -> None:
    log = MemoryLog()
    await AccessTokens(log).issue("bo", "admin")
    stale = FaultyLog(log, [StaleRead(1, "events.read", 0)])
    revoking = asyncio.create_task(AccessTokens(stale).revoke("bo"))
    await _proving(stale)
    assert await revoking
    assert await AccessTokens(log).read() == {}
    (granted, _withdrawn) = [each.position async for each in log.events.read(AccessTokens(log)._subject)]
    behind = FaultyLog(log, [StaleRead(1, "events.read", granted)])
    issuing = asyncio.create_task(AccessTokens(behind).issue("bo", "viewer"))
    await _proving(behind)
    assert (await issuing).granted.role == "viewer"


async def _proving(log: FaultyLog) -> None:
    """Let the reads of a stale replica catch up once somebody has asked for the last position."""
    async with asyncio.timeout(120):
        while not log.operations["events.last_position"]:  # noqa: ASYNC110 - counted within the log
            await asyncio.sleep(0)
    assert [*log.fired]
    await log.release()


async def test_sign_ins_are_listed() -> None:
    async with api(MemoryLog()) as served, served.client("admin") as client:
        for token in ("operator", "wrong"):
            await client.post("/session", json={"token": token})
        last, first = (await client.get("/access-log")).json()
        assert (last["refused"], first["name"]) == (True, "the-operator")
        assert "wrong" not in str(last)


# --- keys of requests -----------------------------------------------------------------------------------------------


async def test_a_request_that_is_repeated_with_its_key_gets_the_first_answer_and_does_nothing() -> None:
    log = MemoryLog()
    async with api(log) as one, api(log) as two:
        run_id, approval = await paused(one.runtime)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/runs", {"agent": "triager", "input": "x"}),
            (f"/runs/{run_id}/messages", {"content": "Hurry"}),
            (f"/runs/{run_id}/pause", {}),
            (f"/runs/{run_id}/resume", {}),
            (f"/approvals/{approval}/decision", {"decision": "rejected"}),
            (f"/runs/{run_id}/cancel", {}),
        ]
        async with one.client("operator") as here, two.client("operator") as there:
            for number, (path, body) in enumerate(asked):
                key = {"idempotency-key": f"k{number}"}
                first = await here.post(path, json=body, headers=key)
                assert first.status_code in {200, 201}, first.text
                for again in (
                    await here.post(path, json=body, headers=key),
                    await there.post(path, json=body, headers=key),
                ):
                    assert (again.status_code, again.content) == (first.status_code, first.content)
                    assert again.headers["idempotency-replayed"] == "true"
                other = await here.post(path, json=body | {"colour": 1}, headers=key)
                assert other.status_code == 422
        assert await _queued(one.runtime, run_id) == ["Hurry"]
        assert len(await one.runtime.list_runs()) == 2


class LaterClock(SystemClock):
    """A clock that can be put forward."""

    later_s = 0.0

    def now(self) -> float:
        return super().now() + self.later_s


async def _kept(log: MemoryLog) -> int:
    return len(
        [each for shard in range(log.events.shards) async for each in log.events.heads(shard, "answer")]
    )


async def test_an_answer_is_kept_for_a_day_and_a_request_of_later_does_nothing_twice() -> None:
    clock = LaterClock()
    log = MemoryLog(shards=2, clock=clock)
    async with api(log) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/runs", {"agent": "triager", "input": "x"}),
            (f"/runs/{run_id}/messages", {"content": "Hurry"}),
        ]
        first = [
            await client.post(path, json=body, headers={"idempotency-key": f"k{number}"})
            for number, (path, body) in enumerate(asked)
        ]
        for later_s, replayed in ((KEPT_S - 60, "true"), (KEPT_S + 60, None), (KEPT_S + 60, "true")):
            clock.later_s = later_s
            for number, (path, body) in enumerate(asked):
                again = await client.post(path, json=body, headers={"idempotency-key": f"k{number}"})
                assert again.headers.get("idempotency-replayed") == replayed
                assert again.json().get("run_id") == first[number].json().get("run_id")
        assert await _kept(log) == len(asked)
        index = await served.runtime.index()
        await erase_due(log, index, Retention())
        assert await _kept(log) == len(asked)
        clock.later_s += KEPT_S + 60
        assert (await erase_due(log, index, Retention())).swept >= len(asked)
        assert await _kept(log) == 0
        assert await _queued(served.runtime, run_id) == ["Hurry"]
        assert len(await served.runtime.list_runs()) == 2


async def _queued(runtime: Runtime, run_id: str) -> list[str]:
    subject = await runtime.locate(run_id)
    events = [e async for stored in runtime.log.events.read(subject) for e in decode(stored.data).events]
    return [event.content for event in events if isinstance(event, MessageQueued)]


async def test_equal_requests_at_once_at_two_servers_are_carried_out_once() -> None:
    log = MemoryLog()
    async with api(log) as one, api(log) as two:
        clients = [served.client("operator", idempotency_key="k") for served in (one, two)]
        asked = [client.post("/runs", json={"agent": "triager", "input": "x"}) for client in clients * 4]
        answers = await asyncio.gather(*asked)
        assert len({answer.content for answer in answers}) == 1
        assert len(await one.runtime.list_runs()) == 1


async def test_equal_messages_at_once_at_two_servers_are_queued_once() -> None:
    log = MemoryLog()
    async with api(log) as one, api(log) as two:
        run_id, _ = await paused(one.runtime)
        clients = [served.client("operator", idempotency_key="k") for served in (one, two)]
        path = f"/runs/{run_id}/messages"
        answers = await asyncio.gather(*(each.post(path, json={"content": "Hurry"}) for each in clients))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert await _queued(one.runtime, run_id) == ["Hurry"]
        other = one.client("admin", idempotency_key="k")  # the same key of another holder is another request
        assert (await other.post(path, json={"content": "Hurry"})).status_code == 200
        assert await _queued(two.runtime, run_id) == ["Hurry", "Hurry"]


async def test_a_server_that_dies_in_a_request_leaves_it_done_once_or_not_at_all() -> None:
    """It is cut off after each number of turns of the loop; then the request is repeated at another server."""
    done = 0
    for turns in range(0, 90, 3):
        log = MemoryLog()
        async with api(log) as served:
            run_id, _ = await paused(served.runtime)
            async with served.client("operator", idempotency_key="k") as client:
                asking = asyncio.create_task(
                    client.post(f"/runs/{run_id}/messages", json={"content": "Hurry"})
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            done += len(await _queued(served.runtime, run_id))
        async with api(log) as other, other.client("operator", idempotency_key="k") as client:
            again = await client.post(f"/runs/{run_id}/messages", json={"content": "Hurry"})
            assert again.status_code == 200
            assert await _queued(other.runtime, run_id) == ["Hurry"]
    assert done > 0


async def test_without_a_key_each_message_is_one_of_its_own() -> None:
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        for key in ({}, {}, {"idempotency-key": "a"}, {"idempotency-key": "b"}):
            await client.post(f"/runs/{run_id}/messages", json={"content": "Hurry"}, headers=key)
        assert await _queued(served.runtime, run_id) == ["Hurry"] * 4


async def test_a_kept_answer_repeats_no_words_of_the_run() -> None:
    """An answer is kept in clear, so of a sealed namespace it would be a leak (W58)."""
    log = MemoryLog()
    async with api(log) as served, served.client("operator", idempotency_key="k") as client:
        _run, approval = await paused(served.runtime)
        path, words = f"/approvals/{approval}/decision", "as Ada asked"
        for replayed in (None, "true"):
            answer = await client.post(path, json={"decision": "approved", "note": words})
            assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (200, replayed)
        shards = range(log.events.shards)
        kept = [each.data for shard in shards async for each in log.events.heads(shard, "answer")]
        assert len(kept) == 1
        assert words.encode() not in kept[0]


async def test_an_answer_with_a_secret_is_not_kept() -> None:
    async with api(MemoryLog()) as served, served.client("admin", idempotency_key="k") as client:
        _run, approval = await paused(served.runtime)
        asked = await client.post(f"/approvals/{approval}/tokens", json={})
        made = await client.post("/tokens", json={"name": "bo", "role": "viewer"})
        assert (asked.status_code, made.status_code) == (422, 422)


# --- strangers ------------------------------------------------------------------------------------------------------

DAY_EXAMPLES, NIGHTLY_EXAMPLES = 30, 2_000
"""Each is ten requests to one server."""
SHARDS = 8
JUNK = st.text(st.characters(codec="utf-8"), max_size=20)
WORDS = st.sampled_from(
    [
        "agent",
        "input",
        "decision",
        "approved",
        "action",
        "cancel",
        "ids",
        "filter",
        "at",
        "a",
        "b",
        "limit",
        "status",
    ]
)
BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | JUNK | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | JUNK, inner, max_size=5),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=DAY_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_is_a_defect_of_the_server_and_none_without_a_token_does_anything(data: Any) -> None:
    asyncio.run(_try(data))


@pytest.mark.nightly
@pytest.mark.parametrize("shard", range(SHARDS))
@given(data=st.data())
@settings(
    max_examples=NIGHTLY_EXAMPLES // SHARDS,
    deadline=None,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_of_twenty_thousand_is_a_defect_of_the_server(data: Any, shard: int) -> None:
    asyncio.run(_try(data))


async def _try(data: Any) -> None:
    async with api(MemoryLog()) as served:
        roles = data.draw(st.sampled_from([["", "viewer"], ["operator", "admin"]]))
        for _ in range(10):
            await _ask(served, data, data.draw(st.sampled_from(roles)))
        if "" in roles:
            assert await served.runtime.list_runs() == []
            assert await AccessTokens(served.runtime.log).read() == {}


async def _ask(served: Api, data: Any, role: str) -> None:
    routes = [route for route in ROUTES if route.path not in {"/stream", "/doctor"}]
    route = data.draw(st.sampled_from(routes))
    path = re.sub(r"\{\w+(:path)?\}", lambda _: _quoted(data.draw(JUNK)), route.path)
    params = data.draw(st.dictionaries(WORDS | JUNK, JUNK, max_size=3))
    body = data.draw(st.binary(max_size=40) | BODIES.map(_encoded))
    names = st.sampled_from(["x-request-id", "idempotency-key", "if-none-match", "origin", "content-type"])
    printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9)
    given_ = data.draw(st.dictionaries(names, printable))
    headers = {"content-type": "application/json", **given_, **(bearer(role) if role else {})}
    async with served.client() as client:
        answer = await client.request(route.method, path, params=params, content=body, headers=headers)
    assert answer.status_code < 500, (route.method, path, answer.text)
    assert answer.headers["x-request-id"]
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


def _quoted(text: str) -> str:
    return quote(text, safe="") or "x"


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


async def test_nothing_that_a_token_was_sent_in_is_told_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with api(MemoryLog()) as served, served.client("operator") as client:
        run_id, _ = await paused(served.runtime)
        key = served.door.identity.one_time_key()
        answers = [
            await client.get("/me"),
            await client.get(f"/runs/{run_id}"),
            await client.post("/session", json={"key": key}),
            await client.post("/session", json={"token": "operator-secret"}),
        ]
    for secret in (key, "operator-secret"):
        assert secret not in caplog.text
        assert all(secret not in answer.text for answer in answers)


async def test_text_of_a_model_stays_text() -> None:
    nasty = "</script><img src=x onerror=alert(1)>\u202e[x](javascript:alert(1))" + "A" * 1000
    async with api(MemoryLog()) as served, served.client("operator") as client:
        started = await client.post("/runs", json={"agent": "triager", "input": nasty})
        run_id = started.json()["run_id"]
        await served.runtime.get_run(run_id).result()
        shown = await client.get(f"/runs/{run_id}")
        assert shown.json()["input"] == nasty
        assert shown.headers["content-type"] == "application/json"
