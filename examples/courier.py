"""An agent that may use 70 % of its window: it stops before a call that would exceed that.

foldlog run examples.courier:agent "How far is it?"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def look(mile: int) -> str:
    """Look around at a milestone."""
    return f"Mile {mile}: " + "a long way " * 70


agent = Agent(
    "courier",
    model="scripted:examples/courier.json",
    tools=[look],
    budget_awareness="limit:70",
    context={"window_tokens": 1000, "overflow": "none"},
)
registry = Registry(agents=[agent])
