"""An agent that refunds orders after an approval."""

from foldlog import Agent, ToolContext, tool


@tool(effect="pure")
async def lookup(order: str, ctx: ToolContext) -> str:
    """Look an order up."""
    ctx.progress(1, 1, "found")
    return f"order {order}: shipped"


@tool(effect="unsafe")
async def refund(order: str) -> str:
    """Pay an order back."""
    return f"refunded {order}"


AGENT = Agent("orders", tools=[lookup, refund], hitl_tools=["refund"])
