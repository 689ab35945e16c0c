"""pydantic-ai on DBOS: `DBOSDurability` makes model calls steps, and the tool is decorated as one; or neither.

program DIRECTORY [plain]       plain: the same agent without durability
"""

import asyncio
import sys
from pathlib import Path

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks import script
from benchmarks.peers.protocol import serve

PLAIN = sys.argv[2:] == ["plain"]
SETTING = (
    "keeps nothing"
    if PLAIN
    else "DBOSDurability, tools as DBOS steps, system database in SQLite as DBOS opens it"
)


async def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Return the next pair of calls, or the answer. The question contains the number of steps."""
    step = 1 + sum(isinstance(message, ModelResponse) for message in messages)
    steps = int(str(messages[0].parts[-1].content).split()[-1])
    if step == steps:
        return ModelResponse(parts=[TextPart(script.answer())])
    calls = script.call_ids(step)
    return ModelResponse(
        parts=[ToolCallPart(script.TOOL, script.arguments(call), tool_call_id=call) for call in calls]
    )


async def lookup(q: str) -> str:
    """Look something up."""
    return script.found(q)


agent = Agent(
    FunctionModel(model),
    name="bench",
    tools=[lookup if PLAIN else DBOS.step()(lookup)],
    capabilities=[] if PLAIN else [DBOSDurability()],
)


async def ask(question: str) -> str:
    """Perform one run."""
    return (await agent.run(question, usage_limits=UsageLimits(request_limit=None))).output


async def main() -> None:
    """Serve."""
    durable = ask
    if not PLAIN:
        database = Path(sys.argv[1]) / "dbos.sqlite"
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{database}",
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )
        durable = DBOS.workflow()(ask)
        DBOS.launch()

    async def run(name: str, steps: int) -> str:
        with SetWorkflowID(name):
            return await durable(f"{script.QUESTION} {steps}")

    await serve(run, SETTING)


if __name__ == "__main__":
    asyncio.run(main())
