"""An agent whose tool returns too much to read at once: the model sees a part, and can read on anywhere.

foldlog run examples.ledger:agent "What did invoice 1207 come to?"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def export(year: int) -> str:
    """List all invoices of a year, one per line."""
    amounts = {1207: 42}
    return "".join(f"{year} invoice {number}: {amounts.get(number, 7)} EUR\n" for number in range(1000, 3000))


agent = Agent(
    "ledger",
    model="scripted:examples/ledger.json",
    instructions="Find the invoice in the export. Read on where the export is cut.",
    tools=[export],
)
registry = Registry(agents=[agent])
