"""A swarm: a report is sorted, looked at from two sides at once, and answered.

foldlog run examples.helpdesk:swarm "The shop fails when I pay"
"""

from foldlog import Agent, Registry, Swarm


def member(name: str, instructions: str) -> Agent:
    """An agent of the swarm, with a script in place of a model."""
    return Agent(name, model=f"scripted:examples/helpdesk/{name}.json", instructions=instructions)


swarm = Swarm(
    [
        member("triage", "Say bug or question, and nothing else."),
        member("reproduce", "Reproduce what is reported."),
        member("similar", "Look for similar reports."),
        member("fixer", "Fix it, and say so in one sentence."),
        member("clerk", "Answer politely."),
    ],
    name="helpdesk",
    flow='triage >> {"bug": (reproduce | similar) >> fixer, else: clerk}',
)
registry = Registry(agents=[swarm])
