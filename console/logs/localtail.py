"""Follows a file of this machine as a log: the log screen over any file, without a host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from console.errors import UsageError
from console.remote import Cursor, LogChunk, LogSource

PIECE = 256 * 1024
"""Bytes read at a time, in a thread: a slow disk never holds the screen."""

POLL_S = 0.25
"""How often the end of the file is looked at again."""


async def tail(
    host: str,
    source: LogSource,
    *,
    last_lines: int | None = None,
    offset: int = 0,
    follow: bool = True,
) -> AsyncIterator[LogChunk]:
    """The file from an offset, then what is added; begins again when it is replaced or truncated.

    Has the form of ``ActionsPort.tail``; ``host`` and ``last_lines`` do not matter here.

    Raises:
        UsageError: the file cannot be read.
    """
    assert source.path is not None
    path, inode, event = source.path, 0, None
    while True:
        try:
            data, size, now = await asyncio.to_thread(_read, path, offset)
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", place=path) from error
        inode = inode or now
        if offset and (now != inode or size < offset):
            event, offset, inode = ("rotated" if now != inode else "truncated"), 0, now
            continue
        inode, offset = now, offset + len(data)
        if data or event:
            yield LogChunk(data, Cursor(inode=inode, offset=offset), 0, event, size - offset)
            event = None
        elif not follow:
            return
        else:
            await asyncio.sleep(POLL_S)


def _read(path: str, offset: int) -> tuple[bytes, int, int]:
    with open(path, "rb") as file:  # noqa: PTH123 - the path is the operator's own word
        stat = os.fstat(file.fileno())
        file.seek(offset)
        return file.read(PIECE), stat.st_size, stat.st_ino
