"""The log on NATS JetStream: `JetStreamLog` provides all eight ports over one connection."""

from .log import JetStreamLog

__all__ = ["JetStreamLog"]
