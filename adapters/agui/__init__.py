"""Agents served over AG-UI 1.0: `POST /agui/AGENT` runs an agent, and streams its events in the protocol's form."""

from .routes import agui_routes

__all__ = ["agui_routes"]
