"""Reset a GPU: only when its driver asks for that, nothing holds the device, and it was typed.

What the driver asks for is its recovery action (nvidia-smi, "GPU Recovery Action"): "gpu reset"
wants all processes ended first; with "drain and reset" those that run may finish, and nothing new
is begun on the device; "drain p2p" wants processes that use several devices ended and persistence
mode off, after which the driver names another action; all others want more than the device reset.
"""

from __future__ import annotations

import asyncio
import time

from console.actions.journal import new_plan_id
from console.actions.steps import Context, Outcome
from console.errors import Refused
from console.model import Gpu, Host, Plan, Process, Snapshot, Step, StepKind
from console.remote import Completed
from console.text import clean, mask
from console.zombies.devices import RESET, holders, keeps_open

LOOK_S = 20.0
"""How long the driver may take to answer a look."""
VERIFY_S = 60.0
"""How long a device may take to be itself again after its reset."""
RESET_S = 120.0
TRIES = 3
PAUSE_S = 1.0
"""The device is let go of a moment after the process that had it open has been killed."""
_ELSE = {
    "drain p2p": "end the jobs that use several GPUs together, switch persistence mode off "
    "(nvidia-smi -pm 0), look again: the driver then asks for something else",
    "node reboot": "reboot the host",
    "system reboot": "reboot the host",
    "bus reset": "its PCIe bus is to be reset, which a reboot does",
    "imex": "recover its IMEX domain",
}


def plan_reset(snapshot: Snapshot, index: int, *, host: Host) -> Plan:
    """Reset GPU ``index``. Its one step wants ``HOST:INDEX`` typed.

    Raises:
        Refused: the driver asks for something else, something holds the device, or either is
            unknown.
    """
    place = f"{host.name}: GPU {index}"
    gpu = next((gpu for gpu in snapshot.gpus if gpu.index == index), None)
    if gpu is None or snapshot.gpu_error:
        why = snapshot.gpu_error or "not listed"
        raise Refused(f"the device cannot be read: {why}", place=place)
    admit(gpu, snapshot, place)
    step = Step(
        StepKind.RESET_GPU,
        host.name,
        f"reset GPU {index} ({gpu.name}), as its driver asks",
        argv=("nvidia-smi", "--gpu-reset", "-i", gpu.uuid),
        dangerous=True,
        verify="right before it still asks and nothing holds it; after it, it does not ask",
        timeout_s=RESET_S + VERIFY_S + LOOK_S,
        params={"confirm": f"{host.name}:{index}", "gpu": index, "uuid": gpu.uuid},
    )
    lines = [f"reset GPU {index} of {host.name} ({gpu.uuid}): {gpu.asks}; nothing holds it"]
    lines += [
        f"{p.comm} ({p.id.pid}) keeps devices open: if nvidia-smi says 'in use', stop it first"
        for p in snapshot.processes
        if keeps_open(p) and p.nvidia_minors
    ]
    return Plan(
        new_plan_id("reset"),
        "reset-gpu",
        host.name,
        (step,),
        created_at=snapshot.time,
        summary=tuple(lines),
    )


def admit(gpu: Gpu, snapshot: Snapshot, place: str) -> None:
    """Let a device pass that may be reset now.

    Raises:
        Refused: why not; what is unknown is a reason.
    """
    if gpu.recovery_action is None:
        raise Refused("whether its driver asks for a reset is not known", place=place)
    if gpu.asks not in RESET:
        hint = _ELSE.get(gpu.asks or "", "a reset is for a device whose driver asks for one")
        raise Refused(f"its driver asks for: {gpu.asks or 'nothing'}", place=place, hint=hint)
    if not gpu.uuid:
        raise Refused("it has no UUID, and an index may mean another device", place=place)
    if snapshot.uid != 0:
        hint = "log in as root, or sudo: true in hosts.yaml"
        raise Refused("only root may reset it and sees who holds it", place=place, hint=hint)
    if gpu.error or not snapshot.processes_complete:
        why = gpu.error or "not every process can be seen"
        raise Refused(f"who holds it is not known: {why}", place=place)
    if held := holders(gpu, snapshot):
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        who = ", ".join(_who(*one) for one in list(held.items())[:5])
        hint = "end them first"
        if gpu.asks == "drain and reset":
            hint = "what runs may finish; begin nothing new on it, reset it when these have ended"
        raise Refused(f"held by {who}{more}", place=place, hint=hint)


