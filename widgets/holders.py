"""Which devices of a host are free, and who holds the rest. Pure; unknown is never free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from console.model import Gpu, HostView, Process
from widgets.bars import gib
from widgets.words import safe

IDLE_SHARE = 0.02
"""Of a device's memory so much may be in use by the driver alone: an H100 idles at 0.6 %."""

Use = Literal["free", "held", "unknown"]


def use_of(gpu: Gpu) -> Use:
    """Whether a device is free: nobody is listed on it and its memory is all but empty."""
    if gpu.processes:
        return "held"
    if gpu.error or gpu.memory_used_mib is None or not gpu.memory_total_mib:
        return "unknown"
    return "free" if gpu.memory_used_mib <= IDLE_SHARE * gpu.memory_total_mib else "held"


def free_count(view: HostView) -> int | None:
    """How many devices are free; ``None`` where that of any is unknown, or there are none."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.gpu_error or not snapshot.gpus:
        return None
    uses = [use_of(gpu) for gpu in snapshot.gpus]
    return None if "unknown" in uses else uses.count("free")


def numbers(found: Sequence[int]) -> str:
    """Numbers as ranges: ``0-3,6``."""
    parts: list[list[int]] = []
    for number in sorted(found):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def owners(view: HostView) -> dict[int, str]:
    """Whose each process is: a server's by run or parentage, else its user's."""
    snapshot = view.snapshot
    if snapshot is None:
        return {}
    runs = {run.run_id: run.server for run in view.runs}
    mains = {state.pid: state.name for state in view.servers if state.pid is not None}
    by_pid = {process.id.pid: process for process in snapshot.processes}

    def owner(process: Process) -> str:
        at: Process | None = process
        for _ in range(8):  # a rank is a child or grandchild of its launcher
            if at is None:
                break
            if name := runs.get(at.run_id or "") or mains.get(at.id.pid):
                return safe(name)
            at = by_pid.get(at.ppid)
        return safe(f"{process.user}: {process.comm} {process.id.pid}")

    return {pid: owner(process) for pid, process in by_pid.items()}


def device_use(view: HostView) -> list[tuple[str, str]]:
    """Devices by what holds them, as (which, by whom and how much), free ones first."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.gpus:
        return []
    whose = owners(view)
    groups: dict[tuple[Use, tuple[str, ...]], list[Gpu]] = {}
    for gpu in snapshot.gpus:
        use = use_of(gpu)
        names = [whose.get(p.pid, f"pid {p.pid}, of another namespace") for p in gpu.processes]
        groups.setdefault((use, tuple(dict.fromkeys(names))), []).append(gpu)
    out = []
    for (use, who), gpus in sorted(groups.items(), key=lambda item: item[0][0] != "free"):
        which = f"GPU {numbers([gpu.index for gpu in gpus])}"
        if use == "free":
            out.append((which, f"free ({len(gpus)} of {len(snapshot.gpus)})"))
        elif use == "unknown":
            reason = next((safe(gpu.error) for gpu in gpus if gpu.error), "memory not told")
            out.append((which, f"? {reason}"))
        else:
            holders = " + ".join(who) or "nobody that can be seen from here"
            out.append((which, f"{holders}, {_held(gpus)}"))
    return out


def _held(gpus: Sequence[Gpu]) -> str:
    amounts = [gpu.memory_used_mib for gpu in gpus]
    known = [amount for amount in amounts if amount is not None]
    if len(known) < len(amounts):
        return "? each"
    low, high = min(known), max(known)
    each = " each" if len(gpus) > 1 else ""
    return f"{gib(high)}{each}" if gib(low) == gib(high) else f"{gib(low)} to {gib(high)}{each}"
