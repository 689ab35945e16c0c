"""The demo's MCP server: one slow tool that reports its progress.

Run as `python -m foldlog.adapters.demo.mcp_server`, over stdio. `FOLDLOG_DEMO_SEARCH_S` is the duration of a search in
seconds (default 0), which gives the demo time to kill the worker that waits for it.
"""

from __future__ import annotations

import os

import anyio
from mcp.server.mcpserver import Context, MCPServer

from .settings import SEARCH_S

server = MCPServer("foldlog-demo", log_level="ERROR")


@server.tool(structured_output=False)
async def search(query: str, ctx: Context) -> str:
    """Search the demo's library."""
    await ctx.report_progress(1, 2, "looking it up")
    await anyio.sleep(float(os.environ.get(SEARCH_S, "0")))
    await ctx.report_progress(2, 2, "reading what was found")
    return f"One book matches {query!r}: 'The Log is the Database', 2026."


if __name__ == "__main__":
    server.run("stdio")
