"""Reads one process from /proc. Names of processes are hostile bytes; nothing here trusts them."""

from __future__ import annotations

import functools
import os
import re
from typing import Any, NamedTuple

from console.agent.machine import read

ARGV_LIMIT = 16 * 1024
"""Bytes of a command line that are kept."""
ENV_EXACT = {
    "SPECOPS_RUN_ID", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_ID",
    "LS_JOBID", "PBS_JOBID", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "container", "KUBERNETES_SERVICE_HOST", "INVOCATION_ID",
    "PYTORCH_CUDA_ALLOC_CONF", "EAGLE3_PROFILE", "TMUX", "STY", "JPY_PARENT_PID",
}  # fmt: skip
ENV_PREFIXES = ("NCCL_", "SGLANG_", "SGL_", "VLLM_", "TORCHELASTIC_", "CUDA_MPS_", "EAGLE3_")
_SECRET = re.compile("(?i)key|token|secret|passw|credential|auth")
_CONTAINER = re.compile(
    r"(?:docker[-/]|cri-containerd-|crio-|libpod-)([0-9a-f]{12})[0-9a-f]{52}"
    r"|/lxc(?:\.payload)?[./]([\w.-]+)|/machine\.slice/machine-([^/]+)\.scope"
    r"|/(kubepods)[./]"
)
_UNIT = re.compile(r"([^/]+\.(?:service|scope))(?:/|$)")


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that specops uses; times in clock ticks, rss in pages."""

    comm: bytes
    state: str
    ppid: int
    pgid: int
    sid: int
    flags: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    rss_pages: int

    @property
    def kernel_thread(self) -> bool:
        """Whether the kernel marks it PF_KTHREAD (include/linux/sched.h)."""
        return bool(self.flags & 0x00200000)

    @property
    def exiting(self) -> bool:
        """Whether the kernel marks it PF_EXITING (include/linux/sched.h)."""
        return bool(self.flags & 0x00000004)


def parse_stat(data: bytes) -> Stat:
    """Parse from the last ``)``: a process may name itself ``) R 1 (``. Raises ``ValueError``."""
    opened, closed = data.find(b"("), data.rfind(b")")
    rest = data[closed + 1 :].split()
    if opened < 0 or closed < opened or len(rest) < 22:
        raise ValueError("not a stat line")
    return Stat(
        comm=data[opened + 1 : closed],
        state=rest[0].decode("ascii", "replace"),
        ppid=int(rest[1]),
        pgid=int(rest[2]),
        sid=int(rest[3]),
        flags=int(rest[6]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        threads=int(rest[17]),
        start_ticks=int(rest[19]),
        rss_pages=int(rest[21]),
    )


def stat(pid: int, thread: int | None = None) -> Stat | None:
    """The stat of a process or one of its threads; ``None`` when it is gone.

    Raises ``OSError`` where that cannot be known: a host without free descriptors or memory must
    not look like one without processes.
    """
    path = "/proc/{}/stat".format(pid)
    if thread is not None:
        path = "/proc/{}/task/{}/stat".format(pid, thread)
    try:
        return parse_stat(read(path, 4096))
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None


def visible(pid: int) -> Stat | None:
    """The stat of a process; ``None`` when it is gone or hidden from this login."""
    try:
        return stat(pid)
    except PermissionError:
        return None


def hides_nothing() -> bool:
    """Whether /proc shows the processes of other users too (``hidepid`` off, or root).

    One kind of it hides the folder of another's process, one only what is in it.
    """
    return os.geteuid() == 0 or os.access("/proc/1/stat", os.R_OK)


def pids() -> list[int]:
    """All pids that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def tasks(pid: int) -> list[int]:
    """The thread ids of a process; empty when it is gone. Raises ``OSError`` as :func:`stat`."""
    try:
        return [int(name) for name in os.listdir("/proc/{}/task".format(pid)) if name.isdigit()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def task_states(pid: int) -> dict[int, str]:
    """Each thread's state letter; threads that end meanwhile are left out."""
    states = {}
    for thread in tasks(pid):
        seen = stat(pid, thread)
        if seen is not None:
            states[thread] = seen.state
    return states


def base(pid: int, state: str) -> str:
    """The folder to read from: a live thread's where the leader has ended and hides its own."""
    if state in "ZX":
        for thread in tasks(pid):
            seen = stat(pid, thread) if thread != pid else None
            if seen is not None and seen.state not in "ZX":
                return "/proc/{}/task/{}".format(pid, thread)
    return "/proc/{}".format(pid)


def kept_variables(data: bytes) -> dict[str, str]:
    """The variables that may leave the host: named ones and known prefixes, never a secret."""
    kept: dict[str, str] = {}
    for entry in data.split(b"\0"):
        raw, _, value = entry.partition(b"=")
        name = raw.decode("utf-8", "backslashreplace")
        wanted = name in ENV_EXACT or name.startswith(ENV_PREFIXES)
        if wanted and not _SECRET.search(name) and len(kept) < 200:
            kept[name] = value[:2048].decode("utf-8", "backslashreplace")
    return kept


def owner_of_cgroup(cgroup: str) -> tuple[str | None, str | None]:
    """The systemd unit and the container that a cgroup path names."""
    container = _CONTAINER.search(cgroup)
    units = _UNIT.findall(cgroup)
    found = next((group for group in container.groups() if group), None) if container else None
    return (units[-1] if units else None), found


@functools.lru_cache(maxsize=None)
def own_container() -> str | None:
    """The container that the agent itself runs in."""
    try:
        return owner_of_cgroup(cgroup_path(read("/proc/self/cgroup", 16384)))[1]
    except OSError:
        return None


def cgroup_path(data: bytes) -> str:
    """The cgroup of a process: version 2's line, else the one systemd keeps, else the first."""
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    by_kind = {
        line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") > 1
    }
    for kind in ("", "name=systemd"):
        if by_kind.get(kind, "/") != "/":
            return by_kind[kind]
    return max(by_kind.values(), key=len, default="")


def descriptors(folder: str) -> tuple[list[int], set[int]] | None:
    """(NVIDIA device minors, socket inodes) open in a process; ``None`` when not allowed to see."""
    minors: set[int] = set()
    sockets: set[int] = set()
    try:
        names = os.listdir(folder + "/fd")
    except FileNotFoundError:
        return [], set()
    except OSError:
        return None
    for name in names:
        try:
            target = os.readlink("{}/fd/{}".format(folder, name))
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(int(target[8:-1]))
        elif target.startswith("/dev/nvidia") and target[11:].isdigit():
            minors.add(int(target[11:]))
    return sorted(minors), sockets


def details(pid: int, seen: Stat) -> dict[str, Any]:
    """What rarely changes: owner, command line, variables, cgroup, namespace."""
    folder = base(pid, seen.state)
    row: dict[str, Any] = {"readable": True, "env": {}, "argv": [], "cgroup": "", "uid": -1}
    try:
        status = read(folder + "/status", 8192)
        for line in status.splitlines():
            if line.startswith(b"Uid:"):
                row["uid"] = int(line.split()[2])  # the effective one
            elif line.startswith(b"NSpid:"):
                row["foreign_namespace"] = len(line.split()) > 2
                row["inner_pid"] = int(line.split()[-1])
        row["cgroup"] = cgroup_path(read(folder + "/cgroup", 16384))
        argv = read(folder + "/cmdline", ARGV_LIMIT)
        words = argv.rstrip(b"\0").split(b"\0") if argv.strip(b"\0") else []
        row["argv"] = [word.decode("utf-8", "backslashreplace") for word in words]
    except OSError:
        row["readable"] = False
    try:
        row["env"] = kept_variables(read(folder + "/environ", 256 * 1024))
    except ProcessLookupError:  # a finished leader: it has no memory any more
        pass
    except OSError:
        row["readable"] = False
    try:
        row["pid_namespace"] = os.readlink(folder + "/ns/pid")
    except OSError:  # another user's, or a finished one
        row["pid_namespace"] = ""
    row["unit"], row["container"] = owner_of_cgroup(row["cgroup"])
    if row["container"] == own_container():
        row["container"] = None  # for whoever looks from inside, it is the host
    return row


def activity(pid: int, seen: Stat) -> dict[str, Any]:
    """What shows progress: I/O counters, where it waits, threads, descriptors."""
    folder = base(pid, seen.state)
    row: dict[str, Any] = {"read_bytes": None, "write_bytes": None, "wchan": None}
    try:
        for line in read(folder + "/io", 1024).splitlines():
            name, _, value = line.partition(b": ")
            if name in (b"read_bytes", b"write_bytes"):
                row[name.decode()] = int(value)
    except (OSError, ValueError):
        pass
    try:
        wchan = read(folder + "/wchan", 128).decode("ascii", "replace")
        row["wchan"] = wchan if wchan not in ("", "0") else None
    except OSError:
        pass
    opened = descriptors(folder)
    row["sockets"] = None if opened is None else opened[1]
    row["nvidia_minors"] = [] if opened is None else opened[0]
    return row
