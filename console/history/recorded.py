"""The console's actions with a recorder beside them: logs that are followed are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from console.history.recording import Recorder
from console.planning.operations import Operations
from console.remote import LogChunk, LogSource


class Recorded(Operations):
    """Operations whose logs go into a recording as they are shown."""

    def __init__(self, recorder: Recorder, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._recorder = recorder

    def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """Follow a log, and keep what comes."""
        chunks = super().tail(host, source, last_lines=last_lines)
        return self._recorder.tee(host, source, chunks)
