"""TCP sockets of the agent's network namespace, from /proc/net/tcp and tcp6."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from console.agent.machine import read

LISTEN = "0A"
ESTABLISHED = "01"


class Sockets(NamedTuple):
    """Local ports by socket inode."""

    listening: dict[int, int]
    established: dict[int, int]


def parse(data: bytes, into: Sockets) -> None:
    """Add the sockets of one table."""
    for line in data.decode("ascii", "replace").splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] not in (LISTEN, ESTABLISHED):
            continue
        port, inode = int(fields[1].rsplit(":", 1)[1], 16), int(fields[9])
        if fields[3] == LISTEN:
            into.listening[inode] = port
        elif inode:
            into.established[inode] = port


def sockets() -> Sockets:
    """All listening and established TCP sockets; raises ``OSError`` where they cannot be read."""
    found = Sockets({}, {})
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        # Not there, or kept from this login; anything else must not pass for "nobody listens".
        with contextlib.suppress(FileNotFoundError, PermissionError):
            parse(read(path, 8 << 20), found)
    return found
