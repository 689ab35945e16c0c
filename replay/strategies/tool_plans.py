"""Tools as plain data: what a drawn tool does before it ends, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ...eventlog.events import Custom, ToolEffect
from ...runtime import Agent, Evidence, Retryable, ToolContext, ToolFailed, postcondition, tool
from ...runtime.ports.tools import Tool

Outcome = Literal["returns", "fails", "recovers", "late"]
Checked = Literal["", "holds", "fails", "unseen"]
FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
"""What a tool asks people for."""
TIMEOUT_S = 0.2
"""How long a tool may take that is late."""
LATE_S = 3600.0


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: what it does before it ends (`progress` notifications, a custom event, letting others run), and how.

    `recovers`: its first of `attempts` asks to be tried again. `late`: it does not end in its time. `keeps`: it stores
    an artifact, and a part of it is done once. `questions`: so many are asked of people, one after the other. `asks`:
    the name of an agent that it runs as a child. `checked`: what its postcondition comes to, if it has one; `unseen`:
    not at the first look. Where nothing is to be seen of a call but its result, a probe tells what that was.
    """

    name: str
    effect: ToolEffect = "unsafe"
    attempts: int = 1
    parallel: bool = True
    progress: int = 0
    emits: bool = False
    yields: int = 0
    keeps: bool = False
    questions: int = 0
    outcome: Outcome = "returns"
    asks: str | None = None
    checked: Checked = ""

    def make(self, agents: Iterable[Agent[Any]] = ()) -> Tool:
        """The tool; `agents` are those that it may ask."""
        plan, known, tried = self, {agent.name: agent for agent in agents}, set[str]()
        timeout_s = TIMEOUT_S if plan.outcome == "late" else None

        @tool(
            name=plan.name,
            effect=plan.effect,
            parallel=plan.parallel,
            timeout_s=timeout_s,
            max_attempts=plan.attempts,
        )
        async def planned(text: str, ctx: ToolContext) -> str:
            """Do as planned."""
            await plan.show(ctx, text)
            if plan.keeps:
                kept = await ctx.artifact(text.encode(), "text/plain")
                text = await ctx.memo("kept", lambda: f"{text} ({kept.id[:8]})")
            for number in range(plan.questions):
                answer = await ctx.ask(f"{text}, {number}?", FORM)
                text = f"{text} {answer.action}"
            if plan.asks is not None:
                return await ctx.run(known[plan.asks], text)
            if plan.outcome == "late":
                await asyncio.sleep(LATE_S)
            if plan.outcome == "fails":
                raise ToolFailed(f"{plan.name} failed: {text}")
            if plan.outcome == "recovers" and ctx.idempotency_key not in tried:
                tried.add(ctx.idempotency_key)
                raise Retryable("not yet", after_s=0.001)
            return f"{plan.name}: {text}"

        return planned if not plan.checked else plan.verified(planned)

    def verified(self, planned: Tool) -> Tool:
        """The tool with its postcondition."""
        plan, looked = self, set[str]()

        async def seen(text: str, ctx: ToolContext) -> Evidence | None:
            await asyncio.sleep(0)
            if plan.checked == "unseen" and ctx.idempotency_key not in looked:
                looked.add(ctx.idempotency_key)
                return None
            told = f"{plan.name}: {text}"
            return Evidence(text=told, result=told)

        wanted = "what is not there" if plan.checked == "fails" else ""
        told = postcondition({"text_contains": {"text": wanted}}, probe=seen if plan.is_seen else None)
        return told(planned)

    @property
    def is_seen(self) -> bool:
        """Return whether a probe can tell all of a call that is lost: it leaves nothing behind but a result."""
        shows = self.progress or self.emits or self.keeps or self.questions or self.asks
        return self.outcome == "returns" and self.checked != "fails" and not shows

    async def show(self, ctx: ToolContext, text: str) -> None:
        """What can be seen of a call before it ends."""
        for number in range(self.progress):
            ctx.progress(number + 1, self.progress, text)
            await asyncio.sleep(0)
        if self.emits:
            ctx.emit(Custom(self.name, {"text": text}))
        for _ in range(self.yields):
            await asyncio.sleep(0)
