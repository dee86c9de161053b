"""What every transport is: a way to start one command on a host and talk bytes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from console.errors import HostError

STDERR_KEPT = 4096
"""Last bytes of a command's standard error that are kept, for one-line errors."""


class Channel(Protocol):
    """A running command's standard streams. Bytes only."""

    async def read(self, limit: int) -> bytes:
        """Some bytes of its standard output, ``b""`` at the end; raises ``HostError``."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input."""
        ...

    async def drain(self) -> None:
        """Wait until queued bytes are mostly under way; raises ``HostError``."""
        ...

    async def close(self) -> None:
        """End the input and give the channel back; never raises."""
        ...

    def errors(self) -> bytes:
        """The last bytes of its standard error."""
        ...


class Transport(Protocol):
    """A connection to a host."""

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a command; raises ``HostError`` or ``AuthError``."""
        ...

    async def close(self) -> None:
        """Give the connection back; never raises."""
        ...


def lost(host: str, why: str = "the connection broke off") -> HostError:
    """The error of a link that is gone."""
    return HostError(why, place=host)
