"""An agent that reads many pages with a small window: its history is summarised as it goes, and its tokens are limited.

foldlog run examples.survey:agent "Which pages mention tides?"
"""

from foldlog import Agent, Registry, tool


@tool(effect="pure")
def read_page(number: int) -> str:
    """Read a page of the almanac."""
    return (
        f"Page {number}: " + ("the tides of the month. " if number % 2 else "the phases of the moon. ") * 20
    )


agent = Agent(
    "survey",
    model="scripted:examples/survey.json",
    instructions="Read page after page.",
    tools=[read_page],
    context={"history_messages_max": 6, "summary_at_messages": 2, "window_tokens": 4000},
    budget_awareness="per-message",
    budgets={"max_tokens": 3000},
)
registry = Registry(agents=[agent])
