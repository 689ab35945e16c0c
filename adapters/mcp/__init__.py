"""MCP servers as tool sources: over stdio and streamable HTTP, by the official SDK.

What an agent's `mcp_servers` may say stands in the runtime's `mcp_servers`, what its tools are called in `names`. A
`Session` is one connection, a `Server` makes sessions as they are needed and knows what a lost one means for a call,
`McpToolSource` shares servers between runs. `oauth` is what goes with requests to a server that asks for it, `login`
the login of a person. The SDK takes most of a second to import, so it is imported with the first connection.
"""

from ...runtime.agents.mcp_servers import HttpServer, ServerConfig, StdioServer
from .source import McpTools, McpToolSource

__all__ = ["HttpServer", "McpToolSource", "McpTools", "ServerConfig", "StdioServer"]
