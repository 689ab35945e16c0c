"""An agent that runs commands below the working directory, with limits, and records its plan.

foldlog run examples.operator:agent "How many lines of Python are there?"
"""

from pathlib import Path

from foldlog import Agent, Registry
from foldlog.adapters.builtin import Workspace, builtin_tools
from foldlog.adapters.runners import Limits, SubprocessRunner

workspace = Workspace(Path.cwd())
runner = SubprocessRunner(workspace, limits=Limits(cpu_s=20, memory_bytes=512_000_000, processes=32))

agent = Agent(
    "operator",
    model="scripted:examples/operator.json",
    instructions="Plan first. Look before you change anything.",
    tools=["update_plan", "shell"],
)
registry = Registry(agents=[agent], tools=builtin_tools(workspace, runner=runner))
