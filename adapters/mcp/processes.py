"""End a process together with all processes that it started: its group, or on Windows its descendants."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import psutil


class ProcessFamily:
    """The processes that are ended with `pid`, which leads a process group on POSIX systems."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descendants: dict[int, psutil.Process] = {}
        self.refresh()

    def refresh(self) -> None:
        """On Windows, record the descendants while their ancestors live; a process group knows its members."""
        if sys.platform == "win32":
            with suppress(psutil.Error):
                leader = psutil.Process(self.pid)
                self._descendants |= {each.pid: each for each in (leader, *leader.children(recursive=True))}

    def is_gone(self) -> bool:
        """Return whether none of them runs. Zombies do not count: reaping them is up to their parents."""
        if sys.platform == "win32":
            return not any(each.is_running() for each in self._descendants.values())
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return not any(_group_of(pid) == self.pid and is_alive(pid) for pid in psutil.pids())

    def end(self, *, kill: bool) -> None:
        """Terminate or kill all of them."""
        if sys.platform == "win32":
            for each in self._descendants.values():
                with suppress(psutil.Error):
                    each.kill()
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL if kill else signal.SIGTERM)


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None
