"""The JSON contract: keys that scripts rely on, and null where nothing is known."""

import json

from console.cli.documents import any_zombie, lost_host, status_host, zombies_host
from console.model import (
    Cpu,
    Gpu,
    GpuProcess,
    Health,
    Host,
    HostState,
    HostView,
    Phase,
    Process,
    ProcessId,
    ServerState,
    Snapshot,
    Zombie,
    ZombieKind,
)

HOST_KEYS = {"name", "state", "error", "age_s", "gpus", "cpu", "servers", "zombies"}
GPU_KEYS = {
    "index", "uuid", "name", "memory_used_mib", "memory_total_mib", "utilization_pct", "power_w",
    "temperature_c", "processes",
}  # fmt: skip
SERVER_KEYS = {
    "name", "phase", "health", "pid", "port", "run_id", "preset", "accept_length",
    "throughput_tok_s",
}  # fmt: skip
ZOMBIE_KEYS = {
    "id", "pid", "start_time", "user", "kind", "resource", "device", "memory_mib",
    "gpu_memory_mib", "score", "evidence", "killable", "why_not",
}  # fmt: skip

PROCESS = Process(
    id=ProcessId(7, 70, "b"), ppid=1, pgid=7, sid=7, uid=0, user="root", state="S", comm="c",
    argv=("srv", "--api-key", "sk-0123456789abcdefghij", "\x1b]52;c;AAAA\x07evil\u202e"),
)  # fmt: skip
ZOMBIE = Zombie(
    "o7", ZombieKind.ORPHAN, 7, PROCESS.id, 1.0, "root", 0.9, ("e",), True, device="cuda"
)


def view() -> HostView:
    gpu = Gpu(0, "GPU-1", "H200\x1b[31m", 5.0, None, processes=(GpuProcess(7, None),))
    snapshot = Snapshot(
        "b", 100.0, 0, (PROCESS,), gpus=(gpu,), gpu_source="nvml", cpu=Cpu(10.0, 20.0, 2)
    )
    state = ServerState("s", Phase.READY, Health.OK, pid=7, port=1)
    return HostView(
        Host("h"),
        HostState.OK,
        seen_at=99.0,
        snapshot=snapshot,
        servers=(state,),
        zombies=(ZOMBIE,),
    )


def test_a_host_has_the_contracts_keys() -> None:
    document = status_host(view(), now=100.5)
    assert set(document) >= HOST_KEYS
    assert set(document["gpus"][0]) >= GPU_KEYS
    assert set(document["servers"][0]) >= SERVER_KEYS
    assert set(document["zombies"][0]) >= ZOMBIE_KEYS
    assert document["age_s"] == 1.5
    assert document["servers"][0]["accept_length"] is None
    assert document["gpus"][0]["memory_total_mib"] is None
    assert document["gpus"][0]["processes"][0]["memory_mib"] is None


def test_hostile_titles_are_inert_and_hold_no_secret() -> None:
    text = json.dumps(status_host(view(), now=100.0))
    for evil in ("\\u001b", "\\u202e", "52;c", "sk-0123456789"):
        assert evil not in text


def test_a_lost_host_knows_nothing() -> None:
    document = lost_host("h", HostState.UNREACHABLE, "refused")
    assert set(document) == set(status_host(view(), 1.0))
    assert document["cpu"] is None
    assert document["age_s"] is None


def test_foreign_processes_are_no_finding() -> None:
    from dataclasses import replace

    assert any_zombie([view()])
    foreign = replace(ZOMBIE, kind=ZombieKind.FOREIGN)
    assert not any_zombie([replace(view(), zombies=(foreign,))])
    assert set(zombies_host(view())) == {"name", "state", "through", "asks", "zombies"}
