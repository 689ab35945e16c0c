"""Agents as tools of an MCP server: over stdio, and over streamable HTTP at `/mcp`."""

from .http import mcp_routes
from .server import agent_server

__all__ = ["agent_server", "mcp_routes"]
