"""What a device's driver asks for, and who holds the device. Pure."""

from __future__ import annotations

from console.model import Gpu, Process, Snapshot

RESET = frozenset({"gpu reset", "drain and reset"})
"""Recovery actions that a reset answers; the words are those of :mod:`console.agent.nvml`."""
_KEEPER = "nvidia-persiste"
"""nvidia-persistenced as the kernel cuts its name: it keeps devices open for nobody's work."""


def holders(gpu: Gpu, snapshot: Snapshot) -> dict[int, Process | None]:
    """Who holds a device, by pid; ``None`` for a pid that is nobody here.

    Those whom the driver lists, and those who have its file open. Where the file's number is not
    known any open device counts. An open file of what this console works through does not: that
    is its own look at the driver, which it lets go of.
    """
    by_pid = {process.id.pid: process for process in snapshot.processes}
    found: dict[int, Process | None] = {p.pid: by_pid.get(p.pid) for p in gpu.processes}
    for process in snapshot.processes:
        opened = process.nvidia_minors if process.id.pid not in snapshot.protected else ()
        mine = gpu.minor in opened if gpu.minor is not None else bool(opened)
        if mine or gpu.index in process.gpu_memory_mib:
            found[process.id.pid] = process
    return {pid: who for pid, who in sorted(found.items()) if not keeps_open(who)}


def keeps_open(process: Process | None) -> bool:
    """Whether a process only keeps devices awake, for nobody's work."""
    return process is not None and process.comm == _KEEPER


def asked(gpu: Gpu, snapshot: Snapshot) -> str | None:
    """What the driver asks for, as a line of evidence; ``None`` where it asks for nothing."""
    if gpu.asks is None:
        return None
    line = f"GPU {gpu.index}: its driver asks for: {gpu.asks}"
    if gpu.asks not in RESET:
        return line
    if snapshot.uid != 0:
        return f"{line}; who holds it is seen by root only"
    if held := holders(gpu, snapshot):
        return f"{line}; held by {', '.join(map(str, held))}, to be ended first"
    return f"{line}; nothing here holds it: specops reset-gpu HOST {gpu.index}"
