"""Addresses of control sockets: tcp://HOST:PORT with an IPv6 host in brackets, or ipc://PATH."""

from __future__ import annotations

import ipaddress
import re

from kvplan.runtime.errors import HandshakeError

# ZeroMQ's form "tcp://SOURCE;TARGET" binds to a source address and connects to a target.
ADDRESS = re.compile(r"tcp://(?:\[(?P<six>[^\[\]\s]+)\]|(?P<host>[^\[\]:\s]+)):[^:\s]+(;\S+)?|ipc://\S+")
BARE_IPV6 = re.compile(r"tcp://[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?(:\S+)?")


def check_address(address: object) -> None:
    """Raises HandshakeError if a value is not an address."""
    if isinstance(address, str) and ADDRESS.fullmatch(address):
        return
    if isinstance(address, str) and BARE_IPV6.fullmatch(address):
        raise HandshakeError(f"{address!r} is no address: put an IPv6 host in brackets, as in tcp://[::1]:5555")
    raise HandshakeError(f"{address!r} is no address: give the one that the worker prints, tcp://HOST:PORT")


def is_ipv6(address: str) -> bool:
    """Return whether an address uses IPv6: its host, which may be a name, is in brackets."""
    return address.startswith("tcp://[")


def is_loopback(address: str) -> bool:
    """Return whether an address, to listen at or to connect to, is reachable only from this machine.

    These are ipc://, loopback numbers (127.0.0.0/8, ::1) and `localhost`. Other names are not looked up.
    """
    if address.startswith("ipc://"):
        return True
    found = ADDRESS.fullmatch(address)
    return found is not None and ";" not in address and is_loopback_host(found["six"] or found["host"] or "")


def is_loopback_host(host: str) -> bool:
    """Return whether a host is this machine's loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_everywhere(address: str) -> bool:
    """Return whether an address has a wildcard host (`*`, 0.0.0.0, [::]), at which servers listen only."""
    found = ADDRESS.fullmatch(address)
    host = (found["six"] or found["host"] or "") if found else ""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host == "*"
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return number.is_unspecified or (mapped is not None and mapped.is_unspecified)
