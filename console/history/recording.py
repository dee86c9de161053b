"""Record what the console saw, for reviews of an incident: views of hosts and the logs followed.

One JSON document a line (gzip when the name ends in ``.gz``). The first line is the header; then

    {"t": 12.0, "host": "ct129", "key": true, "view": {…}, "processes": [...], "gone": []}
    {"t": 12.2, "host": "ct129", "log": "/data/k25.log", "data": "…", "gap": 0}

``t`` is seconds since the recording began. A key frame holds every process of a host, the frames
between only those that changed or ended. Secrets are masked before anything is written.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import IO, Any

from console.actions.codec import encode
from console.errors import UsageError
from console.model import HostView
from console.remote import LogChunk, LogSource
from console.text import lines, mask, mask_argv, mask_env

FORMAT = 1
KEY_EVERY_S = 60.0
"""How far a replay must read back at most, against the size of the file."""


class Recorder:
    """Writes a recording; give it views as they come.

    Raises:
        UsageError: the file exists already, or cannot be made.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._began = clock()
        self._last_key: dict[str, float] = {}
        self._processes: dict[str, dict[int, Any]] = {}
        self._kept: dict[tuple[str, str], int] = {}
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            hint = "choose another name"
            raise UsageError(str(error.strerror), place=str(path), hint=hint) from error
        raw: IO[bytes] = os.fdopen(handle, "wb")
        self._file: IO[bytes] | gzip.GzipFile = raw
        if path.suffix == ".gz":
            self._file = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5)
        self._raw = raw
        self._write({"format": FORMAT, "kind": "specops-recording", "began_at": self._began})

    def view(self, view: HostView) -> None:
        """Add one view of a host."""
        now = self._clock() - self._began
        host = view.host.name
        data = encode(view)
        snapshot = data.get("snapshot")
        current = {}
        if snapshot:
            current = {p["id"]["pid"]: _masked(p) for p in snapshot.pop("processes")}
        data["runs"] = [_masked(run) for run in data["runs"]]
        before = self._processes.get(host, {})
        key = now - self._last_key.get(host, -KEY_EVERY_S) >= KEY_EVERY_S
        frame = {
            "t": round(now, 3),
            "host": host,
            "key": key,
            "view": data,
            "processes": [p for pid, p in current.items() if key or before.get(pid) != p],
            "gone": [pid for pid in before if pid not in current],
        }
        if key:
            self._last_key[host] = now
        self._processes[host] = current
        self._write(frame)

    def log(self, host: str, source: LogSource, chunk: LogChunk) -> None:
        """Add a piece of a log that somebody followed; what was kept before is not kept twice."""
        name = source.path or source.unit or source.container or ""
        data, end = chunk.data, chunk.cursor.offset
        before = 0 if chunk.event else self._kept.get((host, name), 0)
        if end:
            data = data[max(0, before - (end - len(data))) :]
            self._kept[host, name] = max(before, end)
            if not data and not chunk.gap_bytes:
                return
        text = "\n".join(mask(line) for line in lines(data))
        t = round(self._clock() - self._began, 3)
        self._write({"t": t, "host": host, "log": name, "data": text, "gap": chunk.gap_bytes})

    async def tee(
        self, host: str, source: LogSource, chunks: AsyncIterator[LogChunk]
    ) -> AsyncIterator[LogChunk]:
        """Pass a log on and keep it."""
        async for chunk in chunks:
            self.log(host, source, chunk)
            yield chunk

    def close(self) -> None:
        """Finish the file."""
        if not self._raw.closed:
            self._file.close()
            self._raw.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        line = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()  # a console that dies leaves a recording that can be read


def _masked(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "argv": mask_argv(data["argv"]), "env": mask_env(data["env"])}
