"""Options of serving the API: its host names, access without a token, and trusted proxies."""

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
    """The options of `foldlog console` and `foldlog serve --api`, as given on the command line; see the reference.

    - `no_auth`: every caller is `local` with the role admin; only on loopback.
    - `read_only`: every caller is a viewer.
    - `console`: serve the browser's page, and print a one-time key to sign in with.
    - `executor`: the default executor of runs.
    - `protocols`: the names of the protocols that expose the agents, shown by the page.
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
        """Raise `ConfigError` for an invalid option, or for two that exclude each other."""
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
        """Return the networks of trusted proxies. Raises `ConfigError`."""
        try:
            return [ipaddress.ip_network(text, strict=False) for text in self.trust_proxies]
        except ValueError as error:
            raise ConfigError(
                f"--trust-proxy is an address or a network such as 10.0.0.0/8: {error}"
            ) from None

    def serves_host(self, given: str) -> bool:
        """Return whether a `Host` header names this server. Refusing other names prevents DNS rebinding."""
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
