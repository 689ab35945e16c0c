"""An agent whose model is overloaded: a fallback model answers, and the stream looks the same.

foldlog run examples.dispatcher:agent "A van is late"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def find_van(name: str) -> str:
    """Tell where a van is."""
    return f"{name} is on the bridge."


agent = Agent(
    "dispatcher",
    model="scripted:examples/dispatcher_busy.json",
    fallback_models=["scripted:examples/dispatcher_spare.json"],
    instructions="Find the van and say where it is.",
    tools=[find_van],
    retry={"attempts": 2, "base_s": 0.05},
)
registry = Registry(agents=[agent])
