"""One agent with one tool. Its model is a file of answers, so it needs no key.

foldlog run examples.weather:agent "How warm is it in Oslo?"
"""

from foldlog import Agent, Registry, tool

TEMPERATURES_C = {"Bergen": 9, "Oslo": 4}


@tool(effect="pure")
def temperature(city: str) -> str:
    """Tell the temperature in a city."""
    return f"{TEMPERATURES_C[city]} °C" if city in TEMPERATURES_C else "unknown"


agent = Agent(
    "weather",
    model="scripted:examples/weather.json",  # with a key: "openai:gpt-4o"
    instructions="Answer in one sentence.",
    tools=[temperature],
)
registry = Registry(agents=[agent])
