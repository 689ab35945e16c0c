"""MCP servers as tool sources: over stdio and streamable HTTP, by the official SDK.

The format of an agent's `mcp_servers` is in the runtime's `mcp_servers`, the naming of tools in `names`. A `Session` is
one connection. A `Server` opens sessions as they are needed and knows what a lost one means for a call.
`McpToolSource` shares servers between runs. `oauth` authorizes requests to servers that require it, `login` logs a user
in. The SDK takes most of a second to import, so it is imported with the first connection.
"""

from ...runtime.agents.mcp_servers import HttpServer, ServerConfig, StdioServer
from .source import McpTools, McpToolSource

__all__ = ["HttpServer", "McpToolSource", "McpTools", "ServerConfig", "StdioServer"]
