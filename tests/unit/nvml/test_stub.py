"""The NVML stub, seen through the real pynvml in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.nvml import Nvml

_PRELUDE = """
import json, sys, pynvml as n
def error(call, *args, **kw):
    try:
        call(*args, **kw)
    except n.NVMLError as e:
        return e.value
    return 0
n.nvmlInit()
h = lambda i: n.nvmlDeviceGetHandleByIndex(i)
"""


def ask(nvml: Nvml, code: str, prelude: str = _PRELUDE) -> Any:
    """The value of ``out`` after ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{prelude}\n{code}\nprint(json.dumps(out))"],
        env={**os.environ, **nvml.env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_eight_gpus_and_what_a_monitor_asks(nvml: Nvml) -> None:
    nvml.set_gpu(
        3, used=12, reserved=600, util=97, power=412_500, temp=61, recovery=1, name="NVIDIA B200 x"
    )
    seen = ask(
        nvml,
        "g = h(3); m = n.nvmlDeviceGetMemoryInfo(g, version=n.nvmlMemory_v2);"
        "out = [n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetName(g),"
        " m.used >> 20, m.reserved >> 20, n.nvmlDeviceGetMemoryInfo(g).used >> 20,"
        " n.nvmlDeviceGetUtilizationRates(g).gpu, n.nvmlDeviceGetPowerUsage(g),"
        " n.nvmlDeviceGetTemperature(g, 0), n.nvmlDeviceGetTemperatureV(g, 0),"
        " n.nvmlDeviceGetFieldValues(g, [230])[0].value.uiVal,"
        " n.nvmlDeviceGetFieldValues(g, [82])[0].nvmlReturn, n.nvmlDeviceGetPciInfo(g).busId,"
        " len({n.nvmlDeviceGetUUID(h(i)) for i in range(8)})]",
    )  # fmt: skip
    assert seen == [
        8, "570.124.06", "NVIDIA B200 x", 12, 600, 612, 97, 412500, 61, 61, 1, 3,
        "00000000:31:00.0", 8,
    ]  # fmt: skip


def test_memory_goes_when_the_process_goes(nvml: Nvml) -> None:
    with subprocess.Popen(["sleep", "60"]) as holder:
        nvml.set_process(2, holder.pid, 43_644)
        code = (
            "out = [[p.pid, p.usedGpuMemory >> 20]"
            " for p in n.nvmlDeviceGetComputeRunningProcesses(h(2))]"
        )
        assert ask(nvml, code) == [[holder.pid, 43_644]]
        assert nvml.used_mib(2) == 43_644
        os.kill(holder.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, not yet reaped
        assert ask(nvml, code) == []
        assert nvml.used_mib(2) == 0


def test_a_reused_pid_does_not_hold_the_memory(nvml: Nvml) -> None:
    nvml.set_process(0, os.getpid(), 100, start=1)
    assert nvml.used_mib(0) == 0


def test_memory_may_lag_behind_the_process(nvml: Nvml) -> None:
    with subprocess.Popen(["sleep", "60"]) as holder:
        nvml.set_process(0, holder.pid, 500, lag=3600)
        holder.kill()
        holder.wait()
    assert nvml.used_mib(0) == 500
    for mark in nvml.folder.glob(f"nvml-scenario.gone.{holder.pid}"):
        os.utime(mark, (0, 0))  # an hour later
    assert nvml.used_mib(0) == 0


def test_unknown_memory_and_pids_of_another_namespace(nvml: Nvml) -> None:
    nvml.set_elsewhere(1, 4_194_000, 2048, shown="N/A")
    seen = ask(
        nvml,
        "out = [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h(1))]"
        " + [n.nvmlDeviceGetMemoryInfo(h(1), version=n.nvmlMemory_v2).used >> 20]",
    )
    assert seen == [[4_194_000, None], 2048]
    nvml.drop_process(1, 4_194_000)
    assert nvml.used_mib(1) == 0


def test_a_client_of_mps_is_one_process(nvml: Nvml) -> None:
    """The driver lists it as a compute process and as a client, with the same memory."""
    nvml.set_elsewhere(0, 4_194_000, 1634, graphics=2)
    nvml.set_elsewhere(0, 4_194_001, 66)
    prelude = "import json, pynvml\nfrom console.agent.nvml import Reader\npynvml.nvmlInit()"
    code = "out = [list(p.values()) for p in Reader(pynvml).gpus()[0]['processes']]"
    assert ask(nvml, code, prelude) == [[4_194_000, 1634.0, "mps"], [4_194_001, 66.0, "compute"]]


def test_a_lost_gpu_leaves_the_others(nvml: Nvml) -> None:
    nvml.set_gpu(5, lost=True)
    seen = ask(
        nvml,
        "out = [error(n.nvmlDeviceGetMemoryInfo, h(i), version=n.nvmlMemory_v2)"
        " for i in (4, 5, 6)]",
    )
    assert seen == [0, 15, 0]


def test_driver_and_library_differ(nvml: Nvml) -> None:
    nvml.fail("init", 18)
    prelude = _PRELUDE.replace("n.nvmlInit()", "out = error(n.nvmlInit)")
    assert ask(nvml, "", prelude) == 18
    refused = subprocess.run([str(nvml.smi)], capture_output=True, text=True, check=False)
    assert refused.returncode == 18
    assert "Driver/library version mismatch" in refused.stdout


def test_no_driver(nvml: Nvml) -> None:
    nvml.scenario.unlink()
    prelude = _PRELUDE.replace("n.nvmlInit()", "out = error(n.nvmlInit)")
    assert ask(nvml, "", prelude) == 9


def test_an_older_driver_lacks_the_newer_calls(nvml: Nvml) -> None:
    nvml.fail("nvmlDeviceGetMemoryInfo_v2", 13)
    nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", 13)
    nvml.set_process(0, os.getpid(), 7)
    seen = ask(
        nvml,
        "out = [error(n.nvmlDeviceGetMemoryInfo, h(0), version=n.nvmlMemory_v2),"
        " n.nvmlDeviceGetMemoryInfo(h(0)).used >> 20,"
        " error(n.nvmlDeviceGetComputeRunningProcesses_v3, h(0)),"
        " n.nvmlDeviceGetComputeRunningProcesses_v2(h(0))[0].usedGpuMemory >> 20]",
    )
    assert seen == [13, 608, 13, 7]


def test_a_driver_that_fills_the_wrong_layout_gives_pids_that_cannot_be(nvml: Nvml) -> None:
    nvml.set_gpu(0, old_layout=1)
    for pid in (os.getpid(), os.getppid()):
        nvml.set_process(0, pid, 4096)
    pids = ask(nvml, "out = [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))]")
    assert set(pids) != {os.getpid(), os.getppid()}


def test_a_call_that_hangs_and_the_list_that_grows(nvml: Nvml) -> None:
    nvml.hang("nvmlDeviceGetUtilizationRates", 600, gpu=1)
    code = (
        "n.nvmlDeviceGetUtilizationRates(h(0)); print(1, flush=True);"
        "n.nvmlDeviceGetUtilizationRates(h(1))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + code],
        env={**os.environ, **nvml.env},
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.kill()
    nvml.hang("nvmlDeviceGetUtilizationRates", 0, gpu=1)
    nvml.set_process(0, os.getpid(), 1)
    sizes = ask(
        nvml,
        "import ctypes; f = n._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3');"
        "c = ctypes.c_uint(0); out = [f(h(0), ctypes.byref(c), None), c.value,"
        " n.nvmlDeviceGetUtilizationRates(h(1)).gpu]",
    )
    assert sizes == [7, 1, 0]


def test_mig_slices(nvml: Nvml) -> None:
    nvml.set_gpu(0, mig=True)
    nvml.set_mig(0, 2, total=18_000, used=900)
    seen = ask(
        nvml,
        "m = n.nvmlDeviceGetMigDeviceHandleByIndex(h(0), 2);"
        "out = [n.nvmlDeviceGetMigMode(h(0)), n.nvmlDeviceGetMaxMigDeviceCount(h(0)),"
        " error(n.nvmlDeviceGetMigDeviceHandleByIndex, h(0), 1), n.nvmlDeviceGetUUID(m)[:4],"
        " n.nvmlDeviceGetMemoryInfo(m, version=n.nvmlMemory_v2).used >> 20,"
        " error(n.nvmlDeviceGetUtilizationRates, h(0)), n.nvmlDeviceIsMigDeviceHandle(m).value,"
        " n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m))]",
    )
    assert seen == [[1, 1], 7, 6, "MIG-", 900, 3, 1, 0]


def test_utilisation_by_process(nvml: Nvml) -> None:
    nvml.set_process(0, os.getpid(), 10, util=88)
    seen = ask(
        nvml,
        "out = [[s.pid, s.smUtil] for s in n.nvmlDeviceGetProcessUtilization(h(0), 0)]"
        " + [error(n.nvmlDeviceGetProcessUtilization, h(1), 0)]",
    )
    assert seen == [[os.getpid(), 88], 6]


class TestNvidiaSmi:
    def run(self, nvml: Nvml, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(nvml.smi), *argv], capture_output=True, text=True, timeout=20, check=False
        )

    def test_queries(self, nvml: Nvml) -> None:
        nvml.set_gpu(0, used=4, name="A, B")
        nvml.set_gpu(7, lost=True)
        rows = nvml.query("index,name,memory.used,memory.total,gpu_recovery_action")
        assert rows[0] == "0, A, B, 4, 143771, None"
        assert rows[7] == "7, NVIDIA H200, [GPU is lost], [GPU is lost], [GPU is lost]"
        nvml.set_elsewhere(2, 4_194_001, 10, shown="N/A")
        apps = self.run(nvml, "--query-compute-apps=pid,process_name,used_memory", "--format=csv")
        assert apps.stdout.splitlines() == [
            "pid, process_name, used_memory",
            "4194001, [Not Found], [N/A]",
        ]

    def test_refusals(self, nvml: Nvml) -> None:
        unknown = self.run(nvml, "--query-gpu=index,colour", "--format=csv")
        assert (unknown.returncode, unknown.stdout.splitlines()[0]) == (
            2,
            'Field "colour" is not a valid field to query.',
        )
        assert self.run(nvml, "--fly").returncode == 2
