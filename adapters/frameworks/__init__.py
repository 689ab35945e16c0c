"""Convert agents of other frameworks into agents of foldlog, so that they run durably without being rewritten.

    agent = from_pydantic_ai(their_agent, effects={"lookup": "pure"})
    agent = from_openai_agents(their_agent)              # an agent with handoffs becomes a swarm

A feature without an equivalent is refused by name (`ConfigError`). Neither framework is imported before it is used.
"""

from .openai_agents import from_openai_agents
from .pydantic_ai import from_pydantic_ai

__all__ = ["from_openai_agents", "from_pydantic_ai"]
