"""An agent that keeps a to-do list, which survives every cut, takeover and replay.

foldlog run examples.mover:agent "I move to Oslo in May"
"""

from foldlog import Agent, Registry

agent = Agent(
    "mover",
    model="scripted:examples/mover.json",
    instructions="Note what is to be done before you do it, and say at the end what is left.",
    tools=["add_todo", "complete_todo", "get_todo"],
)
registry = Registry(agents=[agent])
