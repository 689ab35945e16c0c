"""An agent with a slow tool, to be inspected and steered while it runs.

foldlog run examples.nightwatch:agent "Watch the harbour" --run-id watch
foldlog runs pending watch
foldlog runs inject watch "Count the ships, too."
touch morning
"""

import time
from pathlib import Path

from foldlog import Agent, Registry, ToolContext, tool


@tool(effect="pure", timeout_s=None)
def watch(context: ToolContext) -> str:
    """Watch until the file `morning` exists."""
    context.progress(0, message="it is dark")
    while not (context.cancelled or Path("morning").exists()):
        time.sleep(0.05)
    return "three ships came in"


agent = Agent("nightwatch", model="scripted:examples/nightwatch.json", tools=[watch])
registry = Registry(agents=[agent])
