"""An agent behind FastAPI: start runs, watch them as server-sent events, answer approvals.

uvicorn examples.web.app:app
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse
from foldlog import Runtime
from foldlog.eventlog import (
    ApprovalError,
    ConfigError,
    FoldlogError,
    LogUnavailable,
    RunConflict,
    RunNotFound,
    to_json,
)
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent

from examples.refunds import agent, registry

EXECUTOR = os.environ.get("EXECUTOR", "local")  # "durable": workers drive the runs
STATUS_CODES = {
    RunNotFound: 404,
    RunConflict: 409,
    ApprovalError: 409,
    ConfigError: 422,
    LogUnavailable: 503,
}


@asynccontextmanager
async def opened(app: FastAPI) -> AsyncGenerator[None]:
    """Open one runtime for the whole application."""
    async with Runtime.open(registry=registry) as runtime:
        app.state.runtime = runtime
        yield


app = FastAPI(lifespan=opened)


class Question(BaseModel):
    """The request that starts a run."""

    input: str
    session: str | None = None


class Decision(BaseModel):
    """The answer to an approval."""

    decision: Literal["approved", "rejected"]
    note: str = ""


@app.exception_handler(FoldlogError)
async def refused(_: Request, error: FoldlogError) -> JSONResponse:
    """Return an error of foldlog as JSON, with a fitting status code."""
    code = next((code for kind, code in STATUS_CODES.items() if isinstance(error, kind)), 500)
    run_id = getattr(error, "run_id", None)
    return JSONResponse({"error": type(error).__name__, "message": str(error), "run_id": run_id}, code)


@app.post("/runs", status_code=202)
async def start(
    request: Request, question: Question, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, str]:
    """Start a run. A client that repeats the request with its key gets the same run."""
    run = await request.app.state.runtime.start(
        agent, question.input, executor=EXECUTOR, session=question.session, idempotency_key=idempotency_key
    )
    return {"run_id": run.run_id}


@app.get("/runs/{run_id}/events")
async def watch(
    request: Request, run_id: str, last_event_id: Annotated[str | None, Header()] = None
) -> EventSourceResponse:
    """Stream the run's events. A browser that reconnects sends the last id it has seen, and continues after it."""
    run = request.app.state.runtime.get_run(run_id)
    await run.status()  # an unknown run is a 404, not a stream that breaks

    async def events() -> AsyncIterator[ServerSentEvent]:
        async with aclosing(run.stream(after=last_event_id or None)) as stream:
            async for event in stream:  # a draft has no cursor, and so no id to resume from
                yield ServerSentEvent(id=event.cursor, data=json.dumps(to_json(event)))
        yield ServerSentEvent(event="end", data=run_id)

    return EventSourceResponse(events())


@app.get("/approvals")
async def approvals(request: Request) -> list[dict[str, Any]]:
    """List pending approvals, oldest first."""
    return [msgspec.to_builtins(row) for row in await request.app.state.runtime.approvals()]


@app.post("/runs/{run_id}/approvals/{approval_id}")
async def answer(request: Request, run_id: str, approval_id: str, decision: Decision) -> dict[str, str]:
    """Answer an approval, as the user who is signed in."""
    user = "web"  # from your authentication
    run = request.app.state.runtime.get_run(run_id)
    stands = await run.resolve(approval_id, decision.decision, decision.note, by=user)
    return {"decision": stands.decision, "by": stands.by}


@app.post("/runs/{run_id}/cancel")
async def cancel(request: Request, run_id: str) -> dict[str, str]:
    """Cancel the run and all runs below it."""
    return {"found": await request.app.state.runtime.get_run(run_id).cancel("cancelled on the web")}
