"""GPU data from ``nvidia-smi``'s CSV, where its library cannot be used."""

from __future__ import annotations

import os
import subprocess
from typing import Any

FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/bin", "/opt/bin",
           "/run/current-system/sw/bin", "/usr/lib/wsl/lib")  # fmt: skip
TIMEOUT_S = 10.0
FIELDS = ("index", "uuid", "name", "memory.used", "memory.total", "memory.reserved",
          "utilization.gpu", "power.draw", "temperature.gpu")  # fmt: skip
CORE = tuple(name for name in FIELDS if name != "memory.reserved")
QUERIES = ((*FIELDS, "gpu_recovery_action"), FIELDS, CORE)
"""Newest first, each without what older drivers do not know: one unknown field fails them all."""
RECOVERY = {"reset": "gpu reset", "reboot": "node reboot"}
"""Where nvidia-smi's words for what is to be done differ from those of ``nvml.RECOVERY``."""
_ROW = {
    "memory.used": "memory_used_mib",
    "memory.total": "memory_total_mib",
    "memory.reserved": "memory_reserved_mib",
    "utilization.gpu": "utilization_pct",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
}


def path() -> str | None:
    """Where nvidia-smi is, on fixed folders and the PATH."""
    folders = [*FOLDERS, *os.environ.get("PATH", "").split(":")]
    for folder in folders:
        found = os.path.join(folder, "nvidia-smi")
        if folder.startswith("/") and os.access(found, os.X_OK):
            return found
    return None


def number(value: str) -> float | None:
    """A value; ``[N/A]``, ``[GPU is lost]``, ``ERR!`` and the like are unknown, never 0."""
    try:
        found = float(value.replace(",", ".").split()[0])
    except (ValueError, IndexError):
        return None
    return found if 0 <= found < 1e9 else None


def parse_gpus(output: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of ``--query-gpu``; a line with another number of columns is an error, not a guess."""
    rows = []
    for line in output.splitlines():
        values = [value.strip() for value in line.split(", ")]
        if not line.strip():
            continue
        if len(values) != len(fields) or not values[0].isdigit():
            raise ValueError("nvidia-smi: unreadable line: {}".format(line[:100]))
        named = dict(zip(fields, values))
        row: dict[str, Any] = {
            "index": int(values[0]),
            "uuid": named["uuid"],
            "name": named["name"],
        }
        for field, key in _ROW.items():
            row[key] = number(named.get(field, ""))
        row["recovery_action"] = recovery(named.get("gpu_recovery_action", "["))
        lost = [value for value in values if value.startswith("[GPU")]
        row["error"] = lost[0].strip("[]") if lost else None
        row["processes"] = []
        rows.append(row)
    return rows


def recovery(value: str) -> str | None:
    """What the driver wants done; ``None`` where it does not say."""
    words = value.lower()
    return None if words.startswith(("[", "n/a", "unknown")) else RECOVERY.get(words, words)


def add_processes(output: str, rows: list[dict[str, Any]]) -> None:
    """Add ``--query-compute-apps=gpu_uuid,pid,used_memory``."""
    by_uuid = {row["uuid"]: row for row in rows}
    for line in output.splitlines():
        values = [value.strip() for value in line.split(", ")]
        if len(values) == 3 and values[0] in by_uuid and values[1].isdigit():
            memory = number(values[2])
            user = {"pid": int(values[1]), "memory_mib": memory, "kind": "compute"}
            by_uuid[values[0]]["processes"].append(user)


def _query(program: str, words: str) -> tuple[int, str]:
    done = subprocess.run(
        [program, words, "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def sample() -> dict[str, Any]:
    """The answer in the same form as NVML's; raises ``OSError`` or ``ValueError``."""
    program = path()
    if program is None:
        return {"gpus": [], "gpu_source": None, "gpu_error": None}
    try:
        for fields in QUERIES:
            code, output = _query(program, "--query-gpu=" + ",".join(fields))
            if not (code and "not a valid field" in output):
                break
        if code:
            why = output.strip().splitlines()[:1] or ["exit {}".format(code)]
            return {"gpus": [], "gpu_source": "nvidia-smi", "gpu_error": why[0][:200]}
        rows = parse_gpus(output, fields)
        code, output = _query(program, "--query-compute-apps=gpu_uuid,pid,used_memory")
        if code == 0:
            add_processes(output, rows)
        else:
            for row in rows:
                row["error"] = row["error"] or "its processes cannot be listed"
    except subprocess.TimeoutExpired:
        late = "nvidia-smi did not answer in 10 s"
        return {"gpus": [], "gpu_source": "nvidia-smi", "gpu_error": late}
    return {"gpus": rows, "gpu_source": "nvidia-smi", "gpu_error": None}
