"""A swarm: a report is classified, examined by two agents at once, and answered.

foldlog run examples.helpdesk:swarm "The shop fails when I pay"
"""

from foldlog import Agent, Registry, Swarm


def member(name: str, instructions: str) -> Agent:
    """Return an agent of the swarm, with a script as its model."""
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
