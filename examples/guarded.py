"""An agent with circuit breakers: while one is open, its fallback, of another provider, is called at once.

foldlog run examples.guarded:registry "A van is late"
"""

from foldlog import Agent, Registry, tool
from foldlog.adapters.models import ScriptedProvider


@tool(effect="pure")
def find_van(name: str) -> str:
    """Tell where a van is."""
    return f"{name} is on the bridge."


agent = Agent(
    "guarded",
    model="scripted:examples/dispatcher_busy.json",
    fallback_models=["spare:examples/dispatcher_spare.json"],
    tools=[find_van],
    retry={"attempts": 2, "base_s": 0.05},
    breaker={"failures": 2, "open_s": 60.0},
)
registry = Registry(agents=[agent], providers={"spare": ScriptedProvider()})
