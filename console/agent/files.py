"""Looking at files: read, stat, list."""

from __future__ import annotations

import base64
import os
import stat as stats
from typing import Any

from console.agent.calls import Call, VerbError, Verbs

MAX_READ = 32 << 20
"""Bytes that one read returns at most."""
MAX_ENTRIES = 20_000


def absolute(path: str) -> str:
    """A path that does not depend on where the agent runs; ``~`` is the user's home."""
    path = os.path.expanduser(path) if path.startswith("~") else path
    if not path.startswith("/"):
        raise VerbError("usage", "{!r} is not an absolute path".format(path[:200]))
    return path


def read_file(call: Call) -> str:
    """The verb: bytes in base64; a negative offset counts from the end."""
    path = absolute(call.text("path"))
    offset, limit = call.number("offset", 0), call.number("limit", 1 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as source:
        info = os.fstat(descriptor)
        if stats.S_ISDIR(info.st_mode) or stats.S_ISFIFO(info.st_mode):
            raise VerbError("os", "{}: not a regular file".format(path), errno=21)
        if offset < 0:
            offset = max(0, info.st_size + offset)
        if offset:
            source.seek(offset)
        data = source.read(max(0, min(limit, MAX_READ)))
    return base64.b64encode(data).decode("ascii")


def describe(path: str) -> dict[str, Any]:
    """One path's facts; an error is a fact, too."""
    row: dict[str, Any] = {"path": path, "kind": "missing"}
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return row
    except OSError as error:
        row.update(kind="other", error=error.strerror or str(error))
        return row
    mode = info.st_mode
    kind = "file" if stats.S_ISREG(mode) else "dir" if stats.S_ISDIR(mode) else "other"
    row.update(
        kind=kind,
        size_bytes=info.st_size,
        mtime=info.st_mtime,
        uid=info.st_uid,
        readable=os.access(path, os.R_OK),
        writable=os.access(path, os.W_OK),
    )
    return row


def stat(call: Call) -> list[dict[str, Any]]:
    """The verb: several paths."""
    return [describe(absolute(path)) for path in call.words("paths")]


def list_dir(call: Call) -> list[dict[str, Any]]:
    """The verb: the entries of a directory, by name."""
    folder = absolute(call.text("path"))
    names = sorted(os.listdir(folder))
    if len(names) > MAX_ENTRIES:
        raise VerbError("failed", "{}: more than {} entries".format(folder, MAX_ENTRIES))
    return [describe(os.path.join(folder, name)) for name in names]


VERBS: Verbs = {"read_file": read_file, "stat": stat, "list_dir": list_dir}
