"""Agents served over the OpenAI Responses API: an agent is a model, a run a response, an approval an MCP approval."""

from .routes import responses_routes

__all__ = ["responses_routes"]
