"""A channel over a subprocess of this machine: for ``local`` and the system's ``ssh``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from console.errors import AgentError
from console.transport.base import STDERR_KEPT, lost

END_S = 2.0
"""Seconds a command has to end by itself once its input is closed."""


class PipeChannel:
    """The three pipes of a subprocess."""

    def __init__(self, host: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._host = host
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._kept = bytearray()
        self._errors = asyncio.create_task(self._keep_errors())

    @classmethod
    async def start(
        cls, host: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> PipeChannel:
        """Start ``argv`` in a session of its own; raises ``AgentError``."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
            )
        except OSError as error:
            raise AgentError(f"{argv[0]}: {error.strerror}", place=host) from None
        return cls(host, process)

    async def _keep_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(65536):
            self._kept += data
            del self._kept[:-STDERR_KEPT]

    async def read(self, limit: int) -> bytes:
        """Some output; waits for the last of standard error at the end."""
        data = await self._stdout.read(limit)
        if not data:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await asyncio.shield(self._errors)
        return data

    def write(self, data: bytes) -> None:
        """Queue input."""
        self._stdin.write(data)

    async def drain(self) -> None:
        """Wait for room in the pipe."""
        try:
            await self._stdin.drain()
        except OSError:
            raise lost(self._host) from None

    async def close(self) -> None:
        """Close the input; kill what has not ended after two seconds."""
        self._stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._errors.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._errors
        self._process._transport.close()  # type: ignore[attr-defined]  # grandchildren may hold pipes
        with contextlib.suppress(OSError):
            await self._stdin.wait_closed()

    def errors(self) -> bytes:
        """The last of standard error."""
        return bytes(self._kept)

    @property
    def code(self) -> int | None:
        """The exit status once it has ended."""
        return self._process.returncode
