"""Tools as plain data: the actions of a drawn tool, and its outcome."""

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
"""The form of a tool's questions."""
TIMEOUT_S = 0.2
"""The timeout of a tool that is late, in seconds."""
LATE_S = 3600.0


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: its `progress` notifications, a custom event (`emits`), `yields` to other tasks, and its outcome.

    - `outcome`: `recovers` requests a retry of its first attempt; `late` exceeds its timeout.
    - `keeps`: it stores an artifact and memoizes a part.
    - `questions`: it asks so many questions, one after the other.
    - `asks`: the name of an agent that it runs as a child.
    - `checked`: the result of its postcondition, if it has one; `unseen` has no evidence at the first probe. A probe is
      possible only for a call without other events than its result.
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
        """Return the tool; `agents` are those that it may run."""
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
        """Return the tool with its postcondition."""
        plan, looked = self, set[str]()

        async def seen(text: str, ctx: ToolContext) -> Evidence | None:
            await asyncio.sleep(0)
            if plan.checked == "unseen" and ctx.idempotency_key not in looked:
                looked.add(ctx.idempotency_key)
                return None
            result = f"{plan.name}: {text}"
            return Evidence(text=result, result=result)

        wanted = "what is not there" if plan.checked == "fails" else ""
        check = postcondition({"text_contains": {"text": wanted}}, probe=seen if plan.is_seen else None)
        return check(planned)

    @property
    def is_seen(self) -> bool:
        """True if a probe can replace a lost call, because the call has no effect other than its result."""
        shows = self.progress or self.emits or self.keeps or self.questions or self.asks
        return self.outcome == "returns" and self.checked != "fails" and not shows

    async def show(self, ctx: ToolContext, text: str) -> None:
        """Emit the events of a call before its end."""
        for number in range(self.progress):
            ctx.progress(number + 1, self.progress, text)
            await asyncio.sleep(0)
        if self.emits:
            ctx.emit(Custom(self.name, {"text": text}))
        for _ in range(self.yields):
            await asyncio.sleep(0)
