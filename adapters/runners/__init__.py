"""Runners of tool commands: as child processes, with or without limits, or as Kubernetes Jobs."""

from .bubblewrap import Bubblewrap
from .direct import DirectRunner
from .job import JobTemplate
from .kubernetes import KubernetesRunner
from .limited import Limits, SubprocessRunner

__all__ = ["Bubblewrap", "DirectRunner", "JobTemplate", "KubernetesRunner", "Limits", "SubprocessRunner"]
