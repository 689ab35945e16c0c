"""Agents behind AG-UI 1.0: `POST /agui/AGENT` runs one, and streams what it does as events of the protocol."""

from .routes import agui_routes

__all__ = ["agui_routes"]
