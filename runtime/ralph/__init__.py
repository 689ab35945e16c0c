"""The ralph loop: run something again and again, score it, feed back, until a stop condition holds."""

from .config import Reflection, Scored
from .loop import RalphLoop
from .loop_config import Stop

__all__ = ["RalphLoop", "Reflection", "Scored", "Stop"]
