"""Adapters to the outside: model providers, MCP servers, tools, runners and the command line."""

__all__: list[str] = []
