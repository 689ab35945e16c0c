"""An agent whose tool returns more than a model should read at once: it is shown a part, and reads on where it wants.

foldlog run examples.ledger:agent "What did invoice 1207 come to?"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def export(year: int) -> str:
    """Give all invoices of a year, one a line."""
    amounts = {1207: 42}
    return "".join(f"{year} invoice {number}: {amounts.get(number, 7)} EUR\n" for number in range(1000, 3000))


agent = Agent(
    "ledger",
    model="scripted:examples/ledger.json",
    instructions="Find the invoice in the export. Read on where the export is cut.",
    tools=[export],
)
registry = Registry(agents=[agent])
