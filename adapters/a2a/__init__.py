"""Agents served over A2A 1.0: each has a card and an endpoint at `/a2a/AGENT`. A task is a run."""

from .routes import a2a_routes

__all__ = ["a2a_routes"]
