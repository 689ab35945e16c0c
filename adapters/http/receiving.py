"""The route of webhooks: verify, parse, then start one run per delivery, however often it is sent (H1 to H3).

The idempotency key of a start is `hook:<name>:<delivery id>`, recorded in the log before the run (W26). So a sender
that got no answer can retry, at this process or another one, and finds the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...eventlog.errors import AgentNotFound, RunConflict, RunGone, RunPurged
from ...eventlog.events import Trigger
from ...runtime import Runtime
from ...runtime.core.templates import Missing
from ...runtime.ports.conditions import Condition, ConditionFailed
from .answers import Refused, answer, guarded
from .bodies import check_json, parse_json, read_body
from .hooks import Hook, Send, Start
from .identifiers import request_id, traceparent
from .signatures import Scheme

STORE_S = 10.0
"""How long storing a delivery may take; after that, the sender is asked to retry."""
DELIVERY_MAX = 256

_DELIVERY_HEADER: dict[Scheme, str] = {"standard": "webhook-id", "github": "X-GitHub-Delivery"}
_DELIVERY_FIELD: dict[Scheme, str] = {"stripe": "id", "slack": "event_id"}


class HookRoutes:
    """`POST /hooks/NAME`."""

    def __init__(self, runtime: Runtime, hooks: Mapping[str, Hook]) -> None:
        self._runtime, self._hooks = runtime, hooks

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("/hooks/{name}", guarded(self.receive), methods=["POST"])]

    async def receive(self, request: Request) -> Response:
        """Handle one delivery. Raises `Refused`, and the errors of the runtime."""
        hook = self._hooks.get(request.path_params["name"])
        if hook is None:
            raise Refused(404, "there is no hook of this name")
        check_json(request)
        raw = await read_body(request)
        now = self._runtime.log.clock.now()
        if not hook.verified(request.headers, raw, now):
            raise Refused(401, "the signature is missing, wrong or too old")
        body = parse_json(raw)
        if hook.scheme == "slack" and (challenge := _challenge(body)) is not None:
            return answer(200, {"challenge": challenge})
        if hook.when is not None and (why := _unmet(hook.when, body)):
            return answer(200, {"ignored": why})
        wait_s = hook.rate.wait_s(now) if hook.rate is not None else 0
        if wait_s:
            raise Refused(429, "this hook takes no more requests now", retry_after_s=wait_s)
        try:
            async with asyncio.timeout(STORE_S):
                return await self._take(hook, request, _delivery(hook, request, body), body)
        except Missing as missing:
            raise Refused(422, str(missing)) from None

    async def _take(self, hook: Hook, request: Request, delivery: str, body: Any) -> Response:
        if isinstance(hook.does, Send):
            return await self._send(hook, hook.does, delivery, body)
        trigger = Trigger(
            kind="hook",
            name=hook.name,
            key=delivery,
            fired_at=self._runtime.log.clock.now(),
            request_id=request_id(request),
            traceparent=traceparent(request),
        )
        return await self._start(hook, hook.does, trigger, body)

    async def _start(self, hook: Hook, does: Start, trigger: Trigger, body: Any) -> Response:
        """Return 202 after the run's first commit is stored, or 200 if the delivery already has a run."""
        delivery, agent = trigger.key, does.agent
        try:
            if isinstance(agent, str):
                agent = await self._runtime.agents.load(agent)
        except AgentNotFound as error:
            raise Refused(404, str(error)) from None
        try:
            run = await self._runtime.start(
                agent,
                does.input.fill(body),
                executor=does.executor,
                priority=does.priority,
                session=None if does.session is None else does.session.name(body),
                idempotency_key=f"hook:{hook.name}:{delivery}" if delivery else None,
                trigger=trigger,
            )
        # The delivery started a run before, and since then the template was changed or the run was erased.
        except (RunConflict, RunGone, RunPurged) as known:
            return answer(200, {"run_id": known.run_id, "is_new": False})
        return answer(202 if run.is_new else 200, {"run_id": run.run_id, "is_new": run.is_new})

    async def _send(self, hook: Hook, does: Send, delivery: str, body: Any) -> Response:
        run = self._runtime.get_run(does.run.name(body))
        data = body if does.data is None else does.data.value(body)
        key = f"hook:{hook.name}:{delivery}" if delivery else ""
        try:
            sent = await run.signal(does.name, data, key=key, by=f"hook:{hook.name}")
        except RunGone as gone:  # not 410: senders would take that for the end of the hook itself
            raise Refused(404, str(gone)) from None
        content = {"run_id": run.run_id, "number": sent.number, "is_new": sent.is_new}
        return answer(202 if sent.is_new else 200, content)


def _delivery(hook: Hook, request: Request, body: Any) -> str:
    """Return the delivery's id; empty if it has none, since equal bodies may be separate deliveries.

    Raises `Refused`, and `Missing` if the hook's key names a field that the body lacks.
    """
    if hook.key is not None:
        found: Any = hook.key.name(body)
    elif hook.scheme in _DELIVERY_HEADER:
        found = request.headers.get(_DELIVERY_HEADER[hook.scheme], "")
    else:
        field = _DELIVERY_FIELD.get(hook.scheme, "")
        found = body.get(field, "") if isinstance(body, dict) else ""
    if not isinstance(found, str) or len(found) > DELIVERY_MAX or not found.isprintable():
        raise Refused(400, f"the delivery's id must be a text of at most {DELIVERY_MAX} printable characters")
    return found


def _unmet(when: Condition, body: Any) -> str:
    """Return why a delivery is ignored; empty if it is not. It is also ignored if the condition cannot be evaluated."""
    try:
        return "" if when.is_met({"body": body}) else "the hook's condition is not met"
    except ConditionFailed as failed:
        return f"the hook's condition fails: {failed}"


def _challenge(body: Any) -> str | None:
    """Return the challenge that Slack sends to verify the address; None for any other body."""
    if not isinstance(body, dict) or body.get("type") != "url_verification":
        return None
    challenge = body.get("challenge")
    return challenge if isinstance(challenge, str) else None
