"""Which GPUs are free and who holds the rest; what is not known is never called free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.model import Gpu, GpuProcess, HostView, Snapshot
from tests.functional.console import fake
from widgets import fleet
from widgets.holders import device_use, free_count, numbers


def gpu(index: int, used: float | None, *pids: int, error: str | None = None) -> Gpu:
    holders = tuple(GpuProcess(pid, None) for pid in pids)
    return Gpu(index, f"GPU-{index}", "H100", used, 80_000.0, processes=holders, error=error)


def host(*gpus: Gpu, gpu_error: str | None = None) -> HostView:
    view = fake.views()["ct129"]
    assert view.snapshot is not None
    return replace(view, snapshot=replace(view.snapshot, gpus=gpus, gpu_error=gpu_error))


def test_free_ones_first_then_each_holder_with_its_devices() -> None:
    view = host(
        gpu(0, 70_000.0, 4720), gpu(1, 70_000.0, 4721), gpu(2, 500.0), gpu(3, 12_000.0, 900),
        gpu(4, 9.0), gpu(5, 30_000.0), gpu(6, 70_000.0, 4722, 900), gpu(7, 40_000.0, 77),
    )  # fmt: skip
    assert free_count(view) == 2
    assert device_use(view) == [
        ("GPU 2,4", "free (2 of 8)"),
        ("GPU 0-1", "kimi-k25, 68.4 G each"),  # ranks are children of the server's launcher
        ("GPU 3", "bob: /usr/bin/python 900, 11.7 G"),
        ("GPU 5", "nobody that can be seen from here, 29.3 G"),
        ("GPU 6", "kimi-k25 + bob: /usr/bin/python 900, 68.4 G"),
        ("GPU 7", "pid 77, of another namespace, 39.1 G"),
    ]


@pytest.mark.parametrize(
    "view",
    [
        host(gpu(0, 9.0), gpu(1, None)),
        host(gpu(0, 9.0), gpu(1, 9.0, error="lost from the bus")),
        host(gpu(0, 9.0), gpu_error="NVML hangs"),
        HostView(fake.views()["lost"].host, fake.views()["lost"].state),
    ],
)
def test_unknown_is_not_free(view: HostView) -> None:
    assert free_count(view) is None
    assert "?" in fleet.gpu_count(view)
    row = next(row for row in fleet.fleet_rows({"h": view}, {}, fake.NOW))
    assert fleet.facts(row)["free"] is None, "and no filter takes it for a number"


def test_a_machine_without_devices_holds_none() -> None:
    view = replace(fake.views()["evil"])
    assert isinstance(view.snapshot, Snapshot)
    assert device_use(view) == []
    assert fleet.gpu_count(view) == "cpu"


def test_what_holds_a_device_is_inert() -> None:
    view = host(gpu(0, 70_000.0, 31))
    assert view.snapshot is not None
    evil = replace(fake.process(31, "x"), user=fake.HOSTILE, comm=fake.HOSTILE)
    view = replace(view, snapshot=replace(view.snapshot, processes=(evil,)))
    ((_, text),) = device_use(view)
    assert "[bold red]evil[/]" in text
    assert text.isprintable()
    assert "\x1b" not in text


def test_numbers_are_ranges() -> None:
    assert numbers([0, 1, 2, 5, 7, 6]) == "0-2,5-7"
    assert numbers([3]) == "3"
    assert numbers([]) == ""
