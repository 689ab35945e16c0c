"""The variables that tell the demo's processes where its parts are. Light, since every one of them imports it."""

MODEL_URL = "FOLDLOG_DEMO_MODEL_URL"
"""The base URL of `model_server.py`."""

SEARCH_S = "FOLDLOG_DEMO_SEARCH_S"
"""How long a search of `mcp_server.py` takes, in seconds."""
