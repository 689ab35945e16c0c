"""The tool `shell`: a command in the workspace, carried out by a runner."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from pydantic import Field

from ...eventlog.events import OnError, ToolEffect
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.runner import OUTPUT_BYTES_MAX, Command, Outcome, ToolRunner, outlives_worker
from ...runtime.ports.tools import Tool, ToolFailed, ToolTimedOut
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool

OUTCOME: Final = "outcome"
"""The name of the part of a call under which the log keeps what its command came to."""
TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 600.0
"""What a model may ask for."""
_CALL_S_MAX: Final = 1200.0
"""A call may wait for its workspace, or for a place in a cluster, before its own time begins."""


def shell_tool(
    runner: ToolRunner,
    *,
    effect: ToolEffect = "unsafe",
    on_error: OnError = "doubt",
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    slot: str | None = None,
) -> Tool:
    """The tool `shell` over the workspace of `runner`, alone among the calls of its round.

    Its result has `exit_code` (124 after its time) and `output`, and only if they are so `timed_out: true` and `limit`,
    the limit that ended it (cpu, memory, processes). `effect` is what its commands are declared to be, `slot` what they
    need alone, over all processes, as in `tool`. An unsafe command that was stopped after its time may have done
    anything: it is in doubt, but with `on_error="report"`, when the model reads the result and may run it again.
    """
    made = tool(effect=effect, on_error=on_error, parallel=False, timeout_s=_CALL_S_MAX, slot=slot)
    doubts = effect == "unsafe" and on_error == "doubt"
    return made(_Shell(runner, output_bytes_max, doubts=doubts).shell)


class _Shell:
    def __init__(self, runner: ToolRunner, output_bytes_max: int, *, doubts: bool) -> None:
        self._runner, self._output_bytes_max, self._doubts = runner, output_bytes_max, doubts

    async def shell(  # noqa: D417 - The context is none of the model's.
        self,
        command: list[str],
        context: ToolContext,
        cwd: str = ".",
        timeout_s: Annotated[float, Field(gt=0, le=TIMEOUT_S_MAX)] = TIMEOUT_S,
    ) -> dict[str, Any]:
        """Run a program and return its exit code and its output. Whatever it starts ends with it.

        Args:
            command: The program and its arguments. No shell reads them: for pipes and the like use ["sh", "-c", "..."].
            cwd: The directory to run it in, relative to the workspace.
            timeout_s: Seconds after which it is stopped, with all that it started.
        """
        asked = Command(
            argv=tuple(command),
            cwd=cwd,
            timeout_s=timeout_s,
            output_bytes_max=self._output_bytes_max,
            key=context.idempotency_key,
        )
        outcome = await self._outcome(asked, context)
        context.observe(Evidence(exit_code=outcome.exit_code, text=outcome.output))
        return _result(outcome)

    async def _outcome(self, command: Command, context: ToolContext) -> Outcome:
        """Run it. What outlives this process is stored in the log once it is certain, and not asked for again."""
        if not outlives_worker(self._runner):
            return await self._certain(command)

        async def run() -> Any:
            return msgspec.to_builtins(await self._certain(command))

        return msgspec.convert(await context.memo(OUTCOME, run), Outcome)

    async def _certain(self, command: Command) -> Outcome:
        """How it ended. Raises `ToolFailed` where that leaves in doubt what it did."""
        outcome = await self._runner.run(command)
        if outcome.lost:
            raise ToolFailed("the runner of the command died; what the command did is unknown", in_doubt=True)
        if outcome.timed_out and self._doubts:
            raise ToolTimedOut(command.timeout_s, result=_result(outcome))
        return outcome


def _result(outcome: Outcome) -> dict[str, Any]:
    result: dict[str, Any] = {"exit_code": outcome.exit_code, "output": outcome.output}
    if outcome.timed_out:
        result["timed_out"] = True
    if outcome.limit:
        result["limit"] = outcome.limit
    return result
