"""Answer one prompt: send an acknowledgement, the text of the run, queries for its approvals, and an empty message."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec
from nats.aio.client import Client

from ...eventlog.errors import (
    ApprovalError,
    ConfigError,
    FoldlogError,
    LogUnavailable,
    RunFinished,
    RunNotFound,
)
from ...eventlog.events import ApprovalRequested, ApprovalResolved, DetailedEvent, Text, TextReset, Usage
from ...runtime.handle import RunHandle
from ...runtime.options import RunOptions
from ..protocols.asked import Asked
from ..protocols.door import Door, Origin
from ..protocols.questions import Answered, answer_by, form_of, text_of, word_of
from ..protocols.reading import going_on
from .envelope import BadPrompt, Prompt, read_prompt, read_reply

logger = logging.getLogger("foldlog.nats_agents")

ACTOR = "nats"
"""The actor of every prompt: NATS names no sender, and the server decides who may publish to an agent's subject."""
KEEPALIVE_S = 20.0
"""Seconds between keepalives; callers give up after 60 s without a message."""
REPLY_S = 3600.0
"""How long a caller may take to answer a query. The approval itself stays open."""


class Conversation:
    """The answer to one prompt, on its reply subject."""

    def __init__(self, door: Door, agent: str, connection: Client, reply: str) -> None:
        self._door, self._agent, self._connection, self._reply = door, agent, connection, reply
        self._origin, self._asked = Origin(ACTOR), Asked()
        self._text, self._said = "", False

    async def hold(self, data: bytes, key: str) -> None:
        """Answer the prompt to its end. Errors are sent in the protocol's form; the last message is empty."""
        keeping: asyncio.Future[None] | None = None
        try:
            prompt = read_prompt(data)
            await self._send("status", "ack")
            keeping = asyncio.ensure_future(self._keep_alive())
            await self._tell(prompt, key)
        except (BadPrompt, ConfigError, RunNotFound, ApprovalError) as error:
            await self._fail("400", str(error))
        except LogUnavailable:
            await self._fail("500", "the log cannot be reached now; send the same again")
        except FoldlogError as error:
            await self._fail("400", str(error))
        except Exception:
            logger.exception("a prompt failed")
            await self._fail("500", "the prompt failed")
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
        await self._connection.publish(self._reply)

    async def _tell(self, prompt: Prompt, key: str) -> None:
        run = await self._run(prompt, key)
        await self._send("status", f"run {run.run_id}")
        answered: list[str] = []
        cursor: str | None = None
        while True:
            over = False
            async with contextlib.aclosing(going_on(run, answered, cursor)) as events:
                async for event in events:
                    cursor, over = event.cursor or cursor, event.is_end
                    await self._feed(event, run.run_id)
            state = await run.state()
            if over and state.status != "completed":
                why = f"{state.error.error_type}: {state.error.error}" if state.error else state.status
                await self._fail("500", f"the run {run.run_id} ended: {why}")
            if over:
                if not self._said and state.status == "completed":
                    await self._send("response", state.output)
                return
            if not self._asked.open:
                raise BadPrompt(
                    f"the run {run.run_id} waits for {state.paused or 'a signal'}; prompt it later"
                )
            answered = list(self._asked.open)
            await asyncio.gather(*(self._query(run, each, cursor) for each in self._asked.open.values()))
            await self._door.drive(run)

    async def _run(self, prompt: Prompt, key: str) -> RunHandle[Any]:
        if prompt.run:
            run = self._door.runtime.get_run(prompt.run)
            if (await run.state()).agent != self._agent:
                raise BadPrompt(f"agent {self._agent!r} has no run {prompt.run[:80]!r}")
            await self._door.drive(run)
            return run
        options = RunOptions()
        if prompt.conversation:
            options["session"] = prompt.conversation
        agent = self._door.agent(self._agent)
        return await self._door.start(agent, prompt.content, self._origin, key=key, options=options)

    async def _feed(self, event: DetailedEvent, run_id: str) -> None:
        """Send the text of a step after the step is final: a message cannot be taken back."""
        self._asked.feed(event)
        if event.run_id != run_id:
            return
        if isinstance(event, Text):
            self._text = self._text[: event.offset] + event.text
        elif isinstance(event, TextReset) and event.channel == "text":
            self._text = self._text[: event.offset]
        elif isinstance(event, Usage) and self._text:
            await self._send("response", f"\n\n{self._text}" if self._said else self._text)
            self._text, self._said = "", True

    async def _query(self, run: RunHandle[Any], asked: ApprovalRequested, cursor: str | None) -> None:
        """Send the question to the caller, and store its answer, unless another party answers first.

        Raises `BadPrompt` for a reply that is not understood, or none within `REPLY_S`.
        """
        inbox = self._connection.new_inbox()
        replies = await self._connection.subscribe(inbox)
        try:
            form = msgspec.json.encode(form_of(asked)).decode()
            question = f"{text_of(asked)}\nyes, no, or JSON by this schema: {form}"
            data = {"id": asked.approval_id, "reply_subject": inbox, "prompt": question}
            await self._send("query", data)
            coming = asyncio.ensure_future(replies.next_msg(timeout=REPLY_S))
            elsewhere = asyncio.ensure_future(_resolved(run, asked.approval_id, cursor))
            try:
                await asyncio.wait({coming, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                answer = _answer(asked, (await coming).data)
            except TimeoutError:
                raise BadPrompt(f"there was no answer; the run {run.run_id} still waits") from None
            finally:
                for task in (coming, elsewhere):
                    task.cancel()
                await asyncio.gather(coming, elsewhere, return_exceptions=True)
            with contextlib.suppress(RunFinished):
                await self._door.answer(run, asked.approval_id, origin=self._origin, **answer._asdict())
        finally:
            await replies.unsubscribe()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            await self._send("status", "keepalive")

    async def _send(self, kind: str, data: Any) -> None:
        await self._connection.publish(self._reply, msgspec.json.encode({"type": kind, "data": data}))

    async def _fail(self, code: str, text: str) -> None:
        plain = " ".join(text.split())
        headers = {"Nats-Service-Error-Code": code, "Nats-Service-Error": plain[:1000]}
        await self._connection.publish(self._reply, msgspec.json.encode({"error": text}), headers=headers)


def _answer(asked: ApprovalRequested, data: bytes) -> Answered:
    words, form = read_reply(data)
    word = word_of(words)
    if word is False:
        return Answered("rejected")
    found = answer_by(asked, {"approve": True} if word else form)
    if found is None or (words and word is None):
        raise BadPrompt("the reply was not understood; prompt the run again to be asked again")
    return found


async def _resolved(run: RunHandle[Any], approval_id: str, after: str | None) -> None:
    async with contextlib.aclosing(run.stream(detailed=True, after=after)) as events:
        async for event in events:
            if isinstance(event, ApprovalResolved) and event.approval_id == approval_id:
                return
