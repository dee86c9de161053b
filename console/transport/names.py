"""Names that reach ssh, checked before it sees them: a host called ``-oProxyCommand=…`` is one."""

from __future__ import annotations

import ipaddress
import re

from console.errors import ConfigError
from console.model import Host

_HOST = re.compile(r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})$")
_USER = re.compile(r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?$")


def check(host: Host) -> None:
    """Raises ``ConfigError`` when address, user or port cannot be right."""
    if not valid_host(host.address):
        raise ConfigError(f"address: {host.address[:80]!r} is not a host name", place=host.name)
    if not _USER.match(host.user):
        raise ConfigError(f"user: {host.user[:80]!r} is not a user name", place=host.name)
    if not 0 < host.port < 65536:
        raise ConfigError(f"port: {host.port} is not 1 to 65535", place=host.name)


def valid_host(name: str) -> bool:
    """A DNS name, or an IPv4 or IPv6 address (its zone included, without brackets)."""
    if _HOST.match(name):
        return all(0 < len(label) < 64 for label in name.rstrip(".").split("."))
    address, _, zone = name.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not zone or re.fullmatch(r"[A-Za-z0-9_.-]{1,15}", zone) is not None
