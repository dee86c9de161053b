"""Steps that remove what dead servers left: segments, sockets, lock files.

What may be removed is decided twice: by the rules when the plan is made, and by the host in the
same call as the removal (same device and inode, same owner, nobody maps or opens it).
"""

from __future__ import annotations

from collections.abc import Iterable

from console.actions.steps import Context, Outcome
from console.model import Artefact, ProcessId, Snapshot, Step, StepKind, Zombie, ZombieKind
from console.zombies.resources import made_by_servers

REMOVABLE = ("shm", "socket", "lock")


def plan_clean(
    host: str, snapshot: Snapshot, leftovers: Iterable[Zombie], killed: Iterable[ProcessId] = ()
) -> tuple[Step, ...]:
    """A step for the given leftovers and for what only the killed processes hold open now."""
    paths = {
        zombie.resource.path
        for zombie in leftovers
        if zombie.kind is ZombieKind.LEFTOVER and zombie.resource and zombie.resource.path
    }
    pids = {process.pid for process in killed}
    chosen = tuple(
        artefact
        for artefact in snapshot.artefacts
        if artefact.type in REMOVABLE and (artefact.path in paths or _only_by(artefact, pids))
    )
    if not chosen:
        return ()
    size = sum(artefact.size_bytes for artefact in chosen) / 2**20
    return (
        Step(
            StepKind.CLEAN,
            host,
            f"remove {len(chosen)} leftovers ({size:.0f} MiB)",
            artefacts=chosen,
            dangerous=True,
            verify="each is still the same file, still owned and held by nobody",
            timeout_s=30.0,
        ),
    )


def _only_by(artefact: Artefact, pids: set[int]) -> bool:
    """A segment of a server's libraries held by processes of the kill and by nobody else.

    A server also maps what is not its own: weights that somebody copied into memory, say.
    """
    if artefact.type != "shm" or not made_by_servers(artefact.path):
        return False
    return bool(artefact.holders) and set(artefact.holders or ()) <= pids


async def clean_step(step: Step, context: Context) -> Outcome:
    """CLEAN: remove the artefacts that are still the same and unheld; the others are named.

    An artefact that is gone by itself is no failure (servers remove their own when they end well).
    """
    results = await context.remote.remove(step.artefacts)
    refused = {path: why for path, why in results if why and not _is_gone(why)}
    sizes = {artefact.path: artefact.size_bytes for artefact in step.artefacts}
    removed = [path for path, why in results if not why]
    freed = sum(sizes.get(path, 0) for path in removed) / 2**20
    parts = [f"{len(removed)} removed ({freed:.0f} MiB)"]
    parts += [f"{path}: {why}" for path, why in list(refused.items())[:5]]
    data = {"removed": removed, "kept": refused, "freed_shm_mib": freed}
    return Outcome("failed" if refused else "ok", "; ".join(parts), data)


def _is_gone(why: str) -> bool:
    return any(word in why.lower() for word in ("no such", "gone", "missing"))
