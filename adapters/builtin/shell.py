"""The tool `shell`: a command in the workspace, run by a runner."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from pydantic import Field

from ...eventlog.events import OnError, ToolEffect
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.runner import OUTPUT_BYTES_MAX, Command, CommandOutcome, ToolRunner, outlives_worker
from ...runtime.ports.tools import Tool, ToolFailed, ToolTimedOut
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool

OUTCOME: Final = "outcome"
"""Name of the memo of a call in which the log keeps the command's outcome."""
TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 600.0
"""The longest timeout that a model may request."""
_CALL_S_MAX: Final = 1200.0
"""Longer than any timeout, since a call may wait for its workspace, or for a node of a cluster, before it starts."""


def shell_tool(
    runner: ToolRunner,
    *,
    effect: ToolEffect = "unsafe",
    on_error: OnError = "doubt",
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    slot: str | None = None,
) -> Tool:
    """Return the tool `shell` over the workspace of `runner`; it runs alone among the calls of its round.

    The result has `exit_code` (124 after a timeout) and `output`, and if they apply, `timed_out: true` and `limit`, the
    limit that ended the command (cpu, memory, processes). `effect` is the declared effect of its commands; with a
    `slot` they run one at a time over all processes, as in `tool`. An unsafe command that timed out may have done
    anything: its outcome is in doubt, unless `on_error="report"`, with which the model reads the result and may run it
    again.
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

    async def _outcome(self, command: Command, context: ToolContext) -> CommandOutcome:
        """Run the command. If it can outlive this process, its outcome is stored in the log and not read again."""
        if not outlives_worker(self._runner):
            return await self._certain(command)

        async def run() -> Any:
            return msgspec.to_builtins(await self._certain(command))

        return msgspec.convert(await context.memo(OUTCOME, run), CommandOutcome)

    async def _certain(self, command: Command) -> CommandOutcome:
        """Return how the command ended. Raises `ToolFailed` if that leaves its effects in doubt."""
        outcome = await self._runner.run(command)
        if outcome.lost:
            raise ToolFailed("the runner of the command died; what the command did is unknown", in_doubt=True)
        if outcome.timed_out and self._doubts:
            raise ToolTimedOut(command.timeout_s, result=_result(outcome))
        return outcome


def _result(outcome: CommandOutcome) -> dict[str, Any]:
    result: dict[str, Any] = {"exit_code": outcome.exit_code, "output": outcome.output}
    if outcome.timed_out:
        result["timed_out"] = True
    if outcome.limit:
        result["limit"] = outcome.limit
    return result
