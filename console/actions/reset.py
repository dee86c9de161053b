"""A plan to reset a GPU: only when the driver asks for it and nothing holds the device."""

from __future__ import annotations

from console.actions.journal import new_plan_id
from console.errors import Refused
from console.model import Host, Plan, Snapshot, Step, StepKind

ASKS_RESET = frozenset({"reset", "gpu reset", "drain and reset"})
"""Recovery actions of the driver (NVML field 230) that a reset answers; others need a reboot."""


def plan_reset(snapshot: Snapshot, index: int, *, host: Host) -> Plan:
    """Reset GPU ``index``. Its one step is marked for a typed confirmation.

    Raises:
        Refused: the driver asks for something else, something holds the device, or either is
            unknown.
    """
    place = f"{host.name}: GPU {index}"
    gpu = next((gpu for gpu in snapshot.gpus if gpu.index == index), None)
    if gpu is None or snapshot.gpu_error:
        raise Refused(
            f"the device cannot be read: {snapshot.gpu_error or 'not listed'}", place=place
        )
    action = (gpu.recovery_action or "unknown").lower().replace("_", " ").replace("-", " ")
    if action not in ASKS_RESET:
        hint = "a reset is for a device whose driver asks for one"
        raise Refused(f"its driver's recovery action is: {action}", place=place, hint=hint)
    open_in = [
        p for p in snapshot.processes if index in p.nvidia_minors or index in p.gpu_memory_mib
    ]
    holders = sorted({p.id.pid for p in open_in} | {p.pid for p in gpu.processes})
    if holders or not snapshot.processes_complete:
        who = ", ".join(map(str, holders)) or "processes this login cannot see, perhaps"
        raise Refused(f"held by {who}", place=place, hint="end them first")
    sudo = ("sudo", "-n") if host.sudo and snapshot.uid != 0 else ()
    step = Step(
        StepKind.RUN,
        host.name,
        f"reset GPU {index} ({gpu.name}), as its driver asks",
        argv=(*sudo, "nvidia-smi", "--gpu-reset", "-i", gpu.uuid),
        dangerous=True,
        verify="the driver no longer asks for it",
        timeout_s=120.0,
        params={"confirm": "typed", "gpu": index},
    )
    return Plan(
        new_plan_id("reset"),
        "reset-gpu",
        host.name,
        (step,),
        created_at=snapshot.time,
        summary=(f"reset GPU {index} of {host.name}; nothing holds it",),
    )
