"""What the agent reads from NVML against ``nvidia-smi``, what it costs, and strangers on the GPU."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from console.model import Host
from console.session import Headless, connect
from tests.gpu.lab import NO_BYTES, Lab, Memory, Shell, brief, children, gpu_memory, proc_state, smi

HOLDER = """
import sys, time, torch
kept = torch.ones(int(sys.argv[1]) << 18, device="cuda")
torch.cuda.synchronize()
print("holding", flush=True)
sys.stdin.read()
"""
NOBODY = 65534


@contextlib.contextmanager
def holder(mib: int) -> Iterator[subprocess.Popen[str]]:
    """Another program that holds so much memory of the first GPU."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "holding":
            raise RuntimeError("the holder could not take its memory")
        yield process
    finally:
        process.kill()
        process.wait(20)


def run(lab: Lab) -> None:
    """All of the part."""
    if not smi("name"):
        raise SystemExit("nvml: nvidia-smi names no GPU")
    lab.attempt("fields", lambda: fields(lab))
    lab.attempt("cost", lambda: asyncio.run(cost(lab)))
    lab.attempt("stranger", lambda: stranger(lab))
    lab.attempt("nobody", lambda: nobody(lab))
    lab.attempt("no python", lambda: no_python(lab))
    lab.attempt("mps", lambda: mps(lab))


def gpu_of(lab: Lab) -> dict[str, Any]:
    """The first GPU of ``specops status``."""
    _, document, _ = lab.specops("status", "gpu", timeout=60)
    row: dict[str, Any] = document["hosts"][0]["gpus"][0]
    return row


def fields(lab: Lab) -> None:
    """Every field of an idle GPU and of one that holds memory, side by side."""
    for state, mib in (("idle", 0), ("2048 MiB held", 2048)):
        with holder(mib) if mib else contextlib.nullcontext():
            ours = gpu_of(lab)
            names = "index,uuid,name,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu"
            theirs = smi(names)[0]
        keys = ("index", "uuid", "name", "memory_used_mib", "memory_total_mib", "utilization_pct",
                "power_w", "temperature_c")  # fmt: skip
        slack = (0, 0, 0, NO_BYTES, 1, 10, 25, 3)  # a GPU's load and power change between looks
        for key, value, off in zip(keys, theirs, slack, strict=True):
            same = (
                str(ours[key]) == value if not off else abs(float(ours[key]) - float(value)) <= off
            )
            expected = f"nvidia-smi: {value}" + (f" (± {off:g})" if off else "")
            lab.check(f"{key}, {state}", "specops status", expected, f"{ours[key]}", same)


def ticks(pids: list[int]) -> float:
    """CPU seconds that processes have used."""
    found = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += int(words[11]) + int(words[12])
    return found / os.sysconf("SC_CLK_TCK")


def resident_mib(pids: list[int]) -> float:
    """Proportional memory of processes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return round(total / 1024, 1)


async def cost(lab: Lab) -> None:
    """A sample over SSH, and what the agent's processes use of a core at one sample a second."""
    host = Host(
        "gpu", address="127.0.0.1", port=lab.port, user="operator", python=sys.executable,
        identity_files=(str(lab.folder / "id"),), known_hosts=str(lab.folder / "known_hosts"),
    )  # fmt: skip
    before = set(children(os.getpid()))
    session = await connect(host, hosts={}, prompts=Headless())
    try:
        await session.snapshot()
        agent = [pid for pid in children(os.getpid()) if pid not in before]
        spent, begun, values = ticks(agent), time.monotonic(), []
        for _ in range(15):
            at = time.perf_counter()
            await session.snapshot()
            values.append((time.perf_counter() - at) * 1e3)
            await asyncio.sleep(max(0.0, 1 - values[-1] / 1e3))
        agent = [pid for pid in children(os.getpid()) if pid not in before]
        share = (ticks(agent) - spent) / (time.monotonic() - begun) * 100
        memory = resident_mib(agent)
    finally:
        await session.close()
    at = time.perf_counter()
    smi("memory.used")
    alone = (time.perf_counter() - at) * 1e3
    seen = {"p50_ms": round(statistics.median(values), 1), "max_ms": round(max(values), 1),
            "nvidia_smi_ms": round(alone, 1), "agent_cpu_pct_of_a_core": round(share, 2),
            "agent_memory_mib": memory, "agent_processes": len(agent)}  # fmt: skip
    lab.check("cost of a sample each second", "the agent's snapshot, over SSH",
              "< 5 % of one core, < 120 MiB", seen, share < 5 and memory < 120)  # fmt: skip


def stranger(lab: Lab) -> None:
    """A CUDA process of nobody's server: seen, measured, left alone; its memory goes with it."""
    base = gpu_memory()
    with holder(2048) as process, Memory() as memory:
        listed = {row["pid"]: row for row in gpu_of(lab)["processes"]}
        done = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        apps = dict(line.split(", ") for line in done.stdout.splitlines())
        ours, theirs = listed.get(process.pid, {}).get("memory_mib"), apps.get(str(process.pid))
        same = ours is not None and theirs is not None and abs(ours - float(theirs)) <= 1
        lab.check("a second CUDA process is listed with its memory", "specops status",
                  f"pid {process.pid}, nvidia-smi: {theirs} MiB", f"{ours} MiB", same)  # fmt: skip
        code, document, seconds = lab.specops("zombies", "gpu", "--quick", timeout=60)
        found = [z for z in document["hosts"][0]["zombies"] if z["pid"] == process.pid]
        seen = [brief(z, "kind", "gpu_memory_mib", "killable", "why_not") for z in found]
        right = len(found) == 1 and found[0]["kind"] == "foreign" and not found[0]["killable"]
        lab.check("it is foreign, not killable", "specops zombies --quick",
                  "kind foreign, with its GPU memory", seen, right)  # fmt: skip
        code, document, seconds = lab.specops("kill-zombies", "gpu", "--yes", timeout=120)
        alive = proc_state(process.pid) not in ("", "Z")
        lab.check("it is left alone", "specops kill-zombies --yes", "exit 0, the process lives",
                  f"exit {code}, {seconds:.1f} s, alive: {alive}", alive and code == 0)  # fmt: skip
        at = time.monotonic()
        process.kill()
        process.wait(20)
        lag = memory.lag(at, {process.pid})
        lab.check("memory after its kill -9", "NVML at 20 Hz",
                  f"back at {base:.0f} MiB", f"{lag} s", lag is not None)  # fmt: skip


