"""A plan to reset a GPU, from a fresh look at its host."""

from __future__ import annotations

import asyncio
import time

from console.actions.reset import LOOK_S, plan_reset
from console.errors import AgentError, Refused
from console.model import Plan
from console.remote import Remote


async def plan_gpu_reset(remote: Remote, index: int) -> Plan:
    """What a reset of GPU ``index`` would do.

    Raises:
        Refused: the driver does not ask for it, something holds the device, or either cannot be
            known from here.
        AgentError: the host only shows what it can without an agent.
    """
    host = remote.host
    if remote.degraded:
        hint = "install python3 there, or set python: in hosts.yaml"
        raise AgentError(remote.degraded, place=host.name, hint=hint)
    if not remote.hello.init_namespace or remote.hello.through:
        above = host.outer.host if host.outer else "HYPERVISOR"
        raise Refused(
            "who else holds the device is not seen from inside a container",
            place=f"{host.name}: GPU {index}",
            hint=f"specops reset-gpu {above} INDEX",
        )
    until = time.monotonic() + LOOK_S
    snapshot = await remote.snapshot(full=True)
    while snapshot.gpu_error and time.monotonic() < until:
        await asyncio.sleep(0.25)
        snapshot = await remote.snapshot(full=True)
    return plan_reset(snapshot, index, host=host)
