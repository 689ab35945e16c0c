"""A network that can be cut: one server has a network namespace of its own, as if it were on another machine.

What is sent while it is cut is lost without an answer, and connections stay open on both sides, as with a switch that
fails. That needs root and iproute2; elsewhere there is no such network, and a rehearsal says that it left this out.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence


class Network:
    """A pair of addresses, the near one for all others, the far one for the server that can be cut off."""

    def __init__(self, name: str, near: str, far: str) -> None:
        self.name, self.near, self.far = name, near, far

    @property
    def entering(self) -> Sequence[str]:
        """The beginning of a command that runs on the far side."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Pull the plug on the far side."""
        _ip("-n", self.name, "link", "set", f"{self.name}b", "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", f"{self.name}b", "up")


@contextlib.contextmanager
def network() -> Iterator[Network | None]:
    """A network for one far server, or None where it cannot be made."""
    name, part = f"fl{os.getpid()}", os.getpid() % 250
    made = Network(name, f"10.213.{part}.1", f"10.213.{part}.2")
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        _ip("addr", "add", f"{made.near}/30", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        _ip("-n", name, "addr", "add", f"{made.far}/30", "dev", f"{name}b")
        _ip("-n", name, "link", "set", "lo", "up")
        made.mend()
    except (OSError, subprocess.CalledProcessError):
        _remove(name)
        yield None
        return
    try:
        yield made
    finally:
        _remove(name)


def _remove(name: str) -> None:
    for command in (("link", "del", f"{name}a"), ("netns", "del", name)):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip(*command)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=120)
