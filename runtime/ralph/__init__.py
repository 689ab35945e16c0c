"""The ralph loop: run something again and again, score it, feed back, until a stop condition holds."""

from .loop import RalphLoop, Reflection, Scored
from .stop import Stop

__all__ = ["RalphLoop", "Reflection", "Scored", "Stop"]
