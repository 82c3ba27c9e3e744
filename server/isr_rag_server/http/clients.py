"""Clients as the server tells them apart: by their network address."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import cast

from cachetools import TTLCache

UNKNOWN = "unknown"
_REMEMBERED = 10_000
_NETWORK = 64
"""Bits of an IPv6 address that are its network's: whoever has one address of a network has all of them."""


def client_of(host: str | None) -> str:
    """The name of a client: its IPv4 address, or the network of its IPv6 address."""
    if host is None:
        return UNKNOWN
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK), strict=False))


def names_of(proxy: str) -> tuple[str, ...]:
    """How the address of a proxy is written: an IPv4 address that reaches an IPv6 socket is mapped to one of IPv6."""
    address = ipaddress.ip_address(proxy)
    own = getattr(address, "ipv4_mapped", None) or address
    return (proxy,) if own.version == 6 else (str(own), f"::ffff:{own}")


def is_among(host: str | None, proxies: Collection[str]) -> bool:
    """Whether a client's address is that of a proxy, and not only in the same network."""
    try:
        return ipaddress.ip_address(host or "") in [ipaddress.ip_address(n) for one in proxies for n in names_of(one)]
    except ValueError:
        return False


class Allowance:
    """What each client may do some number of times; what a client did is forgotten some seconds after the last time.

    Args:
        most: how often.
        seconds: see above.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._spent = cast("TTLCache[str, int]", TTLCache(_REMEMBERED, seconds))

    def left(self, client: str) -> int:
        """How often a client still may."""
        return max(0, self._most - self._spent.get(client, 0))

    def spend(self, client: str, times: int = 1) -> None:
        """Note that a client did it; a negative number gives it back."""
        self._spent[client] = self._spent.get(client, 0) + times
