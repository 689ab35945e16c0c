"""Agents served over NATS (Synadia Agent Protocol 0.3): discovered by `$SRV.INFO.agents`, prompted by a request."""

from .service import nats_agents

__all__ = ["nats_agents"]
