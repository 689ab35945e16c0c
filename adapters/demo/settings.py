"""The environment variables of the demo's processes. Every one of them imports this module, so it is small."""

MODEL_URL = "FOLDLOG_DEMO_MODEL_URL"
"""The base URL of `model_server.py`."""

SEARCH_S = "FOLDLOG_DEMO_SEARCH_S"
"""Duration of a search of `mcp_server.py`, in seconds."""
