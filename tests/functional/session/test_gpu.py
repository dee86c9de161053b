"""GPU data through the real pynvml and a stub of NVIDIA's library."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console.model import Snapshot
from console.session import Headless, Session, connect
from tests.functional.session.conftest import LOCAL
from tests.nvml import Nvml


@pytest.fixture
async def gpu_session(
    nvml: Nvml, home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Session]:
    for name, value in nvml.env.items():
        monkeypatch.setenv(name, value)
    session = await connect(LOCAL, hosts={}, prompts=Headless())
    yield session
    await session.close()


async def sample(session: Session, seconds: float = 10.0) -> Snapshot:
    """A snapshot taken after now, its GPU part answered."""
    await session.snapshot()
    until = time.monotonic() + seconds
    while True:
        snapshot = await session.snapshot()
        if snapshot.gpu_error is None or time.monotonic() > until:
            return snapshot
        await asyncio.sleep(0.1)


async def test_gpus_and_their_processes(nvml: Nvml, gpu_session: Session) -> None:
    nvml.set_gpu(3, util=97, power=650_000, temp=71)
    nvml.set_process(3, os.getpid(), 40_000)
    snapshot = await sample(gpu_session)
    assert snapshot.gpu_source == "nvml"
    assert [gpu.index for gpu in snapshot.gpus] == list(range(8))
    idle, busy = snapshot.gpus[0], snapshot.gpus[3]
    assert (idle.memory_used_mib, idle.processes) == (0.0, ())
    assert idle.memory_reserved_mib is not None
    assert idle.memory_reserved_mib > 0, "what the driver reserves is not in use"
    assert (busy.utilization_pct, busy.power_w, busy.temperature_c) == (97.0, 650.0, 71.0)
    assert [(user.pid, user.memory_mib) for user in busy.processes] == [(os.getpid(), 40_000.0)]
    mine = next(item for item in snapshot.processes if item.id.pid == os.getpid())
    assert dict(mine.gpu_memory_mib) == {3: 40_000.0}


async def test_one_lost_gpu_does_not_hide_the_others(nvml: Nvml, gpu_session: Session) -> None:
    nvml.fail("nvmlDeviceGetHandleByIndex_v2", 15, gpu=2)
    snapshot = await sample(gpu_session)
    assert len(snapshot.gpus) == 8
    assert snapshot.gpus[2].error
    assert snapshot.gpus[2].memory_used_mib is None
    assert snapshot.gpus[1].error is None
    assert snapshot.gpus[1].memory_used_mib == 0.0


async def test_unknown_is_never_zero(nvml: Nvml, gpu_session: Session) -> None:
    nvml.fail("nvmlDeviceGetMemoryInfo_v2", 4)
    nvml.fail("nvmlDeviceGetMemoryInfo", 4)
    nvml.fail("nvmlDeviceGetUtilizationRates", 3)
    snapshot = await sample(gpu_session)
    assert {gpu.memory_used_mib for gpu in snapshot.gpus} == {None}
    assert {gpu.utilization_pct for gpu in snapshot.gpus} == {None}
    assert all(gpu.error for gpu in snapshot.gpus)


async def test_version_mismatch_is_an_error_and_not_an_empty_host(
    nvml: Nvml, gpu_session: Session
) -> None:
    nvml.fail("init", 18)
    snapshot = await sample(gpu_session, 1.0)
    assert snapshot.gpus == ()
    assert snapshot.gpu_error
    assert snapshot.processes


async def test_a_hanging_driver_never_delays_the_processes(
    nvml: Nvml, gpu_session: Session
) -> None:
    await sample(gpu_session)
    nvml.hang("nvmlDeviceGetMemoryInfo_v2", 20)
    for _ in range(100):
        late = await gpu_session.snapshot()
        if late.gpu_error:
            break
        await asyncio.sleep(0.1)
    assert "has not answered" in (late.gpu_error or "")
    assert late.processes
    children = [
        item for item in late.processes
        if item.ppid == gpu_session.hello.pid and "python" in item.argv[0]
    ]  # fmt: skip
    assert len(children) == 1, "one question under way, however often it is asked"


async def test_quiesce_lets_go_of_the_driver(nvml: Nvml, gpu_session: Session) -> None:
    await sample(gpu_session)
    await gpu_session.quiesce(30)
    for _ in range(50):
        snapshot = await gpu_session.snapshot(full=True)
        mine = [
            item
            for item in snapshot.processes
            if item.ppid == gpu_session.hello.pid and item.state != "Z"
        ]
        if not mine:
            break
        await asyncio.sleep(0.1)
    assert not mine
    assert "paused" in (snapshot.gpu_error or "")


async def test_no_nvidia(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    session = await connect(LOCAL, hosts={}, prompts=Headless())
    snapshot = await session.snapshot()
    assert (snapshot.gpus, snapshot.gpu_source, snapshot.gpu_error) == ((), None, None)
    assert snapshot.cpu is not None
    await session.close()
