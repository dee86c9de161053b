"""Device memory before, during and after a kill, read by the real pynvml from a stub library."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from console.model import Snapshot, StepKind, Zombie, ZombieKind
from console.session import Session
from tests.hosts.killing import Bench, carry_out, running, session
from tests.nvml import Nvml
from tests.rig.nspawn import missing as no_hosts
from tests.rig.plugin import require
from tests.trouble.api import Trouble, make

pytestmark = [pytest.mark.hosts, pytest.mark.long]
HELD = 43_644


@pytest.fixture(autouse=True)
def _stub(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    require(no_hosts())
    for name, value in nvml.env.items():
        monkeypatch.setenv(name, value)


async def _until_listed(link: Session, count: int) -> Snapshot:
    """The first look whose devices list so many processes: the driver is asked in a child."""
    async with asyncio.timeout(20):
        while True:
            snapshot = await link.snapshot(full=True)
            if sum(len(gpu.processes) for gpu in snapshot.gpus) >= count:
                return snapshot
            await asyncio.sleep(0.1)


def _orphans() -> Trouble:
    return make("orphan", 1, ranks=4, run_id=f"gpu-{time.time_ns():x}")


def _hold(nvml: Nvml, trouble: Trouble, **options: object) -> None:
    for index, pid in enumerate(trouble.specimens[0].ranks):
        nvml.set_process(index, pid, HELD, **options)


async def _verdicts(bench: Bench) -> list[Zombie]:
    await _until_listed(bench.link, 4)
    return [zombie for zombie in await bench.look() if zombie.killable]


async def test_memory_that_the_driver_frees_late_is_waited_for(nvml: Nvml, tmp_path: Path) -> None:
    with _orphans() as trouble:
        _hold(nvml, trouble, lag=1.5)
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            found = await _verdicts(bench)
            assert [z.gpu_memory_mib for z in found] == [HELD] * 4
            assert {z.device for z in found} == {"cuda"}
            assert any("43 644 MiB on GPU" in line for line in found[0].evidence), found[0]
            plan = bench.plan(found)
            assert plan.steps[-1].kind is StepKind.VERIFY
            assert plan.steps[-1].params["gpus"] == [0, 1, 2, 3]
            results = await carry_out(link, plan, tmp_path)
            assert {r.outcome for r in results} == {"ok"}, results
            assert results[-1].data["verified"] is True
            assert [nvml.used_mib(index) < 64 for index in range(4)] == [True] * 4


async def test_a_driver_that_cannot_be_asked_verifies_nothing(nvml: Nvml, tmp_path: Path) -> None:
    with _orphans() as trouble:
        _hold(nvml, trouble)
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            plan = bench.plan(await _verdicts(bench))
            # What an upgrade of the driver under a running system looks like.
            nvml.fail("nvmlDeviceGetMemoryInfo_v2", 18)
            nvml.fail("nvmlDeviceGetMemoryInfo", 18)
            nvml.fail("init", 18)
            nvml.fail("nvidia-smi", 18)
            results = await carry_out(link, plan, tmp_path)
            assert results[-1].outcome == "failed", results
            assert results[-1].data["verified"] is False
            assert "memory NOT verified" in results[-1].detail


async def test_what_is_still_held_is_named(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.actions.verify.RELEASE_S", 3.0)
    with _orphans() as trouble:
        _hold(nvml, trouble)
        async with session(tmp_path) as link:
            bench = Bench(link, trouble.specimens)
            plan = bench.plan(await _verdicts(bench))
            nvml.set_elsewhere(1, 999_999, 20_000)
            results = await carry_out(link, plan, tmp_path)
            assert results[-1].outcome == "failed", results
            assert "GPU 1: 20" in results[-1].detail
            assert "999999" in results[-1].detail


GHOSTS = 10


async def test_ghost_memory_is_explained_and_never_planned(
    nvml: Nvml, tmp_path: Path, capsys: Any
) -> None:
    """Ten GPUs: memory of pids of other namespaces, of nobody at all, of a process of a container.

    Also named by the operator nothing is signalled, and the memory stays what it was.
    """
    with make("other-namespace", 1) as neighbour, _orphans() as trouble:
        (inner,) = neighbour.specimens
        for index in range(GHOSTS):
            nvml.set_gpu(index, used=HELD if index % 3 == 2 else 0)
            if index % 3 != 2:
                nvml.set_elsewhere(index, 900_000 + index, HELD)
        async with session(tmp_path) as link:
            bench = Bench(link, (*neighbour.specimens, *trouble.specimens))
            await _until_listed(link, GHOSTS - GHOSTS // 3)
            found = await bench.look(everything=True)
            ghosts = {z.id: z for z in found if z.kind is ZombieKind.GHOST_MEMORY}
            assert sorted(ghosts) == [f"g{index}" for index in range(GHOSTS)]
            for index, zombie in enumerate(ghosts[f"g{i}"] for i in range(GHOSTS)):
                assert not zombie.killable
                words = " | ".join(zombie.evidence)
                assert "in use that no process here accounts for" in words
                assert ("no such process here" in words) is (index % 3 != 2)
                assert (zombie.gpu_memory_mib or 0) >= HELD
            assert bench.plan(ghosts.values(), named=True).steps == ()
            # Beside a kill of something else the ghosts keep their memory and nobody is hit.
            mine = [z for z in found if z.killable and bench.mine(z)]
            results = await carry_out(link, bench.plan(mine), tmp_path)
            assert results[0].outcome == "ok"
            assert [nvml.used_mib(i) >= HELD for i in range(GHOSTS)] == [True] * GHOSTS
            assert running(inner)
    with capsys.disabled():
        print(f"\nghost-memory: {GHOSTS} made, {len(ghosts)} detected and proved, 0 signalled")
