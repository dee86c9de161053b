"""Who did what to which process, when, and how it ended: one JSON line each, on this machine.

The line that says what is about to happen is on the disk before it happens. Lines are only ever
appended, the file is the operator's alone, secrets are masked, control characters are escaped.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from console.actions.plan import masked_values
from console.config.paths import state_dir
from console.errors import ActionFailed


def default_path() -> Path:
    """``$XDG_STATE_HOME/specops/audit.jsonl``."""
    return state_dir() / "audit.jsonl"


class AuditLog:
    """The audit file; each call of :meth:`write` is one line, fsynced before it returns."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        self.user = f"{_user()}@{socket.gethostname()}"

    def write(self, event: str, **values: Any) -> None:
        """Append one event with the time (s since 1970), the operator and the values given.

        Raises:
            ActionFailed: the file cannot be written or is not this user's alone. Nothing may be
                done to a host that could not be recorded.
        """
        line = {"format": 1, "time": time.time(), "user": self.user, "event": event}
        line |= masked_values(values)
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._append(data)
        except OSError as error:
            raise ActionFailed(
                f"the audit file cannot be written: {error.strerror or error}",
                place=str(self.path),
                hint="nothing is done that cannot be recorded; free the disk or fix its rights",
            ) from error

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        try:
            info = os.fstat(fd)
            if info.st_uid != os.getuid() or not stat.S_ISREG(info.st_mode):
                raise OSError(None, f"it belongs to uid {info.st_uid}")
            if info.st_mode & 0o077:
                os.fchmod(fd, 0o600)
            if info.st_size and os.pread(fd, 1, info.st_size - 1) != b"\n":
                data = b"\n" + data  # a line torn by a full disk or a power cut takes none with it
            # One write call: lines of two consoles never mix under O_APPEND.
            if os.write(fd, data) != len(data):
                raise OSError(None, "the disk is full")
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_steps(self, plan_id: str) -> tuple[int, ...]:
        """Steps of a plan whose intent has neither a result nor an end beside it, in order."""
        begun: dict[int, None] = {}
        for line in self.read():
            if line.get("plan") != plan_id:
                continue
            if line.get("event") == "intent":
                begun[int(line["detail"]["step"])] = None
            elif line.get("event") in ("result", "interrupted"):
                begun.pop(int(line["step"]), None)
        return tuple(begun)

    def read(self) -> Iterator[Mapping[str, Any]]:
        """All events, oldest first; a torn last line (power cut) is passed over."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # not there yet, or not to be read: then not to be written either
            return
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return f"uid {os.getuid()}"
