"""An agent that gives three jobs to copies of itself, which work at the same time.

foldlog run examples.surveyor:agent "Survey the harbour"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def measure(place: str) -> str:
    """Measure the depth at a place, in metres."""
    return {"pier": "7 m", "channel": "12 m", "reef": "2 m"}.get(place, "unknown")


agent = Agent(
    "surveyor",
    model="scripted:examples/surveyor.json",
    instructions="Measure each place, then report.",
    tools=[measure],
    allow_parallel_subagents=True,
)
registry = Registry(agents=[agent])
