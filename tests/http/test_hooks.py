"""Webhooks, signals and callbacks over HTTP: one run for each delivery, and a plain answer to everything else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import time
from typing import Any

import pytest
from foldlog.adapters.http import hooks_app
from foldlog.eventlog import ConfigError, MemoryLog
from foldlog.eventlog.faults import FaultyLog, Outage
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, WorkflowRun, WorkflowTable, tool, workflow
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.http.door import SCHEMES, Headers, ask, door, runs, signed, tables, triager
from tests.replay.scenarios import ShiftedClock

BODY = b'{"id": "d1", "event_id": "d1", "text": "It is broken"}'


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_delivery_starts_one_run_however_often_it_comes(scheme: str) -> None:
    log = MemoryLog()
    async with door(log) as (app, runtime):
        first = await ask(app, f"/hooks/{scheme}", BODY, signed(scheme, BODY))
        again = await ask(app, f"/hooks/{scheme}", BODY, signed(scheme, BODY))
        run_id = first.json["run_id"]
        assert (first.status, first.json["is_new"]) == (202, True)
        assert (again.status, again.json) == (200, {"run_id": run_id, "is_new": False})
        assert (await runtime.get_run(run_id).result()).output == "triaged"
        assert (await runtime.get_run(run_id).history())[0].content == "It is broken"
    async with door(log) as (later, runtime):
        after = await ask(later, f"/hooks/{scheme}", BODY, signed(scheme, BODY))
        assert (after.status, after.json["run_id"]) == (200, run_id)
        assert await runs(runtime) == [run_id]


async def test_a_hook_is_not_said_to_be_gone_because_its_run_is() -> None:
    paid = {"verify": "github", "secret": "secret://GITHUB", "signal": "paid", "run": "${body.run}"}
    async with door(MemoryLog(), hooks=tables() | {"paid": paid}) as (app, runtime):
        first = await ask(app, "/hooks/github", BODY, signed("github", BODY))
        run_id = first.json["run_id"]
        await runtime.get_run(run_id).result()
        await runtime.delete(run_id)
        again = await ask(app, "/hooks/github", BODY, signed("github", BODY))
        assert (again.status, again.json) == (200, {"run_id": run_id, "is_new": False})
        body = json.dumps({"run": run_id}).encode()
        sent = await ask(app, "/hooks/paid", body, signed("github", body))
        assert (sent.status, f"run {run_id} was deleted" in sent.json["detail"]) == (404, True)


@tool(effect="unsafe")
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@workflow(name="pays")
async def pays(run: WorkflowRun, to: str) -> str:
    return str(await run.call(pay, to=to))


STEPS = [{"id": "pay", "tool": "pay", "arguments": {"to": "${input.to}"}}]
TABLE = {"kind": "workflow", "name": "pays", "steps": STEPS, "output": "${pay.result}"}


@pytest.mark.parametrize(
    "form", [pays, WorkflowTable.from_config(TABLE, Registry(tools=[pay]))], ids=["function", "table"]
)
async def test_a_delivery_starts_a_workflow_with_its_arguments_and_a_wrong_one_starts_nothing(
    form: Any,
) -> None:
    hook = {
        "agent": "pays",
        "verify": "github",
        "secret": "secret://GITHUB",
        "input": {"to": "${body.to}"},
        "executor": "local",
    }
    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[form])) as runtime:
        app = hooks_app(runtime, hooks={"github": hook})
        body = b'{"to": "ann"}'
        first = await ask(app, "/hooks/github", body, signed("github", body))
        assert (first.status, (await ask(app, "/hooks/github", body, signed("github", body))).status) == (
            202,
            200,
        )
        assert (await runtime.get_run(first.json["run_id"]).result()).output == "paid ann"
        without = b"{}"
        assert (
            await ask(app, "/hooks/github", without, signed("github", without, delivery="d2"))
        ).status == 422
        assert await runs(runtime) == [first.json["run_id"]]


async def test_the_run_of_a_delivery_has_its_id_and_those_of_the_request() -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for given, kept in [("r-1", "r-1"), ("no\x80text", ""), ("x" * 200, "")]:
        async with door(MemoryLog()) as (app, runtime):
            ids = {"X-Request-Id": given, "traceparent": trace if kept else "00-zz"}
            await ask(app, "/hooks/github", BODY, signed("github", BODY) | ids)
            (row,) = await runtime.list_runs()
            assert row.trigger is not None
            assert (row.trigger.kind, row.trigger.name, row.trigger.key) == ("hook", "github", "d1")
            assert (row.trigger.request_id, row.trigger.traceparent) == (kept, trace if kept else "")


async def test_eight_senders_of_one_delivery_over_two_servers_start_one_run() -> None:
    log = MemoryLog()
    async with door(log) as (one, runtime), door(log) as (two, _):
        headers = signed("github", BODY)
        asked = [ask(app, "/hooks/github", BODY, headers) for app in (one, two) * 4]
        answers = await asyncio.gather(*asked)
        assert sorted(each.status for each in answers) == [200] * 7 + [202]
        assert {each.json["run_id"] for each in answers} == set(await runs(runtime))


async def test_a_server_that_dies_anywhere_leaves_one_run_for_the_delivery() -> None:
    """The request is cut off after each number of turns of the loop; then it is repeated at another server."""
    headers = signed("standard", BODY)
    for turns in range(0, 60, 2):
        log = MemoryLog()
        async with door(log) as (app, _):
            asking = asyncio.create_task(ask(app, "/hooks/standard", BODY, headers))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with door(log) as (other, runtime):
            again = await ask(other, "/hooks/standard", BODY, headers)
            assert again.status in (200, 202)
            assert await runs(runtime) == [again.json["run_id"]]
    assert again.status == 200  # the last one was stored before it was cut off


async def test_without_an_id_each_delivery_is_one_of_its_own_and_a_key_says_what_is_the_same() -> None:
    hooks = tables()
    del hooks["hmac"]["key"]
    hooks["github"]["key"] = "${body.id}"
    async with door(MemoryLog(), hooks=hooks) as (app, runtime):
        for _ in range(2):
            assert (await ask(app, "/hooks/hmac", BODY, signed("hmac", BODY))).status == 202
        first = await ask(app, "/hooks/github", BODY, signed("github", BODY, delivery="one"))
        again = await ask(app, "/hooks/github", BODY, signed("github", BODY, delivery="two"))
        assert first.json["run_id"] == again.json["run_id"]
        assert len(await runs(runtime)) == 3


async def test_a_delivery_that_was_taken_before_its_template_was_changed_keeps_its_run() -> None:
    log, hooks = MemoryLog(), tables()
    async with door(log) as (app, _):
        first = await ask(app, "/hooks/github", BODY, signed("github", BODY))
    hooks["github"]["input"] = "Look at: ${body.text}"
    async with door(log, hooks=hooks) as (app, _):
        again = await ask(app, "/hooks/github", BODY, signed("github", BODY))
    assert (again.status, again.json["run_id"]) == (200, first.json["run_id"])


def plain(body: bytes = BODY, **changes: str) -> tuple[bytes, Headers]:
    return body, signed("github", body) | {key.replace("_", "-"): value for key, value in changes.items()}


REFUSED: dict[str, tuple[int, str, tuple[bytes, Headers]]] = {
    "an unknown hook": (404, "/hooks/unknown", plain()),
    "an unknown address": (404, "/hooks", plain()),
    "a longer address": (404, "/hooks/github/more", plain()),
    "no signature": (401, "/hooks/github", (BODY, {"Content-Type": "application/json"})),
    "the signature of another scheme": (401, "/hooks/slack", plain()),
    "a form": (415, "/hooks/github", plain(Content_Type="application/x-www-form-urlencoded")),
    "no type": (415, "/hooks/github", (BODY, {"X-Hub-Signature-256": "sha256=00"})),
    "no JSON": (400, "/hooks/github", plain(b"{")),
    "an empty body": (400, "/hooks/github", plain(b"")),
    "a number that is none": (400, "/hooks/github", plain(b'{"text": NaN}')),
    "half a character": (400, "/hooks/github", plain(b'{"text": "\\ud800"}')),
    "bytes that are no text": (400, "/hooks/github", plain(b'{"text": "\xff"}')),
    "a deep body": (400, "/hooks/github", plain(b"[" * 200_000)),
    "a long id": (400, "/hooks/github", plain(X_GitHub_Delivery="x" * 257)),
    "an id that is not text": (400, "/hooks/stripe", (b'{"id": [1]}', {})),
    "too much": (413, "/hooks/github", plain(b'{"text": "' + b"x" * (1 << 20) + b'"}')),
    "a declared length that is too much": (413, "/hooks/github", plain(Content_Length="9" * 30)),
    "a body that lacks a path": (422, "/hooks/github", plain(b'{"title": 1}')),
    "a list": (422, "/hooks/github", plain(b"[1]")),
}


@pytest.mark.parametrize(("status", "path", "request_"), REFUSED.values(), ids=REFUSED)
async def test_a_request_that_cannot_be_taken_says_why_and_starts_nothing(
    status: int, path: str, request_: tuple[bytes, Headers]
) -> None:
    body, headers = request_
    headers = headers or signed("stripe", body)  # now: a signature of five minutes ago is too old
    async with door(MemoryLog()) as (app, runtime):
        answer = await ask(app, path, body, headers)
        assert answer.status == status, answer.body
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == status
        assert answer.json["detail"]
        assert await runs(runtime) == []


@pytest.mark.parametrize("field", ["key", "session"])
async def test_deliveries_whose_name_is_null_are_refused_and_not_taken_for_one(field: str) -> None:
    named = {"named": tables()["github"] | {field: "${body.of.id}"}}
    async with door(MemoryLog(), hooks=named) as (app, runtime):
        for body in (b'{"text": "one", "of": {"id": null}}', b'{"text": "two", "of": {"id": null}}'):
            answer = await ask(app, "/hooks/named", body, signed("github", body))
            assert (answer.status, answer.json["detail"]) == (422, "body.of.id is null")
        assert await runs(runtime) == []


async def test_only_post_is_taken() -> None:
    async with door(MemoryLog()) as (app, _):
        answer = await ask(app, "/hooks/github", b"", {}, method="GET")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert (await ask(app, "/healthz", b"", {}, method="GET")).body == b"ok\n"
        assert (await ask(app, "/readyz", b"", {}, method="GET")).body == b"ok\n"


async def test_while_the_log_is_away_the_sender_is_asked_to_repeat_itself() -> None:
    log = FaultyLog(
        MemoryLog(), [Outage(2, duration_s=3600)]
    )  # 1: whether its content is sealed, at the opening
    async with door(log) as (app, _):
        answer = await ask(app, "/hooks/github", BODY, signed("github", BODY))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["error"] == "LogUnavailable"
        assert (await ask(app, "/readyz", b"", {}, method="GET")).status == 503
        assert (await ask(app, "/healthz", b"", {}, method="GET")).status == 200
        await log.release()
        assert (await ask(app, "/hooks/github", BODY, signed("github", BODY))).status == 202


async def test_a_hook_takes_no_more_than_its_rate_of_signed_requests() -> None:
    hooks = tables()
    hooks["github"]["rate"] = "2/h"
    async with door(MemoryLog(), hooks=hooks) as (app, runtime):
        for _ in range(5):
            assert (
                await ask(app, "/hooks/github", BODY, plain(X_Hub_Signature_256="sha256=00")[1])
            ).status == 401
        headers = [signed("github", BODY, delivery=str(number)) for number in range(3)]
        answers = [await ask(app, "/hooks/github", BODY, each) for each in headers]
        assert [each.status for each in answers] == [202, 202, 429]
        assert 1700 < int(answers[2].headers["retry-after"]) <= 1800
        assert len(await runs(runtime)) == 2


async def test_slack_gets_its_challenge_back() -> None:
    body = b'{"type": "url_verification", "challenge": "3eZb"}'
    async with door(MemoryLog()) as (app, _):
        assert (await ask(app, "/hooks/slack", body, signed("slack", body))).json == {"challenge": "3eZb"}


async def test_templates_fill_the_input_and_the_session() -> None:
    hooks = {"github": tables()["github"]}
    hooks["github"] |= {
        "input": {"title": "${body.issue.title}", "labels": ["${body.issue.labels[1].name}"], "n": 1},
        "session": "${body.repository.full_name}/${body.issue.number}",
        "priority": "background",
    }
    content = {
        "issue": {"title": "a", "number": 7, "labels": [{}, {"name": "bug"}]},
        "repository": {"full_name": "o/r"},
    }
    body = json.dumps(content).encode()
    async with door(MemoryLog(), hooks=hooks) as (app, runtime):
        answer = await ask(app, "/hooks/github", body, signed("github", body))
        state = await runtime.get_run(answer.json["run_id"]).state()
        assert state.submitted is not None
        assert json.loads(state.submitted.input) == {"title": "a", "labels": ["bug"], "n": 1}
        assert (state.submitted.session, state.priority) == ("o/r/7", "background")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"secrets": "secret://GITHUB"}, "unknown key 'secrets'; did you mean 'secret'"),
    "a secret as text": ({"secret": "hush"}, "secret"),
    "a secret that is not set": ({"secret": "secret://NOWHERE"}, "NOWHERE is not set"),
    "an unknown scheme": ({"verify": "none"}, "verify"),
    "an unknown agent": ({"agent": "triagr"}, "no agent 'triagr'; did you mean 'triager'"),
    "no input": ({"input": None}, "needs its input"),
    "agent and signal": ({"signal": "paid"}, "either an agent"),
    "a signal without a run": ({"agent": None, "input": None, "signal": "paid"}, "needs its run"),
    "a signal with an input": ({"agent": None, "signal": "paid", "run": "${body.r}"}, "has no 'input'"),
    "a path of another root": ({"input": "${env.HOME}"}, "must begin with 'body'"),
    "an expression": ({"input": "${body.a + 1}"}, "is not a path"),
    "an open path": ({"input": "${body.a"}, "without its }"),
    "a wrong priority": ({"priority": 10}, "priority: a priority is urgent"),
    "a signal with a priority": (
        {"agent": None, "input": None, "signal": "paid", "run": "${body.r}", "priority": 1},
        "has no 'priority'",
    ),
    "a wrong rate": ({"rate": "10"}, "a rate is a number"),
    "an unknown executor": ({"executor": "locl"}, "executor"),
    "a table of another scheme": ({"hmac": {"header": "X-Signature"}}, 'only verify = "hmac"'),
}


@pytest.mark.parametrize(("changes", "problem"), WRONG.values(), ids=WRONG)
async def test_a_hook_that_cannot_work_is_refused_at_the_start(changes: dict[str, Any], problem: str) -> None:
    given = {key: value for key, value in (tables()["github"] | changes).items() if value is not None}
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[triager()])) as runtime:
        with pytest.raises(ConfigError, match=problem) as refused:
            hooks_app(runtime, hooks={"github": given})
        assert "[hooks.github]" in str(refused.value)
        with pytest.raises(ConfigError, match="is named by letters"):
            hooks_app(runtime, hooks={"a/b": tables()["github"]})
        with pytest.raises(ConfigError, match="sha256"):
            hooks_app(runtime, hooks={}, tokens={"bank": {"sha256": "none"}})


# --- signals and callbacks --------------------------------------------------------------------------------------------

TOKENS = {name: "fl_" + name * 10 for name in ("bank", "guest")}
ROLES = {
    name: {"sha256": hashlib.sha256(token.encode()).hexdigest(), "role": role}
    for (name, token), role in zip(TOKENS.items(), ("operator", "viewer"), strict=True)
}
JSON = {"Content-Type": "application/json"}


@contextlib.asynccontextmanager
async def waiting(tmp_path: Any, **hooks: Any) -> Any:
    """A run that waits for a signal, then for a callback; yields the application, the run and its tokens."""
    told: list[str] = []

    @tool(effect="pure")
    async def chase(context: ToolContext) -> list[Any]:
        """Wait twice."""
        callback = await context.callback("scan")
        told.append(callback.token)
        paid = await context.wait_for("paid")
        scan = await callback.outcome()
        return [paid and [paid.data, paid.by], scan and scan.data]

    turns = [{"tool_calls": [{"id": "1", "name": "chase", "arguments": {}}]}, {"text": "done"}]
    (tmp_path / "chase.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("chaser", model="scripted:chase.json", tools=[chase])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        async for event in run.stream():
            if event.type == "wait_started":
                break
        yield hooks_app(runtime, hooks=hooks, tokens=ROLES), run, told


def bearer(name: str, **more: str) -> Headers:
    return (
        JSON | {"Authorization": f"Bearer {TOKENS[name]}"} | {k.replace("_", "-"): v for k, v in more.items()}
    )


async def test_a_signal_needs_a_token_and_a_callback_is_one(tmp_path: Any) -> None:
    async with waiting(tmp_path) as (app, run, told):
        path = f"/v1/runs/{run.run_id}/signals/paid"
        for headers, status in (
            (JSON, 401),
            (JSON | {"Authorization": "Bearer fl_wrong"}, 401),
            (JSON | {"Authorization": f"Basic {TOKENS['bank']}"}, 401),
            (bearer("guest"), 403),
            (bearer("bank", Idempotency_Key="k" * 257), 400),
            (bearer("bank", Content_Type="text/plain"), 415),
        ):
            assert (await ask(app, path, b'{"eur": 4}', headers)).status == status
        assert (await ask(app, path, b"{", bearer("bank"))).status == 400
        assert (await ask(app, path, b'"' + b"x" * (256 << 10) + b'"', bearer("bank"))).status == 413
        assert (await ask(app, "/v1/runs/none/signals/paid", b"1", bearer("bank"))).status == 404
        assert (await ask(app, f"/v1/runs/{run.run_id}/signals/a b", b"1", bearer("bank"))).status == 422
        wrong = f"/v1/callbacks/{told[0][:-4]}AAAA"
        begin, run_id, revision, secret = told[0].split(".")
        later = f"/v1/callbacks/{begin}.{run_id}.{int(revision) + 1_000}.{secret}"
        for void in ("/v1/callbacks/nothing", wrong, later):
            assert (await ask(app, void, b"1", JSON)).status == 410
        first = await ask(app, f"/v1/callbacks/{told[0]}", b'{"page": 1}', JSON)
        again = await ask(app, f"/v1/callbacks/{told[0]}", b'{"page": 2}', JSON)
        assert [(each.status, each.json) for each in (first, again)] == [
            (202, {"is_new": True}),
            (200, {"is_new": False}),
        ]
        keyed = bearer("bank", Idempotency_Key="evt_17")
        assert (await ask(app, path, b'{"eur": 4}', keyed)).json == {"number": 2, "is_new": True}
        assert (await ask(app, path, b'{"eur": 4}', keyed)).json == {"number": 2, "is_new": False}
        await run.result()
        assert (await run.history())[2].content == '[[{"eur":4},"bank"],{"page":1}]'
        assert (await ask(app, path, b"1", bearer("bank"))).status == 409
        assert (await ask(app, f"/v1/callbacks/{told[-1]}", b"1", JSON)).status in (200, 410)


async def test_an_answer_to_a_callback_that_does_not_fit_is_422_and_one_that_does_is_taken_after_it() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    @workflow
    async def scan(run: WorkflowRun) -> str:
        answer = await run.callback("scan", lambda made: told.put(made.token), schema={"type": "integer"})
        return str(answer and answer.data)

    async with Runtime.open(log=MemoryLog(), registry=Registry(workflows=[scan])) as runtime:
        run = await runtime.start(scan, "")
        app, token = hooks_app(runtime, hooks={}, tokens=ROLES), await told.get()
        answers = [await ask(app, f"/v1/callbacks/{token}", body, JSON) for body in (b'"three"', b"3")]
        assert [each.status for each in answers] == [422, 202]
        assert (await run.result()).output == "3"


async def test_only_the_holder_of_a_token_is_told_that_the_time_of_its_callback_is_over(
    tmp_path: Any,
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    clock, path = ShiftedClock(), tmp_path / "scan.json"
    call = {"id": "1", "name": "scan", "arguments": {}}
    path.write_text(json.dumps({"turns": [{"tool_calls": [call]}, {"text": "done"}]}))

    @tool(effect="idempotent")
    async def scan(context: ToolContext) -> str:
        """Have a page scanned."""
        made = await context.callback("scan", timeout_s=3600)
        await told.put(made.token)
        return str(await made.outcome())

    agent = Agent("scanner", model=f"scripted:{path}", tools=[scan])
    async with Runtime.open(log=MemoryLog(clock=clock), registry=Registry(agents=[agent])) as runtime:
        await runtime.start(agent, "Scan it.")
        app, token = hooks_app(runtime, hooks={}, tokens=ROLES), await told.get()
        clock.ahead_s = 3601
        late, strange = [
            await ask(app, f"/v1/callbacks/{each}", b"3", JSON) for each in (token, f"{token[:-4]}AAAA")
        ]
    assert (late.status, strange.status) == (410, 410)
    assert "the callback's time is over since " in late.json["detail"]
    assert "ask for a new token where this one came from" in late.json["detail"]
    assert strange.json["detail"] == "this callback is not there, is over, or was answered"


async def test_a_hook_sends_a_signal_once_for_each_delivery(tmp_path: Any) -> None:
    paid = {
        "verify": "standard",
        "secret": "secret://STANDARD",
        "signal": "paid",
        "run": "${body.run}",
        "data": "${body.sum}",
    }
    async with waiting(tmp_path, paid=paid) as (app, run, told):
        body = json.dumps({"run": run.run_id, "sum": 40}).encode()
        first = await ask(app, "/hooks/paid", body, signed("standard", body))
        again = await ask(app, "/hooks/paid", body, signed("standard", body))
        assert [each.status for each in (first, again)] == [202, 200]
        nobody = b'{"run": "none", "sum": 40}'
        assert (await ask(app, "/hooks/paid", nobody, signed("standard", nobody))).status == 404
        await ask(app, f"/v1/callbacks/{told[0]}", b"null", JSON)
        await run.result()
        assert (await run.history())[2].content == '[[40,"hook:paid"],null]'


async def test_the_application_can_be_mounted_in_one_of_yours() -> None:
    async with door(MemoryLog()) as (app, _):
        yours = Starlette(routes=[Mount("/agents", app)])
        assert (await ask(yours, "/agents/hooks/github", BODY, signed("github", BODY))).status == 202


# --- anything at all --------------------------------------------------------------------------------------------------

_PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"0",
    b"\xff",
    b"\x00",
    b"text",
    b"null",
    b"\\u",
    b"1e999",
    b" ",
]
_VALUES = [
    "",
    "0",
    "v1,",
    "sha256=",
    "application/json",
    "\xff",
    "x" * 300,
    "\x7f",
    "Bearer",
    "t=1,v1=1",
    "=",
]


def _fuzzed(dice: random.Random, number: int, at: float) -> tuple[str, bytes, Headers, bool]:
    """Return a request of a sender at a time, and whether it is as its sender signed it."""
    scheme = dice.choice(SCHEMES)
    body = BODY if dice.random() < 0.5 else b"".join(dice.choices(_PIECES, k=dice.randrange(12)))
    try:
        headers = signed(scheme, body, at=at, delivery=f"d{number}")
    except UnicodeDecodeError:  # the library's sender signs text only
        scheme, headers = "github", signed("github", body, at=at, delivery=f"d{number}")
    path, sound = f"/hooks/{scheme}", True
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        match dice.randrange(5):
            case 0:
                name = dice.choice(list(headers))
                headers[name], sound = dice.choice(_VALUES), False
            case 1:
                headers.pop(dice.choice(list(headers)), None)
                sound = False
            case 2 if body:
                place = dice.randrange(len(body))
                body, sound = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :], False
            case 3:
                path, sound = (
                    dice.choice(("/hooks/", "/v1/runs/x/signals/y", "/v1/callbacks/", "/")) + scheme,
                    False,
                )
            case _:
                headers[dice.choice(("Content-Length", "Authorization", "X-Odd"))] = dice.choice(_VALUES)
        if not headers:
            break
    return path, body, headers, sound


@pytest.mark.parametrize(
    "count", [400, pytest.param(20_000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
async def test_no_request_leads_to_an_error_of_the_server_or_to_a_run_without_a_signature(count: int) -> None:
    dice, started = random.Random(count), 0
    async with door(MemoryLog()) as (app, runtime):
        for number in range(count):
            now = time.time()
            path, body, headers, sound = _fuzzed(dice, number, now)
            answer = await ask(app, path, body, headers)
            assert answer.status in {200, 202, 400, 401, 404, 405, 410, 413, 415, 422}, (path, headers, body)
            if answer.status == 202:
                assert path.startswith("/hooks/")
                delivery = headers.get("webhook-id", "")
                valid = signed(path.removeprefix("/hooks/"), body, at=now, delivery=delivery)
                name = next((each for each in valid if "ignature" in each), "")
                assert sound or valid[name] == headers[name], (path, headers, body)
                started += 1
        assert len(await runs(runtime)) <= started
        assert started > count / 100


async def test_a_delivery_that_does_not_meet_the_condition_starts_nothing_and_is_told_why() -> None:
    hooks = tables()
    hooks["github"]["when"] = "body.action in ['opened', 'reopened']"
    async with door(MemoryLog(), hooks=hooks) as (app, runtime):
        told = {}
        for action in ("closed", 7, None, "opened"):
            body = json.dumps({"text": "It is broken"} | ({"action": action} if action else {})).encode()
            told[action] = await ask(app, "/hooks/github", body, signed("github", body, delivery=str(action)))
        assert (told["closed"].status, told["closed"].json) == (
            200,
            {"ignored": "the hook's condition is not met"},
        )
        assert told[7].json == told["closed"].json
        assert told[None].status == 200
        assert told[None].json["ignored"].endswith("there is no 'action'")
        assert told["opened"].status == 202
        assert await runs(runtime) == [told["opened"].json["run_id"]]


async def test_a_condition_of_a_hook_is_refused_before_anything_is_served() -> None:
    hooks = tables()
    hooks["github"]["when"] = "action == 'opened'"
    with pytest.raises(ConfigError, match=r"hooks\.github\]\.when: .* uses 'action'; known are .*body"):
        async with door(MemoryLog(), hooks=hooks):
            pass


async def test_a_hook_starts_a_stored_agent_as_it_is_at_each_delivery() -> None:
    hooks = tables()
    hooks["github"]["agent"] = "stored:clerk"
    async with door(MemoryLog(), hooks=hooks) as (app, runtime):
        missing = await ask(app, "/hooks/github", BODY, signed("github", BODY, delivery="early"))
        assert (missing.status, "there is no stored agent 'clerk'" in str(missing.json)) == (404, True)
        saved = await runtime.agents.save({"name": "clerk", "model": "scripted:triage.json"})
        taken = await ask(app, "/hooks/github", BODY, signed("github", BODY, delivery="late"))
        assert taken.status == 202
        run = runtime.get_run(taken.json["run_id"])
        assert (await run.result()).output
        submitted = (await run.state()).submitted
        assert submitted is not None
        assert submitted.config_digest == saved.digest
    hooks["github"]["agent"] = "clerk"
    with pytest.raises(ConfigError, match="a stored one is written stored:NAME"):
        async with door(MemoryLog(), hooks=hooks):
            pass
