"""The supervisor process of a command: sets its limits, watches all its processes, and ends them.

A program of its own that uses only the standard library, started as `python -I -S supervisor.py FD LIMITS... --
COMMAND...`. The worker holds the other end of FD. When that is closed, also by the worker's death, everything is ended.
The supervisor writes the pid of the command to it, and before it exits the limit that ended the command, if any.

The command is forked here, where there is one thread, and not in the worker. On Linux the supervisor is the subreaper
of the command's processes: one that leaves its session and loses its parent becomes the supervisor's child.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    raise ImportError("the supervisor needs a POSIX system")

import resource

LOOK_S = 0.1
"""Interval at which the sums over all processes are compared with the limits."""
_ROUNDS_MAX = 400
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform == "linux"


class Supervisor:
    """One command. `limits` by name: cpu (s), memory (bytes), files, processes; each may be missing."""

    def __init__(self, control: int, limits: dict[str, int], command: list[str]) -> None:
        self.control, self.limits, self.command = control, limits, command
        self.status: int | None = None
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> int:
        """Run the command and return its exit code, as a shell reports it."""
        if _LINUX:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        told, tell = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(tell)
            self._become(told)
        self._tell(str(self.pid))
        os.write(tell, b".")
        os.close(tell)
        os.close(told)
        limit = self._watch()
        self._end_all()
        self._tell(limit or self._signalled())
        return self._exit_code()

    def _become(self, told: int) -> None:
        """In the child: set the limits and exec the command, once the worker knows its pid.

        Otherwise nothing could end a command that kills its supervisor at once.
        """
        try:
            if not os.read(told, 1):
                os._exit(126)  # the supervisor died first
            os.setsid()
            if _LINUX:
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in (
                signal.SIGPIPE,
                signal.SIGXFSZ,
            ):  # Python ignores them, and exec would keep that
                signal.signal(number, signal.SIG_DFL)
            self._set_limits()
            os.execvp(self.command[0], self.command)  # noqa: S606 - the purpose of this program
        except FileNotFoundError:
            self._give_up(127, "program not found")
        except OSError as error:
            self._give_up(126, error.strerror or str(error))
        except BaseException as error:  # noqa: BLE001 - this child must never continue as a supervisor
            self._give_up(126, str(error))

    def _give_up(self, code: int, problem: str) -> None:
        os.write(2, f"{self.command[0]}: {problem}\n".encode(errors="surrogateescape"))
        os._exit(code)

    def _set_limits(self) -> None:
        _limit(resource.RLIMIT_CORE, 0)
        if "files" in self.limits:
            _limit(resource.RLIMIT_NOFILE, self.limits["files"])
        if "memory" in self.limits and _LINUX:  # macOS takes no such limit.
            # Limits writable memory, which is what a program uses; much of its address space is never touched.
            _limit(resource.RLIMIT_DATA, self.limits["memory"])
        if "cpu" in self.limits:  # SIGXCPU at the soft limit, which names the cause; SIGKILL at the hard one
            _limit(resource.RLIMIT_CPU, self.limits["cpu"], self.limits["cpu"] + 1)

    def _watch(self) -> str:
        """Wait until the command ends, the worker is gone, or a limit is exceeded; return the limit."""
        measured = _LINUX and bool({"cpu", "memory", "processes"} & set(self.limits))
        while True:
            ready, _, _ = select.select([self.control, self.woken], [], [], LOOK_S if measured else None)
            if self.control in ready:
                return ""
            self._reap()
            if self.status is not None:
                return ""
            if measured and (limit := self._exceeded()):
                return limit

    def _exceeded(self) -> str:
        sums = sums_of(_descendants(os.getpid()), self.limits.get("processes"))
        return next((name for name, value in sums.items() if value > self.limits.get(name, value)), "")

    def _signalled(self) -> str:
        """Return the CPU limit if a process exceeded its own: shown by the signal, or in a sandbox by the exit code."""
        return "cpu" if "cpu" in self.limits and self._exit_code() == 128 + signal.SIGXCPU else ""

    def _exit_code(self) -> int:
        status = self.status or 0
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _reap(self) -> bool:
        """Reap ended children; return whether any are left."""
        with suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.pid:
                self.status = status

    def _end_all(self) -> None:
        for _ in range(_ROUNDS_MAX):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            for pid in [*_descendants(os.getpid())]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not self._reap():
                return
            select.select([self.woken], [], [], 0.01)

    def _tell(self, line: str) -> None:
        with suppress(OSError):
            os.write(self.control, f"{line}\n".encode())


def _limit(number: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, capped at the current hard limit."""
    _, above = resource.getrlimit(number)
    wanted = (soft, soft if hard is None else hard)
    resource.setrlimit(
        number,
        (min(wanted[0], above), min(wanted[1], above)) if above != resource.RLIM_INFINITY else wanted,
    )


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants(pid: int) -> Iterator[int]:
    """Yield all processes below `pid`, zombies included; none without /proc."""
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        yield from children
        todo += children


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                children += map(int, (thread / "children").read_bytes().split())
    return children


def sums_of(pids: Iterable[int], count_max: int | None) -> dict[str, float]:
    """Return the number of processes, the bytes of private memory and the CPU seconds (ended processes included).

    If several limits are exceeded at once, the first is reported, because many processes also use much of the others.
    Counting stops after `count_max` processes: a fork bomb grows faster than it can be counted.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s, memory_bytes, count = ended.ru_utime + ended.ru_stime, 0, 0
    ticks, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            resident, shared = map(int, Path(f"/proc/{pid}/statm").read_bytes().split()[1:3])
            cpu_s += sum(map(int, fields[10:14])) / ticks
            memory_bytes += (resident - shared) * page_bytes
            count += state != b"Z"
        if count_max is not None and count > count_max:
            break
    return {"processes": count, "memory": memory_bytes, "cpu": cpu_s}


def main(arguments: list[str]) -> int:
    """Run with FD, `name=number` for each limit, `-LC_CTYPE` if Python added that variable, `--`, the command."""
    end = arguments.index("--")
    control = int(arguments[0])
    os.set_inheritable(control, False)  # noqa: FBT003 - The signature of the system.
    options = arguments[1:end]
    if "-LC_CTYPE" in options:
        os.environ.pop("LC_CTYPE", None)
    limits = {name: int(value) for name, sep, value in (each.partition("=") for each in options) if sep}
    return Supervisor(control, limits, arguments[end + 1 :]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
