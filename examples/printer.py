"""An agent of which two runs are driven at once, with any number of workers: there are two printers.

foldlog run examples.printer:registry "Label parcel 7"
"""

from foldlog import Agent, Registry, tool


@tool(effect="idempotent")
def print_label(parcel: str) -> str:
    """Print the label of a parcel."""
    return f"{parcel} has its label."


agent = Agent(
    "printer",
    model="scripted:examples/printer.json",
    tools=[print_label],
    concurrency={"runs_max": 2},
)
registry = Registry(agents=[agent])
