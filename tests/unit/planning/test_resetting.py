"""Where a reset is planned at all: not from inside a container, not without an agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from console.errors import AgentError, Refused
from console.model import Gpu, Host, Outer, Snapshot
from console.planning.resetting import plan_gpu_reset
from tests.unit.actions.local import LocalHost

ASKS = Gpu(3, "GPU-3", "H200", recovery_action="gpu reset", minor=3)


class WithGpu(LocalHost):
    """This machine with a device that asks for a reset; the driver is late once."""

    degraded = ""
    asked = 0

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        self.asked += 1
        late = "the driver has not answered" if self.asked == 1 else None
        return Snapshot("b", 1.0, 0, (), (ASKS,), "nvml", late)


@pytest.fixture
def place(tmp_path: Path) -> WithGpu:
    return WithGpu(tmp_path)


async def test_a_driver_that_is_late_is_waited_for(place: WithGpu) -> None:
    plan = await plan_gpu_reset(cast("Any", place), 3)
    assert plan.confirm == "here:3"
    assert place.asked == 2


@pytest.mark.parametrize("how", [{"init_namespace": False}, {"through": "pct exec on pve1"}])
async def test_inside_a_container_it_is_the_hypervisors(place: WithGpu, how: Any) -> None:
    place.host = Host("ct129", outer=Outer("pve1", pct=129))
    place.hello = replace(place.hello, **how)
    with pytest.raises(Refused, match=r"from inside a container \(specops reset-gpu pve1"):
        await plan_gpu_reset(cast("Any", place), 3)
    assert place.asked == 0


async def test_without_an_agent_nothing_is_planned(place: WithGpu) -> None:
    place.degraded = "no python3"
    with pytest.raises(AgentError, match="no python3"):
        await plan_gpu_reset(cast("Any", place), 3)
