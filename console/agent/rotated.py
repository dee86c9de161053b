"""The files that a log's rotation leaves beside it, found by content, never by name alone."""

from __future__ import annotations

import hashlib
import os
import re
import stat as stats
from typing import Any

HEAD = 256
"""Bytes at the beginning that identify a file."""
MOST = 200
"""Files beside a log that are looked at."""
_ENDING = re.compile(r"^[.-](?:[0-9][0-9T_.:-]*|old|bak)$")
"""What rotation puts behind a name: numbers and dates (logrotate, Python's handlers)."""


def digest(data: bytes) -> str:
    """The hash of a file's beginning."""
    return hashlib.sha256(data).hexdigest()[:32]


def fits(descriptor: int, place: dict[str, Any]) -> bool:
    """Whether a file still is the one that a place was taken in, and still as long."""
    if os.fstat(descriptor).st_size < place["offset"]:
        return False
    head = os.pread(descriptor, place["head_len"], 0)
    return bool(len(head) == place["head_len"] and digest(head) == place["head_sha"])


def beside(path: str) -> list[int]:
    """Descriptors of the rotated files beside a log, oldest first. The caller closes them."""
    folder, name = os.path.split(path)
    try:
        names = [entry for entry in os.listdir(folder) if entry.startswith(name)]
    except OSError:
        return []
    found = []
    for entry in sorted(item for item in names if _ENDING.match(item[len(name) :]))[:MOST]:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(os.path.join(folder, entry), flags)
        except OSError:
            continue
        if stats.S_ISREG(os.fstat(descriptor).st_mode):
            found.append(descriptor)
        else:
            os.close(descriptor)
    return sorted(found, key=lambda item: os.fstat(item).st_mtime_ns)


def chain(path: str, place: dict[str, Any], guard: bytes, current: int) -> list[int]:
    """What to read before the file at ``path``: the one the place was taken in, then later ones.

    ``guard`` are the bytes known to lie before the place; ``current`` is the file at ``path``.
    Empty when the first cannot be found.
    """
    files = beside(path)
    first = next((item for item in files if _is_predecessor(item, place, guard)), None)
    kept = [] if first is None else [first, *later(files, first, current)]
    close([item for item in files if item not in kept])
    return kept


def since(path: str, open_file: int, current: int) -> list[int]:
    """The files that came and were rotated away after one that is still open."""
    files = beside(path)
    kept = later(files, open_file, current)
    close([item for item in files if item not in kept])
    return kept


def later(files: list[int], first: int, current: int) -> list[int]:
    """Those of ``files`` that were last written after ``first``; neither it nor ``current``."""
    known = {_identity(first), _identity(current)}
    begun = os.fstat(first).st_mtime_ns
    return [
        item
        for item in files
        if _identity(item) not in known and os.fstat(item).st_mtime_ns > begun
    ]


def close(descriptors: list[int]) -> None:
    """Close all."""
    for descriptor in descriptors:
        os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def _is_predecessor(descriptor: int, place: dict[str, Any], guard: bytes) -> bool:
    if not place["head_len"]:  # it was empty: only its number is known
        return _identity(descriptor) == (place["device"], place["inode"])
    before = os.pread(descriptor, len(guard), max(0, place["offset"] - len(guard)))
    return fits(descriptor, place) and before == guard
