"""An MCP server over stdio with one tool, which takes a photo: always the same."""

import base64

from mcp.server.mcpserver import MCPServer
from mcp_types import ContentBlock, ImageContent, TextContent

PNG = b"\x89PNG\r\n\x1a\nfrom a server"
server = MCPServer("camera", log_level="ERROR")


@server.tool()
async def photo() -> list[ContentBlock]:
    """Take a photo."""
    picture = base64.b64encode(PNG).decode()
    return [
        TextContent(type="text", text="At night."),
        ImageContent(type="image", data=picture, mime_type="image/png"),
    ]


if __name__ == "__main__":
    server.run("stdio")
