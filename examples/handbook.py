"""An agent that searches the texts that `foldlog knowledge` has stored.

foldlog knowledge add examples/handbook.txt
foldlog run examples.handbook:agent "When may I deploy?"
"""

from foldlog import Agent, Registry, tool
from foldlog.adapters.knowledge import SqliteKnowledge


@tool(effect="pure")
async def search_handbook(question: str) -> str:
    """Search the handbook."""
    found = await SqliteKnowledge().search(question, limit=1)
    return "\n\n".join(item.text for item in found) or "The handbook says nothing of it."


agent = Agent(
    "handbook",
    model="scripted:examples/handbook.json",
    instructions="Answer from the handbook alone.",
    tools=[search_handbook],
)
registry = Registry(agents=[agent], tools=[search_handbook])
