"""Finds the proxy for a server in environment variables. Pure but for reading the environment.

Follows the rules of client-go, not those of Python's library, which supports no networks in NO_PROXY: the requests
of a pod with HTTPS_PROXY and NO_PROXY=10.96.0.0/12 would leave the cluster to reach its API server.
Source: golang.org/x/net/http/httpproxy.
"""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def from_environment(server: str) -> str | None:
    """The proxy's address; None if there is none, for this machine, and for servers that NO_PROXY names."""
    url = urlsplit(server)
    proxy = _variable(f"{url.scheme}_proxy")
    host, address = url.hostname or "", _address(url.hostname or "")
    if not proxy or host == "localhost" or (address is not None and address.is_loopback):
        return None
    port = str(url.port or _PORTS.get(url.scheme))
    if any(_names(entry.strip().lower(), host, port, address) for entry in _variable("no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name) or ""


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _names(entry: str, host: str, port: str, address: IPv4Address | IPv6Address | None) -> bool:
    """Whether an entry of NO_PROXY matches the server: `*`, a network, or a host, perhaps with a port."""
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _contains(entry, address)
    named, only = _parts(entry)
    if not named or only not in ("", port):
        return False
    if address is not None:
        return _address(named) == address
    if named.startswith(("*.", ".")):
        return host.endswith(named.removeprefix("*"))
    return host == named or host.endswith(f".{named}")


def _contains(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _parts(entry: str) -> tuple[str, str]:
    """Host and port, which is "" for all ports. An IPv6 address with a port is in brackets."""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return entry, ""
    return host.strip("[]"), port
