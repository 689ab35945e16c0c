"""What a running tool may do besides returning: the `ToolContext` that is handed to a tool which declares one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..eventlog.events import DRAFTS, OBSERVABLE, Custom, Event, McpProgress, Status, Step, Submitted
from .toolport import ToolFailed

if TYPE_CHECKING:
    from .runnable import Runnable

__all__ = ["Custom", "ToolContext"]


class ToolContext:
    """One attempt at one tool call. Methods that emit never block and may be called from any thread of the process.

    Events emitted after the call has returned are dropped and counted in `dropped`.
    """

    def __init__(
        self,
        *,
        run_id: str,
        agent_path: str,
        tool_call_id: str,
        tool_name: str,
        idempotency_key: str,
        emit: Callable[[Event], None],
        run_child: Callable[[Runnable, str], Awaitable[str]],
        emit_progress: bool = True,
    ) -> None:
        self.run_id, self.agent_path = run_id, agent_path
        self.tool_call_id, self.tool_name, self.idempotency_key = tool_call_id, tool_name, idempotency_key
        self.dropped = 0
        self._emit, self._run_child, self._emit_progress = emit, run_child, emit_progress
        self._open, self._cancelled = True, False

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled; for sync tools, which cannot be interrupted, to look at."""
        return self._cancelled

    def emit(self, event: Event) -> None:
        """Add an observable event (or `Custom(name=..., data=...)`) to the run's stream.

        An event that carries an `agent` of its own keeps it; its path is extended by this run's. Raises `ToolFailed`
        for an event that is not observable.
        """
        if not isinstance(event, OBSERVABLE) or isinstance(event, (*DRAFTS, Submitted)):
            raise ToolFailed(f"a tool cannot emit an event of type {event.type!r}: it is not observable")
        self._send(_forwarded(event, self.agent_path))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the call is; the numbers are passed on as given."""
        if self._emit_progress:
            self._send(McpProgress(tool_name=self.tool_name, progress=done, total=total, message=message))

    async def run(self, runnable: Runnable, input: str) -> str:  # noqa: A002 - the word of the field
        """Run an agent, a swarm or a loop as a child and return its output.

        The child is a run of its own in this run's family. Durable: a call that is run again finds the child it
        started, never starts a second. Raises `ChildFailed` when the child fails or is cancelled.
        """
        return await self._run_child(runnable, input)

    def close(self, *, cancelled: bool = False) -> None:
        """The attempt is over: what is emitted from now on is dropped. For executors."""
        self._open, self._cancelled = False, self._cancelled or cancelled

    def _send(self, event: Event) -> None:
        if self._open:
            self._emit(event)
        else:
            self.dropped += 1


def _forwarded(event: Event, agent_path: str) -> Event:
    """An inner agent's event under its own name; an event of the tool itself as it is."""
    import msgspec

    inner = event.agent_path or event.agent
    if not inner and isinstance(event, (Custom, McpProgress)):
        return event
    if not inner and isinstance(event, (Status, Step)):
        raise ToolFailed(
            f"an emitted {event.type!r} needs the `agent` it is about: it would end or begin this run's own"
        )
    path = f"{agent_path}/{inner or 'tool'}"
    changes: dict[str, Any] = {"agent": event.agent or path.rpartition("/")[2], "agent_path": path}
    return msgspec.structs.replace(
        event, run_id="", root_id="", revision=None, cursor=None, at=0.0, **changes
    )
