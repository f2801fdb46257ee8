"""Tells the servers of one's own network from those that ask for money."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_OWN: Final = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


@lru_cache(maxsize=256)
def is_own_network(url: str) -> bool:
    """Whether the host of this URL is in one's own network: nothing is known of its prices.

    False for an empty URL.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if not host:
        return False
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_OWN)
