"""An agent whose tool calls all need a reason: the model gives it, the log stores it, the tools do not get it.

foldlog run examples.pharmacy:agent "Something against the headache"
"""

from foldlog import Agent, Registry, tool


@tool(effect="idempotent")
def dispense(drug: str, milligrams: int) -> str:
    """Give out a drug."""
    return f"{milligrams} mg of {drug} are on the counter"


agent = Agent(
    "pharmacy",
    model="scripted:examples/pharmacy.json",
    tools=[dispense],
    injected_tool_args={
        "reason": "Why this is given, in one sentence",
        "ticket": "The prescription, if there is one",
    },
)
registry = Registry(agents=[agent])
