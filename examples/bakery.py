"""A tool that uses all features of a tool: progress, events, a child agent, a part that is done once, an artifact.

foldlog run examples.bakery:agent "A cake for ten people"
"""

from foldlog import Agent, Custom, Registry, ToolContext, tool

decorator = Agent(
    "decorator", model="scripted:examples/bakery/decorator.json", instructions="Write on the cake."
)


@tool(effect="idempotent")
async def bake(people: int, context: ToolContext) -> str:
    """Bake a cake."""
    context.progress(1, 3, "mixing")
    dough = await context.memo("dough", lambda: f"{people * 80} g of dough, order {context.idempotency_key}")
    context.progress(2, 3, "in the oven")
    words = await context.run(decorator, "What shall stand on the cake?")
    context.emit(Custom("decorated", {"words": words}))
    receipt = await context.artifact(f"{dough}\n{words}".encode(), "text/plain")
    context.progress(3, 3, "done")
    return f"a cake for {people} that says {words!r}, {receipt.size_bytes} bytes of receipt"


agent = Agent("bakery", model="scripted:examples/bakery/baker.json", tools=[bake])
registry = Registry(agents=[agent])
