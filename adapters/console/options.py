"""Options of serving the API: the names it answers to, who is let in without a token, and the proxies it believes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

import msgspec

from ...eventlog.errors import ConfigError
from ..http.server import is_loopback

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound to
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `foldlog console` and `foldlog serve --api`, as they are given; see the reference.

    - `no_auth`: everybody is `local` with the role admin; on loopback only.
    - `read_only`: everybody is a viewer.
    - `console`: the browser's page is served, and its users get a one-time key.
    - `executor`: the executor of runs that name none.
    - `protocols`: the protocols that are served before agents, of which the page tells.
    """

    host: str = "127.0.0.1"
    no_auth: bool = False
    read_only: bool = False
    console: bool = False
    base_path: str = ""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    trust_proxies: tuple[str, ...] = ()
    user_header: str = "X-Forwarded-User"
    role_header: str = "X-Forwarded-Role"
    executor: str = "durable"
    protocols: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise `ConfigError` for an option that is not valid, or that another one rules out."""
        if self.no_auth and not is_loopback(self.host):
            raise ConfigError(
                f"--no-auth lets everybody in, so it needs a loopback address, not --host {self.host}"
            )
        if not _BASE_PATH.fullmatch(self.base_path):
            raise ConfigError(
                f"--base-path is written /console or /tools/foldlog, not {self.base_path!r:.80}"
            )
        for origin in self.allow_origins:
            if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+", origin):
                raise ConfigError(f"--allow-origin is written https://example.com:8443, not {origin!r:.80}")
        for name in self.allow_hosts:
            if not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", name):
                raise ConfigError(
                    f"--allow-host is the name of a host, such as example.com, not {name!r:.80}"
                )
        self.networks()

    def networks(self) -> Sequence[Network]:
        """Return the addresses whose proxies are believed. Raises `ConfigError`."""
        try:
            return [ipaddress.ip_network(text, strict=False) for text in self.trust_proxies]
        except ValueError as error:
            raise ConfigError(
                f"--trust-proxy is an address or a network such as 10.0.0.0/8: {error}"
            ) from None

    def serves_host(self, given: str) -> bool:
        """Return whether the name in a `Host` header is one of this server (a name of another may be rebound to it)."""
        name = host_name(given)
        if name in LOOPBACK_NAMES or name == self.host.lower():
            return True
        if name in {host_name(each) for each in self.allow_hosts}:
            return True
        return self.host in WILDCARDS and _is_address(name)


def host_name(given: str) -> str:
    """Return the name or address in a `Host` header, without its port."""
    given = given.strip().lower()
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given if given.count(":") > 1 else given.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
