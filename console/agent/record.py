"""Writing to the state directory: run records, journals, the lock. Not in a read-only archive."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from typing import Any

from console.agent import machine, state, wire
from console.agent.calls import Call, VerbError, Verbs
from console.agent.change import replace

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a disk that is full, or full for this user."""


class HostLock:
    """The host's lock for destructive plans; it falls with the agent's process."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._guard = threading.Lock()

    def take(self, owner: str) -> None:
        """Take it or raise ``VerbError`` (refused) with the present owner's words."""
        with self._guard:
            if self._fd is not None:
                raise VerbError("refused", "this console already holds the lock")
            prepare()
            path = os.path.join(machine.state_dir(), "lock")
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(descriptor, 4096, 0).decode("utf-8", "backslashreplace")
                os.close(descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise VerbError(
                    "refused", "locked by {}".format(holder.strip() or "another console")
                ) from None
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner.encode("utf-8", "backslashreplace")[:4096], 0)
            except OSError as error:
                if error.errno not in FULL:
                    os.close(descriptor)
                    raise OSError(error.errno, error.strerror, path) from None
                # On a full disk it is held all the same, without its owner's name.
            self._fd = descriptor

    def release(self) -> None:
        """Let it go; harmless when it is not held."""
        with self._guard:
            if self._fd is not None:
                os.ftruncate(self._fd, 0)
                os.close(self._fd)
                self._fd = None


LOCK = HostLock()
_journal_guard = threading.Lock()


def prepare() -> None:
    """Make the state directory, for its owner only."""
    for path in (machine.state_dir(), state.folder("runs"), state.folder("journals")):
        os.makedirs(path, mode=0o700, exist_ok=True)


def save(run: dict[str, Any]) -> None:
    """Write a run record; raises ``VerbError`` (format) when a newer specops wrote it."""
    name = state.checked_name(str(run.get("run_id", "")))
    prepare()
    path = os.path.join(state.folder("runs"), name + ".json")
    if state.too_new(state.load(path)):
        raise VerbError(
            "format", "{} is of a newer specops and read-only".format(path), "update specops"
        )
    record = dict(run)
    record.pop("exit", None)
    record["format"] = state.FORMAT
    replace(path, wire.dumps(record) + b"\n", 0o600)


def save_run(call: Call) -> None:
    """The verb."""
    run = call.args.get("run")
    if not isinstance(run, dict):
        raise VerbError("usage", "run must be an object")
    save(run)


def journal(call: Call) -> None:
    """The verb: one entry, on the disk before this returns."""
    entry = call.args.get("entry")
    if not isinstance(entry, dict):
        raise VerbError("usage", "entry must be an object")
    prepare()
    path = os.path.join(state.folder("journals"), state.checked_name(call.text("plan")) + ".jsonl")
    line = wire.dumps(dict(entry, format=state.FORMAT)) + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with _journal_guard:
        descriptor = os.open(path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # a crash has cut the line before
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(descriptor)


def lock(call: Call) -> None:
    """The verb."""
    LOCK.take(call.text("owner"))


def unlock(_call: Call) -> None:
    """The verb."""
    LOCK.release()


VERBS: Verbs = {"save_run": save_run, "journal": journal, "lock": lock, "unlock": unlock}
