"""An agent that remembers its customers across conversations, from the log.

foldlog run examples.barber:agent "Short at the sides, please" --user ada
foldlog run examples.barber:agent "The usual, please" --user ada
"""

from foldlog import Agent, Registry

agent = Agent(
    "barber",
    model="scripted:examples/barber.json",
    instructions="Ask nobody twice.",
    memory={"scope": "user"},
)
registry = Registry(agents=[agent])