def _who(pid: int, process: Process | None) -> str:
    if process is None:
        return f"{pid} (not visible here)"
    return f"{pid} ({process.user}, {clean(mask(process.title), limit=60)})"


async def reset_step(step: Step, context: Context) -> Outcome:
    """RESET_GPU: look once more, let go of the driver, reset, and look what it says then.

    ``params``: ``gpu`` (index, for the words) and ``uuid``, which names the device. Begun again
    after an interruption it first looks, and does nothing where the driver asks for nothing.
    """
    uuid, place = str(step.params["uuid"]), f"{step.host}: GPU {step.params['gpu']}"
    gpu, snapshot, why = await _look(context, uuid, LOOK_S)
    if gpu is None:
        return Outcome("failed", f"nothing was done: {why}")
    if gpu.recovery_action == "none":
        ended = "it was reset before" if context.in_doubt else "nothing was done"
        return Outcome("ok", f"its driver does not ask any more; {ended}", {"reset": False})
    admit(gpu, snapshot, place)
    try:
        done = await _reset(step, context)
    finally:
        await context.remote.quiesce(0.0)
    said = clean(mask((done.stdout + done.stderr).decode("utf-8", "replace").strip()), limit=300)
    if done.code != 0:
        how = f"exit {done.code}" if done.code is not None else f"no end in {RESET_S:.0f} s"
        return Outcome("failed", f"nvidia-smi: {how}: {said or 'no output'}", {"code": done.code})
    return await _verified(context, uuid, said)


async def _reset(step: Step, context: Context) -> Completed:
    """The command; once more where the agent's own look still has the device open."""
    for left in reversed(range(TRIES)):
        await context.remote.quiesce(RESET_S + PAUSE_S)
        done = await context.remote.run(step.argv, timeout_s=RESET_S)
        busy = b"in use" in (done.stdout + done.stderr).lower()
        if done.code in (0, None) or not busy or not left:
            break
        await asyncio.sleep(PAUSE_S)
    return done


async def _verified(context: Context, uuid: str, said: str) -> Outcome:
    deadline = time.monotonic() + VERIFY_S
    while True:
        left = deadline - time.monotonic()
        gpu, _, why = await _look(context, uuid, max(1.0, left))
        if gpu is not None and gpu.recovery_action == "none":
            return Outcome("ok", f"{said or 'reset'}; its driver asks for nothing", {"reset": True})
        if left <= 0:
            asks = f"its driver still asks for: {gpu.asks}" if gpu and gpu.asks else ""
            why = asks or why or "its driver does not say"
            return Outcome("failed", f"reset, NOT verified: {why}", {"reset": True})
        context.say(f"waiting for the device: {why or (gpu.asks if gpu else '') or '?'}")
        await asyncio.sleep(PAUSE_S)


async def _look(context: Context, uuid: str, bound_s: float) -> tuple[Gpu | None, Snapshot, str]:
    """The device in a fresh look, or why it is not there when the bound is over."""
    deadline = time.monotonic() + bound_s
    while True:
        snapshot = await context.remote.snapshot(full=True)
        found = next(
            (g for g in snapshot.gpus if g.uuid == uuid and g.mig in (None, "enabled")), None
        )
        why = snapshot.gpu_error or "the device is not listed"
        if (found is not None and not snapshot.gpu_error) or time.monotonic() >= deadline:
            return found if not snapshot.gpu_error else None, snapshot, why if not found else ""
        await asyncio.sleep(0.25)
