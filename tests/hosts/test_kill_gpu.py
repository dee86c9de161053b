"""Device memory before, during and after a kill, read by the real pynvml from a stub library."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from console.model import Snapshot, StepKind, Zombie
from console.session import Session
from tests import scale
from tests.hosts.killing import Bench, carry_out, session
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


async def test_ghost_memory_is_explained_and_never_planned(nvml: Nvml, tmp_path: Path) -> None:
    wanted = min(8, scale.count(10) + 1)
    for index in range(wanted):
        nvml.set_elsewhere(index, 900_000 + index, HELD)
    async with session(tmp_path) as link:
        bench = Bench(link, ())
        await _until_listed(link, wanted)
        found = await bench.look(everything=True)
        ghosts = {z.id: z for z in found if z.kind.value == "ghost-memory"}
        assert sorted(ghosts) == [f"g{index}" for index in range(wanted)]
        for zombie in ghosts.values():
            assert not zombie.killable
            assert "no such process here" in " ".join(zombie.evidence)
            assert (zombie.gpu_memory_mib or 0) >= HELD
        assert bench.plan(ghosts.values()).steps == ()
