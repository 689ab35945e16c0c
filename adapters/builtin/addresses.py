"""Restrict the addresses that an agent's requests may reach, and connect only to the addresses that were checked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

import httpx2

from ...runtime.ports.tools import Retryable, ToolFailed

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64: Final = ip_network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Return whether the address is public; an IPv6 address that embeds an IPv4 one is judged by that one."""
    if isinstance(address, IPv6Address) and (inner := _inner(address)) is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast


def is_any(_: Address) -> bool:
    """Return true for every address."""
    return True


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Resolves the host of each request, redirects included, checks its addresses, and connects to one of these.

    If the connection resolved the name again, it could get another address (DNS rebinding). A host with even one
    address that is not allowed is refused.
    """

    def __init__(self, allowed: Callable[[Address], bool], resolve: Resolve = resolve) -> None:
        self._allowed, self._resolve = allowed, resolve
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises `ToolFailed` for a host that is not allowed, and the errors of httpx2."""
        host = request.url.host
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=await self._address(host, request.url.port or 0)),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def _address(self, host: str, port: int) -> str:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise Retryable(f"the host {host!r} cannot be resolved: {error}") from None
        for each in found:
            if not self._allowed(ip_address(each.partition("%")[0])):
                raise ToolFailed(f"the host {host!r} has the address {each}, which is not public")
        if not found:
            raise ToolFailed(f"the host {host!r} has no address")
        return found[0]


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
