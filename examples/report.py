"""An agent with a planner, which may call the pure tools but not publish.

foldlog run examples.report:agent "Write about tides"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def list_sources(topic: str) -> list[str]:  # noqa: ARG001 - the example has one shelf
    """List the sources on a topic."""
    return ["almanac.txt", "logbook.txt"]


@tool(effect="pure")
def read_source(name: str) -> str:  # noqa: ARG001
    """Read a source."""
    return "High water at 06:00 and at 18:00."


@tool(effect="unsafe")
def publish(text: str) -> str:  # noqa: ARG001
    """Publish a report."""
    return "published"


agent = Agent(
    "report",
    model="scripted:examples/report.json",
    instructions="Write reports from the sources that there are.",
    tools=[list_sources, read_source, publish],
    planning_enabled=True,
)
registry = Registry(agents=[agent])
