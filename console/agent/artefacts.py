"""What servers leave behind: shared memory, sockets, lock files; and who still holds them."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat as stats
import time
from typing import Any

from console.agent import machine, proc

SHM = "/dev/shm"  # noqa: S108 - looked at, never written
SOCKETS = re.compile(r"(?i)ipc|zmq|sglang|sgl_|vllm|torch|nccl|ray|eagle3|specops")
LOCKS = re.compile(r"\.lock$|^lock$")
OUR_LOCKS = re.compile(r"(?i)torch|triton|nccl|sgl|vllm|flashinfer|deep_gemm|eagle3|specops")
"""In a folder that every program uses, only locks of what servers are made of."""
SOCKET_FOLDERS = ("/tmp", "/var/tmp", "/run/specops")  # noqa: S108
LOCK_FOLDERS = (
    "/tmp",  # noqa: S108
    "~/.cache/torch_extensions",
    "~/.triton/cache",
    "~/.cache/huggingface/hub/.locks",
    "~/.cache/sglang",
    "~/.cache/flashinfer",
    "~/.cache/deep_gemm",
)
MAX_FOUND = 5_000
_MAP = re.compile(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.M)


class Holders:
    """Which processes map or have open which file, over *all* processes.

    ``blind`` when any process could not be looked into: it may hold anything, so that "nobody
    holds it" becomes "unknown".
    """

    def __init__(self) -> None:
        self.by_file: dict[tuple[int, int], set[int]] = {}
        self.blind = not proc.hides_nothing()
        self.elsewhere = not machine.in_init_namespace()
        for pid in proc.pids():
            self._look_into(pid)
        self.sockets = _unix_sockets()
        self._locks = _locked_inodes()

    def _look_into(self, pid: int) -> None:
        try:
            seen = proc.stat(pid)
        except PermissionError:  # hidden from this login
            self.blind = True
            return
        if seen is None or seen.kernel_thread:
            return
        folder = proc.base(pid, seen.state)
        if seen.state in "ZX" and folder == "/proc/{}".format(pid):
            return  # finished with all its threads: holds nothing
        try:
            self._add_maps(pid, machine.read(folder + "/maps", 64 << 20))
            for name in os.listdir(folder + "/fd"):
                try:
                    info = os.stat("{}/fd/{}".format(folder, name))
                except FileNotFoundError:
                    continue
                self.by_file.setdefault((info.st_dev, info.st_ino), set()).add(pid)
        except (FileNotFoundError, ProcessLookupError):
            if proc.stat(pid) is not None and seen.state not in "ZX":
                self.blind = True
        except OSError:
            # The machine's own init opens no server's files; some machines hide it even from root.
            self.blind = self.blind or pid != 1 or self.elsewhere

    def _add_maps(self, pid: int, data: bytes) -> None:
        for major, minor, inode in _MAP.findall(data):
            if inode != b"0":
                device = os.makedev(int(major, 16), int(minor, 16))
                self.by_file.setdefault((device, int(inode)), set()).add(pid)

    def of(self, path: str, info: os.stat_result) -> list[int] | None:
        """The pids that hold a file; ``None`` when that cannot be seen.

        Another pid namespace may share /dev/shm (``--ipc=host``), so that from inside a container
        nobody can know; a bound socket's path and a lock are seen without their processes.
        """
        found = set(self.by_file.get((info.st_dev, info.st_ino), ()))
        bound = stats.S_ISSOCK(info.st_mode) and (path in self.sockets or _answers(path))
        if found:
            return sorted(found)
        if bound or self._locks.get((info.st_dev, info.st_ino)):
            return None
        return None if self.blind or (self.elsewhere and _shared(path)) else []


def _answers(path: str) -> bool:
    """Whether somebody is behind a socket, also one bound in another network namespace."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            error = probe.connect_ex(path)
        if error == errno.ECONNREFUSED:
            return False
        if error != errno.EPROTOTYPE:
            return error not in (errno.ENOENT, errno.ENOTSOCK)
    return True


def _shared(path: str) -> bool:
    """Whether processes outside this container may hold the path: /dev/shm mounted from outside."""
    if not path.startswith(SHM):
        return False
    try:
        for line in machine.read("/proc/self/mountinfo").decode("utf-8", "replace").splitlines():
            fields = line.split()
            if fields[4] == SHM:
                return fields[3] != "/"
    except (OSError, IndexError):
        return True
    return True


def _unix_sockets() -> set[str]:
    try:
        lines = machine.read("/proc/net/unix", 16 << 20).decode("utf-8", "replace").splitlines()
    except (FileNotFoundError, PermissionError):
        return set()
    return {line.split(None, 7)[7] for line in lines[1:] if len(line.split(None, 7)) == 8}


def _locked_inodes() -> dict[tuple[int, int], int]:
    locked: dict[tuple[int, int], int] = {}
    try:
        lines = machine.read("/proc/locks").decode("ascii", "replace").splitlines()
    except (FileNotFoundError, PermissionError):
        return locked
    for line in lines:
        fields = line.split()
        where = next((word for word in fields if word.count(":") == 2), "")
        if where:
            major, minor, inode = where.split(":")
            key = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            locked[key] = 1
    return locked


def _row(path: str, kind: str, holders: Holders) -> dict[str, Any] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not (stats.S_ISREG(info.st_mode) or stats.S_ISSOCK(info.st_mode)):
        return None
    return {
        "type": kind,
        "path": path,
        "uid": info.st_uid,
        "user": machine.user_name(info.st_uid),
        "size_bytes": info.st_blocks * 512,
        "age_s": machine.file_age(info),
        "device": info.st_dev,
        "inode": info.st_ino,
        "port": None,
        "holders": holders.of(path, info),
    }


def _walk(folder: str, depth: int) -> list[str]:
    """The files of a folder, a few levels deep, never through links."""
    found: list[str] = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries[:MAX_FOUND]:
        if entry.is_dir(follow_symlinks=False):
            if depth > 0:
                found.extend(_walk(entry.path, depth - 1))
        elif not entry.is_symlink():
            found.append(entry.path)
    return found


def find(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Segments, sockets and locks, and held ports of processes that can be seen."""
    holders = Holders()
    wanted = [(path, "shm") for path in _walk(SHM, 1)]
    for folder in SOCKET_FOLDERS:
        found = (path for path in _walk(folder, 1) if SOCKETS.search(path))
        wanted += [(path, "socket") for path in found if stats.S_ISSOCK(_mode(path))]
    for folder in LOCK_FOLDERS:
        deep = 0 if folder == LOCK_FOLDERS[0] else 3
        paths = _walk(os.path.expanduser(folder), deep)
        locks = [path for path in paths if LOCKS.search(os.path.basename(path))]
        if not deep:
            locks = [path for path in locks if OUR_LOCKS.search(os.path.basename(path))]
        wanted += [(path, "lock") for path in locks if stats.S_ISREG(_mode(path))]
    seen = [_row(path, kind, holders) for path, kind in wanted[:MAX_FOUND]]
    return [row for row in seen if row is not None] + _ports(rows)


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _ports(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    up = time.clock_gettime(time.CLOCK_BOOTTIME)
    tick = os.sysconf("SC_CLK_TCK")
    return [
        {
            "type": "port",
            "path": "tcp:{}".format(port),
            "uid": row["uid"],
            "user": row.get("user", "?"),
            "size_bytes": 0,
            "age_s": max(0.0, up - row["start"] / tick),
            "device": 0,
            "inode": 0,
            "port": port,
            "holders": [pid],
        }
        for pid, row in rows.items()
        for port in row.get("listening", ())
    ]
