"""The outside: model providers, MCP servers and the command line."""

__all__: list[str] = []
