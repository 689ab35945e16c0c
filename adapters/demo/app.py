"""The demo's agent: its model is called through the openai SDK, its one tool through MCP.

Their addresses are in the environment variables of `settings.py`. Workers serve `foldlog.adapters.demo.app:registry`.
"""

from __future__ import annotations

import os
import sys

from ...runtime import Agent, Registry
from ..models.openai import OpenAIProvider
from .settings import MODEL_URL, SEARCH_S

agent = Agent(
    "librarian",
    model="demo:librarian-1",
    instructions="Search the library, then answer.",
    mcp_servers={
        "demo": {
            "command": sys.executable,
            "args": ["-P", "-m", f"{__package__}.mcp_server"],
            "env": {SEARCH_S: "${" + SEARCH_S + "}"},
            # A search changes nothing: the worker that takes over may repeat it.
            "effects": {"search": "pure"},
        }
    },
)
registry = Registry(
    agents=[agent],
    providers={
        "demo": OpenAIProvider(
            name="demo", base_url=os.environ.get(MODEL_URL, "http://127.0.0.1:9/v1"), api_key_env=None
        )
    },
)
