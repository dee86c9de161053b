"""Asks NVML; runs in a child of its own, because a call may hang or crash.

Each value is asked for by itself: what a card, a driver version or a container does not tell is
``None``, never 0, and one lost GPU does not hide the others.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import Any, Callable

from console.agent import wire

RECOVERY_FIELD = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (nvml.h)."""
RECOVERY = ("none", "gpu reset", "node reboot", "drain p2p", "drain and reset", "imex",
            "bus reset", "system reboot")  # fmt: skip
MIB = 1048576.0


class Reader:
    """Reads all GPUs through pynvml."""

    def __init__(self, library: Any) -> None:
        self.nvml = library
        self._errors = (library.NVMLError, library.NVMLLibraryMismatchError)

    def ask(self, name: str, *args: Any, **more: Any) -> Any:
        """One call's result, ``None`` where it is not supported, not permitted or fails."""
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if function is None:
            return None
        try:
            return function(*args, **more)
        except self._errors:
            return None

    def gpus(self) -> list[dict[str, Any]]:
        """A row for each GPU, and one for each MIG instance after its GPU."""
        rows = []
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
            except self._errors as error:
                rows.append({"index": index, "uuid": "", "name": "", "error": said(error)})
                continue
            row = self.row(index, handle)
            rows.append(row)
            mode = self.ask("nvmlDeviceGetMigMode", handle)
            if mode and mode[0]:
                row["mig"] = "enabled"
                rows.extend(self.instances(index, handle))
        return rows

    def instances(self, index: int, handle: Any) -> list[dict[str, Any]]:
        """The MIG instances of a GPU; empty slots are left out."""
        rows = []
        for slot in range(self.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
            if instance is not None:
                row = self.row(index, instance)
                row["mig"] = row["name"] or "instance {}".format(slot)
                rows.append(row)
        return rows

    def row(self, index: int, handle: Any) -> dict[str, Any]:
        """What one GPU says."""
        row: dict[str, Any] = {
            "index": index,
            "uuid": text(self.ask("nvmlDeviceGetUUID", handle)),
            "name": text(self.ask("nvmlDeviceGetName", handle)),
            "minor": self.ask("nvmlDeviceGetMinorNumber", handle),
            "error": None,
        }
        row.update(self.memory(handle, row))
        rates = self.ask("nvmlDeviceGetUtilizationRates", handle)
        power = self.ask("nvmlDeviceGetPowerUsage", handle)
        row["utilization_pct"] = None if rates is None else float(rates.gpu)
        row["power_w"] = None if power is None else power / 1000.0
        row["temperature_c"] = self.temperature(handle)
        row["recovery_action"] = self.recovery(handle)
        row["processes"] = self.processes(handle, row)
        return row

    def memory(self, handle: Any, row: dict[str, Any]) -> dict[str, Any]:
        """Memory by the second version of the call: the first counts what the driver reserves."""
        found: Any = None
        try:
            version = getattr(self.nvml, "nvmlMemory_v2", None)
            found = self.nvml.nvmlDeviceGetMemoryInfo(handle, version=version)
        except self._errors as error:
            old = self.ask("nvmlDeviceGetMemoryInfo", handle)
            if old is None:
                row["error"] = said(error)
                return {}
            found = old
        reserved = getattr(found, "reserved", None)
        return {
            "memory_used_mib": found.used / MIB,
            "memory_total_mib": found.total / MIB,
            "memory_reserved_mib": None if reserved is None else reserved / MIB,
        }

    def temperature(self, handle: Any) -> float | None:
        """The core's temperature by the newer call, else by the older one."""
        for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
            value = self.ask(name, handle, 0)
            if value is not None:
                return float(getattr(value, "temperature", value))
        return None

    def recovery(self, handle: Any) -> str | None:
        """What the driver wants done before the GPU is usable; ``None`` where it does not say."""
        values = self.ask("nvmlDeviceGetFieldValues", handle, [RECOVERY_FIELD])
        if not values or values[0].nvmlReturn != 0:
            return None
        number = int(values[0].value.uiVal)
        return RECOVERY[number] if number < len(RECOVERY) else "action {}".format(number)

    def processes(self, handle: Any, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Compute, graphics and MPS processes; a list that cannot be had is an error of the row.

        A process is one row: a client of MPS is on the list of compute processes too, with the same
        memory, and counted twice it would hold twice what it has.
        """
        found: dict[int, dict[str, Any]] = {}
        kinds = (("Compute", "compute"), ("Graphics", "graphics"), ("MPSCompute", "mps"))
        for name, kind in kinds:
            users, why = self._list("nvmlDeviceGet{}RunningProcesses".format(name), handle)
            if users is None and kind == "compute":
                row["error"] = row["error"] or "processes: {}".format(why)
            for user in users or ():
                pid, memory = int(user.pid), user.usedGpuMemory
                mib = None if memory is None else memory / MIB
                before = found.get(pid)
                if before is not None and mib is None:
                    mib = before["memory_mib"]
                found[pid] = {"pid": pid, "memory_mib": mib, "kind": kind}
        return list(found.values())

    def _list(self, name: str, handle: Any) -> tuple[list[Any] | None, str]:
        why = "not available"
        for version in ("", "_v3", "_v2"):
            function: Any = getattr(self.nvml, name + version, None)
            for _ in range(3 if function else 0):  # the list may grow between its two calls
                try:
                    return function(handle), ""
                except self._errors as error:  # noqa: PERF203 - each attempt may fail by itself
                    why = said(error)
                    if getattr(error, "value", None) != 7:  # NVML_ERROR_INSUFFICIENT_SIZE
                        break
        return None, why


def text(value: Any) -> str:
    """A string whichever type the binding's version returns."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def said(error: Exception) -> str:
    """An NVML error in its own words."""
    return str(error)[:200] or type(error).__name__


def sample(reader: Reader) -> dict[str, Any]:
    """The answer to one question."""
    try:
        return {"gpus": reader.gpus(), "gpu_source": "nvml", "gpu_error": None}
    except reader._errors as error:
        return {"gpus": [], "gpu_source": "nvml", "gpu_error": said(error)}


def main(finder: Any) -> None:
    """Take NVIDIA's binding from stdin, then answer each line with a line."""
    source = sys.stdin.buffer
    size, path = (int(word) for word in source.readline().split())
    finder.add("pynvml.py", source.read(size))
    library = source.read(path).decode("utf-8", "surrogateescape")
    start_error: dict[str, Any] | None = None
    reader: Reader | None = None
    try:
        ctypes.CDLL(library)  # pynvml then finds it by name, wherever it lies
        pynvml = importlib.import_module("pynvml")
        reader = Reader(pynvml)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            # 9 and 12: the driver is not loaded, or its library is not complete
            missing = getattr(error, "value", None) in (9, 12)
            start_error = {
                "gpus": [],
                "gpu_source": None if missing else "nvml",
                "gpu_error": said(error),
                "no_driver": missing,
            }
    except OSError as error:
        start_error = {"gpus": [], "gpu_source": "nvml", "gpu_error": str(error)[:200]}
    for _ in source:
        value = start_error or (sample(reader) if reader else {})
        sys.stdout.buffer.write(wire.dumps(value) + b"\n")
        sys.stdout.buffer.flush()
