"""Agents of other frameworks as agents of foldlog: they run durably as they are written.

    agent = from_pydantic_ai(their_agent, effects={"lookup": "pure"})
    agent = from_openai_agents(their_agent)              # with handoffs it is a swarm

What has no equivalent is refused by name (`ConfigError`). Neither framework is imported before it is used.
"""

from .openai_agents import from_openai_agents
from .pydantic_ai import from_pydantic_ai

__all__ = ["from_openai_agents", "from_pydantic_ai"]
