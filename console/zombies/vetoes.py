"""Reasons never to signal a process, whatever else speaks against it. Unknown is a reason too."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from console.model import Process, Run, Server, Snapshot
from console.zombies.policy import Policy
from console.zombies.roles import Part, role

_NEVER = re.compile(
    r"sshd(?:-session|-auth)?|systemd.*|\(sd-pam\)|dbus-(?:daemon|broker.*)|agetty|login|init"
    r"|dockerd|docker(?:-proxy|-init)?|containerd.*|runc|crun|conmon|crio|kubelet|podman|lxc.*|pct"
    r"|nvidia-persiste.*|nvidia-persistenced|nv-fabricmanage.*|nv-hostengine|nvidia-imex"
    r"|nvidia-cuda-mps.*|nvidia-device-p.*|dcgm.*|nvsm.*|gpud"
    r"|nvtop|nvitop|gpustat|nvidia-smi|all-smi|nvidia_gpu_expo.*"
    r"|Xorg|Xwayland|X|gnome-shell|gdm.*|kwin.*|sddm|mutter.*"
    r"|slurmd|slurmstepd.*|munged|pbs_mom|raylet|gcs_server"
    r"|tmux.*|screen|SCREEN|bash|sh|dash|zsh|fish|csh|tcsh|ksh|su|sudo|cron|crond"
    r"|supervisord|pm2.*|circusd|runsv.*|s6-.*"
)
"""Names never signalled: the system's own, container runtimes, the GPU's daemons and monitors,
displays, schedulers and supervisors of others, and what an operator sits in."""
_TRAINER = re.compile(r"torchrun|deepspeed|accelerate|ipykernel_launcher|jupyter.*")
_SUPERVISED = ("supervisord", "pm2", "circusd", "runsv")


def veto(
    process: Process,
    snapshot: Snapshot,
    *,
    runs: Mapping[str, Run],
    servers: Mapping[str, Server],
    policy: Policy,
) -> str | None:
    """Why this process must not be signalled, or ``None``.

    ``runs`` by run id. A unit or container counts as ours only when hosts.yaml or a run names it.
    """
    return (
        _of_the_system(process, snapshot)
        or _unseen(process)
        or _of_others(process, snapshot, runs, servers, policy)
        or _of_another_job(process, runs)
    )


def untouchable(process: Process, snapshot: Snapshot) -> str | None:
    """The part of the veto that naming the process does not lift."""
    return _of_the_system(process, snapshot) or _unseen(process)


def _of_the_system(process: Process, snapshot: Snapshot) -> str | None:
    pid = process.id.pid
    if pid <= 1:
        return "pid 1 is the init of the host"
    if pid == 2 or process.ppid == 2:
        return "a kernel thread"
    if pid in snapshot.protected:
        return "the session this console works through"
    names = {process.comm}
    if process.argv:
        first = process.argv[0].split(maxsplit=1)[:1] or [""]
        names.add(PurePosixPath(first[0].lstrip("-")).name.rstrip(":"))
    for name in names:
        if _NEVER.fullmatch(name):
            return f"{name} is on the never-kill list"
    return None


def _unseen(process: Process) -> str | None:
    if process.foreign_namespace:
        return "it lives in another pid namespace; its number means somebody else here"
    if not process.readable:
        return "its details cannot be read by this login"
    if not process.id.boot_id or process.id.start_ticks <= 0:
        return "its identity is not known"
    return None


def _of_others(
    process: Process,
    snapshot: Snapshot,
    runs: Mapping[str, Run],
    servers: Mapping[str, Server],
    policy: Policy,
) -> str | None:
    units, containers = owned(servers, runs.values())
    run = runs.get(process.run_id or "")
    if process.container and process.container not in containers:
        return f"belongs to container {process.container}: use docker or pct there"
    unit = process.unit
    ours = unit is not None and (unit in units or (run is not None and run.unit == unit))
    if unit and unit.endswith(".service") and not ours and not unit.startswith("user@"):
        return f"belongs to unit {unit}: systemctl stop {unit}"
    if "kubepods" in process.cgroup:
        return "belongs to a Kubernetes pod: kubectl delete pod"
    if "slurm" in process.cgroup or "SLURM_JOB_ID" in process.env:
        return "belongs to a Slurm job: scancel"
    allowed = {snapshot.uid} | policy.users
    if process.uid not in allowed and run is None and not ours:
        return f"belongs to {process.user}"
    return None


def _of_another_job(process: Process, runs: Mapping[str, Run]) -> str | None:
    if process.run_id in runs:
        return None
    if process.env.keys() & {"RANK", "LOCAL_RANK"} and "WORLD_SIZE" in process.env:
        return "part of a distributed training run (RANK and WORLD_SIZE in its environment)"
    words = {PurePosixPath(word).name for word in process.argv[:4]}
    for word in words:
        if _TRAINER.fullmatch(word):
            return f"a {word} job"
    return None


def owned(
    servers: Mapping[str, Server], runs: Collection[Run]
) -> tuple[frozenset[str], frozenset[str]]:
    """Units and containers that hosts.yaml or a run record names as ours."""
    units = {s.runner.unit for s in servers.values() if s.runner.unit}
    units = {u if "." in u else f"{u}.service" for u in units}
    units |= {run.unit for run in runs if run.unit}
    containers = {s.runner.container for s in servers.values() if s.runner.container}
    return frozenset(units), frozenset(containers)


def init_like(process: Process | None) -> bool:
    """Whether a parent is one that adopts: the init of the machine, a user or a container."""
    if process is None or 1 in (process.id.pid, process.inner_pid):
        return True
    return process.comm in ("systemd", "init", "tini", "docker-init", "dumb-init", "catatonit") or (
        process.comm.startswith("containerd-shim") or process.comm in ("conmon", "lxc-start")
    )


def is_launcher(process: Process) -> bool:
    """Whether its title is a launcher's."""
    found = role(process)
    return found is not None and found.part is Part.LAUNCHER


def supervised(process: Process, by_pid: Mapping[int, Process]) -> str | None:
    """The supervisor above a process that would start it anew, or ``None``."""
    seen: set[int] = set()
    pid = process.ppid
    while pid > 1 and pid not in seen and (parent := by_pid.get(pid)) is not None:
        if parent.comm.startswith(_SUPERVISED):
            return parent.comm
        seen.add(pid)
        pid = parent.ppid
    return None
