"""Where the commands of tools run: in this process's own children, under limits, or as Kubernetes Jobs."""

from .bubblewrap import Bubblewrap
from .direct import DirectRunner
from .limited import Limits, SubprocessRunner

__all__ = ["Bubblewrap", "DirectRunner", "Limits", "SubprocessRunner"]
