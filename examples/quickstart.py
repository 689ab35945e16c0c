"""One agent with one tool, for this process or for workers that serve `examples.quickstart:registry`.

foldlog run examples.quickstart:agent "How warm is it in Oslo?"
"""

from foldlog import Agent, Registry, tool

TEMPERATURES_C = {"Bergen": 9, "Oslo": 4}


@tool(effect="pure")
def temperature(city: str) -> str:
    """Tell the temperature in a city."""
    return f"{TEMPERATURES_C[city]} °C" if city in TEMPERATURES_C else "unknown"


agent = Agent("quickstart", instructions="Answer in one sentence.", tools=[temperature])
registry = Registry(agents=[agent], tools=[temperature])