def nobody(lab: Lab) -> None:
    """The same host by a login that owns nothing: what it sees, and that it may not kill."""
    folder = Path(tempfile.mkdtemp(prefix="specops-nobody-"))
    shell = Shell(folder, uid=NOBODY)
    files: dict[str, Any] = {
        "identity_files": str(folder / "id"),
        "known_hosts": str(folder / "known_hosts"),
    }
    os.environ["SPECOPS_STATE_DIR"], kept = str(folder), os.environ["SPECOPS_STATE_DIR"]
    folder.chmod(0o777)
    try:
        lab.configure(port=shell.port, **files)
        with holder(1024) as process:
            gpu = gpu_of(lab)
            rows = [r for r in gpu["processes"] if r["pid"] == process.pid]
            seen = {"used_mib": gpu["memory_used_mib"], "power_w": gpu["power_w"], "process": rows,
                    "error": gpu["error"]}  # fmt: skip
            right = gpu["memory_used_mib"] is not None and len(rows) == 1
            lab.check("without permission", "specops status, as uid 65534",
                      "the GPU and root's process are seen", seen, right)  # fmt: skip
            words = ("kill-zombies", "gpu", "--named", str(process.pid), "--yes")
            code, document, _ = lab.specops(*words, timeout=120)
            alive = proc_state(process.pid) not in ("", "Z")
            lab.keep("nobody-kill", document)
            lab.check("a kill of root's process by that login", " ".join(words),
                      "refused, the process lives", f"exit {code}, alive: {alive}",
                      alive and code != 0)  # fmt: skip
    finally:
        os.environ["SPECOPS_STATE_DIR"] = kept
        lab.configure()


def no_python(lab: Lab) -> None:
    """A host without python: nvidia-smi and ps, read-only, and it says so."""
    try:
        lab.configure(python="/nonexistent/python3")
        with holder(1024) as process:
            code, document, _ = lab.specops("status", "gpu", timeout=60)
            host = document["hosts"][0]
            gpu = host["gpus"][0] if host["gpus"] else {}
            listed = [r["pid"] for r in gpu.get("processes", ())]
            seen = {"exit": code, "state": host["state"], "error": host["error"],
                    "used_mib": gpu.get("memory_used_mib"), "holder listed": process.pid in listed}  # fmt: skip
            right = gpu.get("memory_used_mib") is not None and process.pid in listed
            lab.check("a host without python", "specops status",
                      "memory and processes by nvidia-smi and ps", seen, right)  # fmt: skip
    finally:
        lab.configure()


def mps(lab: Lab) -> None:
    """Two programs that share the GPU through MPS: each seen, none taken for a zombie.

    The daemon is one of this part's own, in its own folder; the GPU's settings stay as they are.
    """
    folder = Path(tempfile.mkdtemp(prefix="specops-mps-"))
    own = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        lab.check("MPS", "nvidia-cuda-mps-control -d", "the daemon starts",
                  "not on this machine: not shown", False)  # fmt: skip
        return
    kept = {name: os.environ.get(name) for name in own}
    daemon = subprocess.Popen([control, "-f"], env={**os.environ, **own}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)  # fmt: skip
    try:
        time.sleep(1)
        os.environ.update(own)
        with holder(1024) as one, holder(512) as other:
            for name in own:
                os.environ.pop(name)
            time.sleep(1)
            gpu = gpu_of(lab)
            _, document, _ = lab.specops("zombies", "gpu", "--quick", timeout=60)
            lab.keep("mps", {"gpu": gpu, "zombies": document, "smi": smi_apps()})
            seen = {"processes": [brief(r, "pid", "memory_mib", "kind", "title") for r in gpu["processes"]],
                    "smi": smi_apps(), "clients": [one.pid, other.pid]}  # fmt: skip
            listed = {r["pid"] for r in gpu["processes"]}
            taken = [z for z in document["hosts"][0]["zombies"] if z["killable"]]
            lab.check("two clients of MPS", "specops status; specops zombies --quick",
                      "both listed, none killable", json.dumps(seen),
                      {one.pid, other.pid} <= listed and not taken)  # fmt: skip
    finally:
        for name, value in kept.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
        subprocess.run([control], input="quit\n", env={**os.environ, **own}, text=True, timeout=30,
                       check=False, capture_output=True)  # fmt: skip
        daemon.terminate()
        daemon.wait(20)


def smi_apps() -> list[str]:
    """What nvidia-smi lists as running on the GPU: pid, name, MiB."""
    query = [
        "nvidia-smi",
        "--query-compute-apps=pid,process_name,used_memory",
        "--format=csv,noheader",
    ]
    done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()
