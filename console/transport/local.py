"""The machine that specops itself runs on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from console.errors import AgentError
from console.transport.pipes import PipeChannel


class LocalTransport:
    """Starts the command as a subprocess, in a session of its own."""

    def __init__(self, host: str) -> None:
        self._host = host

    async def open(self, argv: Sequence[str]) -> PipeChannel:
        """Start the command; raises ``AgentError`` where the machine has no /proc."""
        if sys.platform != "linux":
            raise AgentError(
                f"this machine runs {sys.platform}; a managed host must run Linux", place=self._host
            )
        return await PipeChannel.start(self._host, argv)

    async def close(self) -> None:
        """Nothing is held."""
