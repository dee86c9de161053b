"""Verdicts on single processes: stuck-io, defunct, half-dead, orphan."""

from __future__ import annotations

from collections.abc import Iterator

from console.model import Process, Run, Zombie, ZombieKind
from console.zombies import family
from console.zombies.evidence import Case, ago, of_process
from console.zombies.roles import Part
from console.zombies.vetoes import init_like
from console.zombies.world import World

MAX_SILENCE_OK_S = 60.0
"""A log that grew within this time, or a client that is connected, speaks for a live server."""


def relevant(process: Process, world: World) -> bool:
    """Whether a process is a server's, by its title, its run id, or the device it holds."""
    role = world.role(process)
    named = role is not None and bool(role.engine)
    return named or process.run_id is not None or bool(process.gpu_memory_mib)


def verdict(process: Process, world: World) -> Zombie | None:
    """The verdict on one process by itself, or ``None``."""
    if not relevant(process, world):
        return None
    if world.veto(process) is not None:
        return None  # shown as foreign where it holds something
    if zombie := _stuck(process, world):
        return zombie
    if process.state in ("Z", "X"):
        return _defunct(process, world) if family.dead(process) else _half_dead(process, world)
    return _orphan(process, world)


def _stuck(process: Process, world: World) -> Zombie | None:
    """A thread that slept in the kernel in both samples, at the same place, with no I/O between."""
    before = world.earlier.get(process.id)
    now_d = [tid for tid, state in process.task_states.items() if state == "D"]
    if process.state == "D" and not now_d:
        now_d = [process.id.pid]
    if before is None or not now_d:
        return None
    was_d = {tid for tid, state in before.task_states.items() if state == "D"}
    if before.state == "D":
        was_d.add(before.id.pid)
    same = [tid for tid in now_d if tid in was_d]
    moved = (process.read_bytes, process.write_bytes, process.cpu_ticks) != (
        before.read_bytes,
        before.write_bytes,
        before.cpu_ticks,
    )
    if not same or moved or process.wchan != before.wchan:
        return None
    case = Case()
    where = f" in {process.wchan}" if process.wchan else ""
    case.add(0.7, f"thread {same[0]} sleeps in the kernel (state D){where} in both samples")
    case.add(0.2, "no CPU and no I/O between the samples")
    why = "no signal reaches a process in state D; free what it waits for (disk, NFS) or reboot"
    return of_process(ZombieKind.STUCK_IO, process, case, world.snapshot, why_not=why)


def _defunct(process: Process, world: World) -> Zombie:
    parent = world.by_pid.get(process.ppid)
    case = Case()
    case.add(0.9, "state Z: it has ended, every thread of it")
    if parent is not None:
        case.add(0.1, f"its parent {process.ppid} ({parent.comm}) has not collected it")
    if process.gpu_memory_mib:
        case.add(0.0, "the driver still lists it; that ends when its teardown does")
    why = "it is dead already; it disappears when its parent collects it or ends"
    return of_process(ZombieKind.DEFUNCT, process, case, world.snapshot, why_not=why)


def _half_dead(process: Process, world: World) -> Zombie:
    live = sorted(t for t, state in process.task_states.items() if state not in ("Z", "X"))
    case = Case()
    case.add(0.6, f"its main thread has ended (state {process.state})")
    shown = ", ".join(map(str, live[:4])) if live else f"{process.threads - 1} of them"
    case.add(0.3, f"threads still run: {shown}; they hold its files and memory")
    role = world.role(process)
    ours = process.run_id is not None or (role is not None and bool(role.engine))
    if ours:
        case.add(0.1, "it is part of a model server")
    why_not = None if ours else "nothing shows that it belongs to a model server"
    return of_process(ZombieKind.HALF_DEAD, process, case, world.snapshot, why_not=why_not)


