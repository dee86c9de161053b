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
"""Files beside a log that are looked at, the last written ones."""
TRIES = 5
"""Times the files beside a log are looked at anew when some are renamed meanwhile."""
_ENDING = re.compile(r"^[.-](?:[0-9][0-9T_.:-]*|old|bak)$")
"""What rotation puts behind a name: numbers and dates (logrotate, Python's handlers)."""
_COUNT = re.compile(r"^[.-][0-9]{1,4}$")


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
    for _ in range(TRIES):
        before = _listed(folder, name)
        found = _opened(folder, name, before)
        if _listed(folder, name) == before:
            break  # nothing was renamed meanwhile: no file is missing, none is there twice
        close(list(found))
    else:
        found = _opened(folder, name, _listed(folder, name))
    return _ordered(found)


def _listed(folder: str, name: str) -> list[tuple[str, int]]:
    """Name and inode number of what rotation may have left."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.inode())
                for entry in entries
                if entry.name.startswith(name) and _ENDING.match(entry.name[len(name) :])
            )
    except OSError:
        return []


def _opened(folder: str, name: str, listed: list[tuple[str, int]]) -> dict[int, str]:
    """The last written of them, opened: descriptor and ending."""
    dated = []
    for entry, _ in listed:
        try:
            info = os.stat(os.path.join(folder, entry))
        except OSError:
            continue
        if stats.S_ISREG(info.st_mode):
            dated.append((info.st_mtime_ns, entry))
    found: dict[int, str] = {}
    for _, entry in sorted(dated)[-MOST:]:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(os.path.join(folder, entry), flags)
        except OSError:
            continue
        same = (_identity(item) == _identity(descriptor) for item in found)
        if not stats.S_ISREG(os.fstat(descriptor).st_mode) or any(same):
            os.close(descriptor)
        else:
            found[descriptor] = entry[len(name) :]
    return found


def _ordered(found: dict[int, str]) -> list[int]:
    """Oldest first, by when they were written.

    Several may have been in one tick of the file system's clock (up to 4 ms: a burst into a small
    rotating log). Their names then decide, in the direction that names take among the others.
    """
    rows = []
    for descriptor, ending in found.items():
        info = os.fstat(descriptor)
        number = [int(part) for part in re.findall("[0-9]+", ending)]
        rows.append((info.st_mtime_ns, number, descriptor))
    rows.sort()
    rises = 0
    for (old, low, _), (new, high, _) in zip(rows, rows[1:]):
        if old != new and low != high:
            rises += 1 if low < high else -1
    if rises < 0 or (not rises and _counted(list(found.values()))):
        rows.sort(key=lambda row: row[1], reverse=True)  # the highest number is the oldest
        rows.sort(key=lambda row: row[0])
    return [row[2] for row in rows]


def _counted(endings: list[str]) -> bool:
    """Whether names count files from the latest, as logrotate's and Python's do: .1, .2, .3."""
    numbers = sorted(int(ending[1:]) for ending in endings if _COUNT.match(ending))
    return len(numbers) == len(endings) and numbers in (
        list(range(len(numbers))),
        list(range(1, len(numbers) + 1)),
    )


def chain(path: str, place: dict[str, Any], guard: bytes, current: int) -> list[int]:
    """What to read before ``current``: the file the place was taken in, then later ones.

    ``guard`` are the bytes known to lie before the place; ``current`` is the file at ``path``, or
    was: what was rotated away after it comes later. Empty when the first cannot be found.
    """
    files = beside(path)
    fitting = [item for item in files if _is_predecessor(item, place, guard)]
    itself = [item for item in fitting if _identity(item) == (place["device"], place["inode"])]
    first = next(iter([*itself, *fitting]), None)
    kept = []
    if first is not None:
        after = _after(files, current) if _moved(path, current) else []
        kept = [first, *(item for item in later(files, first, current) if item not in after)]
    close([item for item in files if item not in kept])
    return kept


def since(path: str, open_file: int, current: int) -> list[int]:
    """The files that came and were rotated away after one that is still open."""
    files = beside(path)
    kept = later(files, open_file, current)
    if _moved(path, current):
        after = _after(files, current)
        kept = [item for item in kept if item not in after]
    close([item for item in files if item not in kept])
    return kept


def later(files: list[int], first: int, current: int) -> list[int]:
    """Those of ``files``, oldest first, that came after ``first``; not ``current``."""
    return [item for item in _after(files, first) if _identity(item) != _identity(current)]


def _after(files: list[int], one: int) -> list[int]:
    """Those of ``files``, oldest first, that came after ``one``."""
    known = [_identity(item) for item in files]
    if _identity(one) in known:
        return files[known.index(_identity(one)) + 1 :]
    written = os.fstat(one).st_mtime_ns  # it was removed, or is not rotated yet
    return [item for item in files if os.fstat(item).st_mtime_ns > written]


def _moved(path: str, descriptor: int) -> bool:
    """Whether another file, or none, is at ``path`` now."""
    try:
        info = os.stat(path)
    except OSError:
        return True
    return (info.st_dev, info.st_ino) != _identity(descriptor)


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
