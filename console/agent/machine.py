"""The machine itself: who and where the agent is, memory, processors, the clock."""

from __future__ import annotations

import functools
import os
import platform
import threading
import time
from typing import Any

_users: dict[int, str] = {}
_lock = threading.Lock()


def read(path: str, limit: int = 1 << 20) -> bytes:
    """The bytes of a small file; raises ``OSError``."""
    with open(path, "rb") as source:
        return source.read(limit)


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """The kernel's id of this boot, "" where it is hidden; nobody's process outlives it."""
    try:
        return read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
    except (FileNotFoundError, PermissionError):
        return ""


_CLOCK_AT_BOOT = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def file_age(info: os.stat_result) -> float:
    """Seconds since a file was last changed, by the host's clock or by its uptime: the less.

    A clock that is set forward while the agent runs must not make a new file an old one.
    """
    counted = _CLOCK_AT_BOOT + time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, min(time.time(), counted) - max(info.st_mtime, info.st_ctime))


def user_name(uid: int) -> str:
    """The name of a user from /etc/passwd; its number where it is not there.

    The file is read directly: a name service (LDAP, SSSD) can hang.
    """
    with _lock:
        if not _users or uid not in _users:
            try:
                for line in read("/etc/passwd").decode("utf-8", "replace").splitlines():
                    fields = line.split(":")
                    if len(fields) > 2 and fields[2].isdigit():
                        _users.setdefault(int(fields[2]), fields[0])
            except OSError:
                pass
            _users.setdefault(uid, str(uid))
        return _users[uid]


def state_dir() -> str:
    """Where run records, journals and the lock live; not created by this.

    ``SPECOPS_STATE_DIR`` in the login's variables moves it, for a host with a read-only /var.
    """
    chosen = os.environ.get("SPECOPS_STATE_DIR", "")
    if chosen.startswith("/"):
        return chosen
    if os.geteuid() == 0:
        return "/var/lib/specops"
    home = os.environ.get("HOME", "")
    if not home.startswith("/"):
        home = "/nonexistent"
        for line in read("/etc/passwd").decode("utf-8", "replace").splitlines():
            fields = line.split(":")
            if len(fields) > 5 and fields[2] == str(os.geteuid()):
                home = fields[5]
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "specops")


def has_systemd() -> bool:
    """Whether systemd manages this machine (the test that systemd documents, sd_booted)."""
    return os.path.isdir("/run/systemd/system")


def nvml_library() -> str | None:
    """The path of NVIDIA's management library, found without loading it."""
    folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/local/lib",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ]
    extra = "" if "SUDO_UID" in os.environ else os.environ.get("LD_LIBRARY_PATH", "")
    for folder in [part for part in extra.split(":") if part.startswith("/")] + folders:
        path = os.path.join(folder, "libnvidia-ml.so.1")
        if os.path.exists(path):
            return path
    return None


def pid_namespace() -> str:
    """The kernel's name of the agent's pid namespace, "" where it is hidden."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def in_init_namespace() -> bool:
    """Whether this is the machine's first pid namespace, whose inode number the kernel fixes."""
    return pid_namespace() == "pid:[4026531836]"


def hello(version: str, read_only: bool) -> dict[str, Any]:
    """What the agent says first."""
    return {
        "agent_version": version,
        "python": platform.python_version(),
        "hostname": os.uname().nodename,
        "uid": os.geteuid(),
        "user": user_name(os.geteuid()),
        "pid": os.getpid(),
        "boot_id": boot_id(),
        "pid_namespace": pid_namespace(),
        "init_namespace": in_init_namespace(),
        "kernel": os.uname().release,
        "systemd": has_systemd(),
        "state_dir": state_dir(),
        "config_home": os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"),
        "read_only": read_only,
        "clock_ticks": os.sysconf("SC_CLK_TCK"),
        "time": time.time(),
        "nvml": nvml_library() is not None,
    }


def meminfo(data: bytes) -> dict[str, int]:
    """The values of /proc/meminfo in KiB."""
    values: dict[str, int] = {}
    for line in data.decode("ascii", "replace").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            values[name] = int(number[0])
    return values


def cpu_times(data: bytes) -> tuple[int, int] | None:
    """(busy, all) clock ticks of all processors from /proc/stat; guest time is in user time."""
    first = data.split(b"\n", 1)[0].split()
    if len(first) < 6 or first[0] != b"cpu":
        return None
    ticks = [int(word) for word in first[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class CpuSampler:
    """Memory and processor load; the load is over the time since the last call."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def sample(self) -> dict[str, Any] | None:
        """The ``cpu`` block, or ``None`` where /proc/meminfo is hidden."""
        try:
            memory = meminfo(read("/proc/meminfo"))
            now = cpu_times(read("/proc/stat"))
        except OSError:
            return None
        if "MemTotal" not in memory or "MemAvailable" not in memory:
            return None
        block: dict[str, Any] = {
            "memory_used_mib": (memory["MemTotal"] - memory["MemAvailable"]) / 1024,
            "memory_total_mib": memory["MemTotal"] / 1024,
            "cores": os.cpu_count() or 1,
            "utilization_pct": None,
        }
        before, self._before = self._before, now
        if before and now and now[1] > before[1]:
            block["utilization_pct"] = 100.0 * (now[0] - before[0]) / (now[1] - before[1])
        try:
            shm = os.statvfs("/dev/shm")  # noqa: S108
        except OSError:
            return block
        block["shm_total_mib"] = shm.f_blocks * shm.f_frsize / 1048576
        block["shm_used_mib"] = (shm.f_blocks - shm.f_bfree) * shm.f_frsize / 1048576
        return block