def _orphan(process: Process, world: World) -> Zombie | None:
    role = world.role(process)
    run = world.runs.get(process.run_id or "")
    part = role.part if role and role.engine else None
    if (
        part is Part.LAUNCHER
        or process.id in world.belongs
        or (part is None and not process.run_id)
    ):
        return None
    launcher_gone = run is not None and world.alive(run.launcher) is False
    parent = world.by_pid.get(process.ppid)
    adopted = init_like(parent) or (parent is not None and family.dead(parent))
    if not adopted and not (launcher_gone and not _below_another(process, world)):
        return None  # something alive looks after it
    case = Case()
    _who_it_is(process, world, run, case)
    _who_is_gone(process, world, run, adopted, case)
    _what_speaks_against(process, world, run, launcher_gone, case)
    tree = world.table.descendants([process.id])
    together = [p for p in world.snapshot.processes if p.id in tree] if tree else []
    return of_process(
        ZombieKind.ORPHAN, process, case, world.snapshot, why_not=None, together=together
    )


def _below_another(process: Process, world: World) -> bool:
    """Whether its parent is of the same run and reported itself, or is part of a server."""
    parent = world.by_pid.get(process.ppid)
    if parent is None:
        return False
    if parent.id in world.belongs:
        return True
    return parent.run_id is not None and parent.run_id == process.run_id


def _who_it_is(process: Process, world: World, run: Run | None, case: Case) -> None:
    role = world.role(process)
    if role is not None and role.engine:
        case.add(0.2, f"a {role.engine} {role.part.value} by its title")
    if process.run_id:
        known = f", server {run.server}" if run else ", of which there is no record"
        case.add(0.15, f"run {process.run_id[:8]} in its environment{known}")


def _who_is_gone(
    process: Process, world: World, run: Run | None, adopted: bool, case: Case
) -> None:
    if adopted:
        case.add(0.2, f"ppid {process.ppid}: its parent has ended")
    if run is not None and run.launcher is not None and not world.alive(run.launcher):
        case.add(0.45, f"launcher {run.launcher.pid} of its run has exited")
    elif launcher := _seen_above(process, world):
        case.add(0.35, f"launcher {launcher.id.pid}, its parent in the sample before, has exited")
    leader = world.by_pid.get(process.sid)
    if leader is None:
        case.add(0.15, f"the leader of its session {process.sid} has exited")
    same = [i for i in world.instances if i.launcher.sid == process.sid]
    if not same:
        case.add(0.3, "no launcher lives in its run, session or cgroup")


def _seen_above(process: Process, world: World) -> Process | None:
    before = world.earlier.get(process.id)
    if before is None or before.ppid == process.ppid:
        return None
    parent = next((p for p in world.earlier.values() if p.id.pid == before.ppid), None)
    return parent if parent is not None and world.alive(parent.id) is False else None


def _what_speaks_against(
    process: Process, world: World, run: Run | None, launcher_gone: bool, case: Case
) -> None:
    state = next((s for s in world.known.states if run and s.run_id == run.run_id), None)
    if state and state.log_silent_s is not None:
        if state.log_silent_s < MAX_SILENCE_OK_S and not launcher_gone:
            case.add(-0.4, f"but its log grew {ago(state.log_silent_s)} ago")
        else:
            case.add(0.05, f"log silent for {ago(state.log_silent_s)}")
    if process.established and not launcher_gone:
        case.add(-0.4, f"but clients are connected to it ({len(process.established)})")
    if process.age_s < world.policy.young_s and not launcher_gone:
        case.add(-0.3, f"but it is only {ago(process.age_s)} old and may be starting")
    if any(i.launcher.sid == process.sid for i in world.instances):
        case.add(-0.5, "but a launcher lives in its session")
    if not world.snapshot.processes_complete and not launcher_gone:
        case.add(-0.5, "but its launcher may be hidden from this login")


def orphan_trees(zombies: list[Zombie], world: World) -> Iterator[Zombie]:
    """Zombies without those whose parent is an orphan too: the top of a tree stands for it."""
    orphans = {z.pid for z in zombies if z.kind is ZombieKind.ORPHAN}
    for zombie in zombies:
        process = world.by_pid.get(zombie.pid or 0)
        if zombie.kind is ZombieKind.ORPHAN and process and process.ppid in orphans:
            continue
        yield zombie
