"""An agent whose tool asks the user a question while it runs, and whose rules require approvals.

foldlog worker examples.concierge:registry
foldlog run examples.concierge:agent "Book a table at Da Enzo" --executor durable
"""

from foldlog import Agent, Registry, ToolContext, tool

FORM = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "minimum": 1, "description": "how many come"},
        "outside": {"type": "boolean", "default": False},
    },
    "required": ["guests"],
}


@tool(effect="idempotent")
async def book_table(restaurant: str, context: ToolContext) -> str:
    """Book a table; asks for how many."""
    answer = await context.ask(f"A table at {restaurant}: for how many?", FORM)
    if answer.content is None:
        return f"nothing is booked: {answer.action} {answer.note}".strip()
    where = "outside" if answer.content.get("outside") else "inside"
    return f"a table for {answer.content['guests']} {where} at {restaurant}"


@tool(effect="unsafe")
def pay(amount_eur: int) -> str:
    """Pay something."""
    return f"{amount_eur} EUR are paid"


agent = Agent(
    "concierge",
    model="scripted:examples/concierge.json",
    tools=[book_table, pay],
    policy={"rules": [{"tool": "pay", "action": "require_approval", "reason": "money"}]},
)
registry = Registry(agents=[agent])
