"""Verdicts on what has no process of ours: ghost memory, leftovers, and what belongs to others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from console.model import Artefact, Gpu, Process, Resource, Zombie, ZombieKind
from console.zombies import family
from console.zombies.devices import asked
from console.zombies.evidence import Case, ago, mib, of_process, of_resource, resource_id
from console.zombies.world import Instance, World

_LEFT = re.compile(
    r"nccl-|psm_|torch_\d+_|sem\.mp-|sem\.loky-|sgl_shm_|multi_tokenizer_args_|sglang_loads_"
    r"|cuda\.shm\.|vllm_offload_|__KMP_REGISTERED_LIB_|eagle3_|specops_"
)
"""Names under /dev/shm that NCCL, multiprocessing, torch, SGLang, vLLM, CUDA and OpenMP make."""
_STAMP = re.compile(
    r"(?:sgl_shm_[a-z_]+_|multi_tokenizer_args_|__KMP_REGISTERED_LIB_|sem\.loky-)(\d+)"
)
"""Names that hold their maker's pid. ``sem.mp-*`` and ``sem.loky-*`` are mapped by whoever uses
them, as long as he does, so that one nobody maps can be used by nobody who has it; loky's are never
taken while their maker lives, since he may have sent the name to a child that has not opened it."""


def ghost_memory(world: World, before: World | None) -> Iterator[Zombie]:
    """Devices that hold memory no process on this host accounts for."""
    if world.snapshot.gpu_error is not None:
        return
    earlier = {gpu.uuid: gpu for gpu in before.snapshot.gpus} if before else {}
    for gpu in world.snapshot.gpus:
        lost = _unaccounted(gpu, world)
        if lost is None or lost <= world.policy.ghost_mib or gpu.mig is not None:
            continue
        if before is not None:
            was = _unaccounted(earlier[gpu.uuid], before) if gpu.uuid in earlier else None
            if was is None or was <= world.policy.ghost_mib:
                continue  # a process that has just ended is still being taken apart
        yield _ghost(gpu, lost, world, seen_twice=before is not None)


def _unaccounted(gpu: Gpu, world: World) -> float | None:
    """Used memory less that of the listed processes that are here; ``None`` where unknown."""
    if gpu.memory_used_mib is None or gpu.error:
        return None
    here = [listed for listed in gpu.processes if listed.pid in world.by_pid]
    if any(listed.memory_mib is None for listed in here):
        return None
    return gpu.memory_used_mib - sum(listed.memory_mib or 0.0 for listed in here)


def _ghost(gpu: Gpu, lost: float, world: World, *, seen_twice: bool) -> Zombie:
    case = Case()
    case.add(0.6, f"GPU {gpu.index}: {mib(lost)} in use that no process here accounts for")
    if seen_twice:
        case.add(0.3, "in both samples")
    for listed in gpu.processes:
        if listed.pid not in world.by_pid:
            held = mib(listed.memory_mib)
            case.add(0.1, f"the driver lists pid {listed.pid} with {held}; no such process here")
    listed_pids = {listed.pid for listed in gpu.processes}
    for process in world.snapshot.processes:
        if gpu.index in process.nvidia_minors and process.id.pid not in listed_pids:
            case.add(
                0.0, f"/dev/nvidia{gpu.index} is open in {process.id.pid} ({process.title[:60]})"
            )
    if not world.snapshot.processes_complete:
        case.add(-0.3, "but not all processes of this host can be seen by this login")
    if asks := asked(gpu, world.snapshot):
        case.add(0.0, asks)
    why = "no process to signal: look on the hypervisor or in other containers, else reset the GPU"
    name = f"g{gpu.index}"
    resource = Resource("gpu", gpu=gpu.index)
    return of_resource(
        ZombieKind.GHOST_MEMORY,
        name,
        resource,
        case,
        user="",
        why_not=why,
        memory_mib=lost,
    )


def leftovers(world: World) -> Iterator[Zombie]:
    """Segments, sockets, locks and ports that dead servers left."""
    for artefact in world.snapshot.artefacts:
        if artefact.type == "port":
            continue
        if artefact.type == "shm" and not made_by_servers(artefact.path):
            continue
        if artefact.holders:
            continue  # in use
        yield _leftover(artefact, world)
    yield from _ports(world)


def made_by_servers(path: str) -> bool:
    """Whether a segment has a name that servers' libraries give: nothing else there is litter.

    They make theirs right in /dev/shm; what lies in a folder below it (weights, say) was put there.
    """
    folder, _, name = path.rpartition("/")
    return folder == "/dev/shm" and _LEFT.match(name) is not None  # noqa: S108 - compared


def _leftover(artefact: Artefact, world: World) -> Zombie:
    case = Case()
    case.add(0.2, f"{artefact.type}, {artefact.size_bytes / 2**20:.1f} MiB, of {artefact.user}")
    why_not = None
    if artefact.holders is None:
        why_not = "whether a process maps or opens it cannot be seen by this login"
    elif not world.snapshot.processes_complete:
        why_not = "not all processes of this host can be seen by this login"
    else:
        case.add(0.4, "no process maps it or has it open")
    if artefact.uid in {world.snapshot.uid} | world.policy.users:
        case.add(0.2, "owned by this login")
    else:
        why_not = f"belongs to {artefact.user}"
    if artefact.age_s >= world.policy.leftover_age_s:
        case.add(0.2, f"last changed {ago(artefact.age_s)} ago")
    else:
        why_not = why_not or f"changed {ago(artefact.age_s)} ago; a server may be starting"
    if stamp := _STAMP.search(artefact.path):
        maker = world.by_pid.get(int(stamp[1]))
        if maker is None:
            case.add(0.1, f"made by pid {stamp[1]}, which has exited")
        elif maker.age_s >= artefact.age_s:
            why_not = f"its maker {stamp[1]} still runs"
        else:
            case.add(0.1, f"made by an earlier process with the number {stamp[1]}")
    return of_resource(
        ZombieKind.LEFTOVER,
        resource_id(ZombieKind.LEFTOVER, artefact.path, artefact.device, artefact.inode),
        Resource(artefact.type, path=artefact.path),
        case,
        user=artefact.user,
        why_not=why_not,
        memory_mib=artefact.size_bytes / 2**20,
        start_time=world.snapshot.time - artefact.age_s,
    )


def managed_ports(world: World) -> frozenset[int]:
    """The ports of configured servers and of runs that have not ended."""
    runs = {run.port for run in world.known.runs if run.ended_at is None}
    return frozenset(runs | {server.port for server in world.known.servers.values()})


def _ports(world: World) -> Iterator[Zombie]:
    for port in sorted(managed_ports(world) & world.snapshot.listening.keys()):
        pid = world.snapshot.listening[port]
        if pid is not None and pid in world.by_pid:
            continue  # a process holds it: that process is the matter
        case = Case()
        case.add(0.6, f"port {port} is listened on, and no process here is seen to hold it")
        why = "its holder is in another namespace or hidden from this login"
        yield of_resource(
            ZombieKind.LEFTOVER,
            resource_id(ZombieKind.LEFTOVER, "port", port),
            Resource("port", port=port),
            case,
            user="",
            why_not=why,
            memory_mib=None,
        )


def foreign(world: World, taken: Iterable[int]) -> Iterator[Zombie]:
    """Processes of others that hold device memory or a managed port: shown, never proposed."""
    skip = set(taken)
    ports = managed_ports(world)
    for process in world.snapshot.processes:
        if process.id.pid in skip or family.dead(process):
            continue
        instance = world.belongs.get(process.id)
        if instance is not None and _ours(instance, world):
            continue
        if instance is not None and process.id != instance.launcher.id:
            continue  # the launcher stands for its server
        together = instance.members if instance else ()
        if zombie := _foreign(process, together, ports, world):
            yield zombie


def _ours(instance: Instance, world: World) -> bool:
    return instance.managed and world.veto(instance.launcher) is None


def _foreign(
    process: Process, together: tuple[Process, ...], ports: frozenset[int], world: World
) -> Zombie | None:
    group = together or (process,)
    devices = {i for p in group for i, held in p.gpu_memory_mib.items() if held is None or held > 0}
    held_ports = sorted({port for p in group for port in p.listening} & ports)
    if not devices and not held_ports:
        return None
    case = Case()
    case.add(0.0, f"{process.user}, up {ago(process.age_s)}: {process.title[:120]}")
    for port in held_ports:
        case.add(0.0, f"listens on port {port}, which a configured server needs")
    why = world.veto(process)
    if why is None and together:
        why = "a server nobody configured or recorded; specops adopt takes it over"
    return of_process(
        ZombieKind.FOREIGN,
        process,
        case,
        world.snapshot,
        why_not=why or "not a model server that is known here",
        together=together,
    )
