"""A server's life through ``specops``: launch, look, bench, stop, relaunch, and its deaths."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gpu import servers
from tests.gpu.lab import NO_BYTES, Lab, Memory, brief, children, gpu_memory, proc_state
from tests.gpu.pair import ask

NAMES = ("main", "orphaned", "beheaded", "frozen", "again")
START_S = 240


def run(lab: Lab, engine: str = "sglang") -> None:
    """All of the part. Idle servers keep their memory, so each loss is measured by itself."""
    make = servers.sglang if engine == "sglang" else servers.bundled
    entries = {name: make() for name in NAMES}
    if engine == "sglang":
        entries["captured"] = servers.sglang(cuda_graph_max_bs=160, max_running_requests=160)
        entries["wrapped"] = servers.wrapped()
    lab.configure(entries)
    lab.facts["idle_mib"] = gpu_memory()
    with Memory() as memory:
        started(lab, list(entries))
        lab.attempt("freeze", lambda: freeze(lab))
        lab.attempt("look", lambda: look(lab, entries["main"]["port"]))
        lab.attempt("wrapped", lambda: wrapped(lab))
        lab.attempt("orphaned", lambda: launcher_killed(lab, memory))
        lab.attempt("beheaded", lambda: scheduler_killed(lab, memory))
        lab.attempt("frozen", lambda: kill_frozen(lab))
        lab.attempt("stop", lambda: stop(lab, memory))
        lab.attempt("again", lambda: relaunch(lab))
        for name in ("again", "wrapped"):
            lab.specops("stop", name, "--yes", "--timeout", "10", timeout=120)
        lab.attempt("end", lambda: nothing_left(lab, memory))


def tree(lab: Lab, name: str) -> tuple[int, int]:
    """Process ids of the launcher and of the scheduler of a server."""
    row = servers.of(lab, name) or {}
    launcher = int(row["pid"])
    ranks = [pid for pid, title in children(launcher).items() if "scheduler" in title]
    return launcher, ranks[0] if ranks else launcher


def started(lab: Lab, names: list[str]) -> None:
    """Launch all, one plan at a time; watch all at once."""
    for name in names:
        servers.launch(lab, name, f"launch {name}", check=name == "main")
    with ThreadPoolExecutor(len(names) + 1) as pool:
        if "captured" in names:
            pool.submit(lab.attempt, "captured", lambda: kill_in_capture(lab))
        jobs = {n: pool.submit(watch, lab, n) for n in names}
        for name, job in jobs.items():
            code, document, seconds = job.result()
            lab.keep(f"watch-{name}", document)
            seen = brief(document, "outcome", "phase", "health", "seconds", "phases", "detail")
            wanted, exit_wanted = ("failed", 6) if name == "captured" else ("ready", 0)
            if name == "captured":
                seen["diagnosis"] = (document.get("diagnosis") or {}).get("summary")
            lab.check(f"watch {name}", f"specops watch {name}", f"{wanted}, exit {exit_wanted}",
                      f"exit {code} after {seconds:.0f} s: {json.dumps(seen)}",
                      code == exit_wanted)  # fmt: skip
            if log := servers.log_of(lab, name):
                lab.keep_log(str(log), f"lifecycle-{name}")


def watch(lab: Lab, name: str) -> tuple[int, Any, float]:
    """Watch one to its end."""
    return lab.specops("watch", name, "--timeout", str(START_S), timeout=START_S + 30)


def kill_in_capture(lab: Lab) -> None:
    """Kill -9 of the scheduler while it captures graphs, as its log says."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        log = servers.log_of(lab, "captured")
        if log and b"Capture cuda graph begin" in log.read_bytes():
            _, rank = tree(lab, "captured")
            os.kill(rank, signal.SIGKILL)
            text = log.read_bytes()
            begun = len(re.findall(rb"Capture [a-z ]*graph begin", text))
            ended = len(re.findall(rb"Capture [a-z ]*graph end", text))
            lab.check("scheduler killed during graph capture", f"kill -9 {rank}", "it captures",
                      f"{begun} begun, {ended} ended", begun > ended)  # fmt: skip
            return
        time.sleep(0.2)
    raise RuntimeError("no graph capture was seen")


def look(lab: Lab, port: int) -> None:
    """The commands that only look, and bench."""
    code, document, seconds = lab.specops("preflight", "main", timeout=240)
    rules = [f["rule"] for f in document.get("findings", ())]
    lab.check("preflight of a running server's entry", "specops preflight main",
              "an answer; its own port is taken", f"exit {code}, {seconds:.1f} s, {rules}",
              code in (0, 5))  # fmt: skip
    code, document, seconds = lab.specops("bench", "main", "--concurrency", "1,4", "--requests", "4",
                                          "--tokens", "64", timeout=180)  # fmt: skip
    lab.keep("bench", document)
    lab.check("bench", "specops bench main --concurrency 1,4", "exit 0, tokens/s, TTFT, accept length",
              f"exit {code}, {seconds:.1f} s, {json.dumps(document)[:480]}", code == 0)  # fmt: skip
    row = servers.of(lab, "main") or {}
    right = row.get("health") == "ok" and row.get("phase") == "ready" and row.get("pid")
    lab.check("status of a serving one", "specops status", "phase ready, health ok, pid, accept length",
              row, bool(right) and (row.get("accept_length") or 0) > 1)  # fmt: skip
    said = [line for line in str(ask(port, "/metrics")).splitlines() if "accept_length{" in line]
    lab.facts["metrics"] = said
    code, document, seconds = lab.specops("logs", "main", "-n", "20", timeout=60)
    lab.keep("logs", document)
    lab.check("logs", "specops logs main -n 20", "exit 0, the last lines",
              f"exit {code}, {seconds:.1f} s, {len(json.dumps(document))} characters", code == 0)  # fmt: skip
    code, document, seconds = lab.specops("diagnose", "main", timeout=60)
    lab.check("diagnose of a healthy log", "specops diagnose main", "category none, exit 0",
              f"exit {code}, {json.dumps(brief(document, 'category', 'root', 'summary'))}",
              code == 0)  # fmt: skip


def wrapped(lab: Lab) -> None:
    """The bundled server's command with SGLang as its engine: one process tree, one completion."""
    if "wrapped" not in lab.servers:
        return
    row = servers.of(lab, "wrapped") or {}
    title = Path(f"/proc/{row.get('pid')}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    body = {"model": "x", "prompt": "The capital of France is", "max_tokens": 16, "temperature": 0}
    reply = ask(lab.servers["wrapped"]["port"], "/v1/completions", body)
    seen = {**brief(row, "phase", "health", "pid", "preset"), "command": title[:120],
            "text": reply["choices"][0]["text"]}  # fmt: skip
    lab.check("eagle3 --engine sglang", "specops launch wrapped; status; one completion",
              "SGLang serves under the bundled server's entry", json.dumps(seen),
              row.get("health") == "ok" and "sglang.launch_server" in title
              and bool(seen["text"]))  # fmt: skip


def die(lab: Lab, memory: Memory, name: str, who: str) -> None:
    """Kill -9 the launcher or the scheduler; memory, what is left, what status says."""
    launcher, rank = tree(lab, name)
    titles = {launcher: name, **children(launcher)}
    family = set(titles)
    held, before, at = memory.held(family), gpu_memory(), time.monotonic()
    os.kill(launcher if who == "launcher" else rank, signal.SIGKILL)
    lag = memory.lag(at, family, 20)
    lab.check(f"memory after kill -9 of the {who}", f"kill -9, NVML at 20 Hz (it held {held:.0f} MiB)",
              f"{before - held:.0f} MiB of {before:.0f}", f"{lag} s", lag is not None)  # fmt: skip
    left = {
        f"{pid} {titles[pid][:80]}": state
        for pid in family
        if (state := proc_state(pid)) not in ("", "Z")
    }
    row = servers.of(lab, name) or {}
    lab.check(f"status after kill -9 of the {who}", "specops status", "failed or stopped, not ready",
              f"{json.dumps(brief(row, 'phase', 'health', 'diagnosis'))}, processes left: {left}",
              row.get("phase") in ("failed", "stopped"))  # fmt: skip
    code, document, _ = lab.specops("diagnose", name, timeout=60)
    lab.check(f"diagnose after kill -9 of the {who}", f"specops diagnose {name}",
              "that it was killed" if who == "scheduler" else "an answer",
              f"exit {code}: {json.dumps(brief(document, 'category', 'summary'))}",
              code == 1 if who == "scheduler" else code in (0, 1))  # fmt: skip
    if log := servers.log_of(lab, name):
        lab.keep_log(str(log), f"lifecycle-{name}-dead")


def launcher_killed(lab: Lab, memory: Memory) -> None:
    """The launcher alone: its children follow or are orphans, which kill-zombies ends."""
    die(lab, memory, "orphaned", "launcher")
    code, document, seconds = lab.specops("kill-zombies", "gpu", "--quick", "--yes", timeout=120)
    lab.keep("kill-zombies-orphaned", document)
    lab.check("what the launcher left", "specops kill-zombies --quick --yes", "exit 0, clean",
              f"exit {code}, {seconds:.1f} s, {json.dumps(zombies_of(document))}", code == 0)  # fmt: skip


def scheduler_killed(lab: Lab, memory: Memory) -> None:
    """The scheduler alone: the launcher notices and ends by itself."""
    die(lab, memory, "beheaded", "scheduler")


def zombies_of(document: Any) -> Any:
    """What a kill-zombies document says, in short."""
    if not isinstance(document, dict) or "hosts" not in document:
        return str(document)[-200:]
    host = document["hosts"][0]
    short = [brief(z, "pid", "kind", "gpu_memory_mib") for z in host.get("killed", ())]
    return {"killed": short, **brief(host, "freed_mib", "clean")}


def freeze(lab: Lab) -> None:
    """SIGSTOP of a scheduler, when every server is up; the kill comes in ``kill_frozen``."""
    _, rank = tree(lab, "frozen")
    os.kill(rank, signal.SIGSTOP)
    lab.facts["frozen_at"], lab.facts["frozen_pid"] = time.monotonic(), rank


def proc_text(pid: int) -> dict[str, str]:
    """What the kernel says of a process, for whoever must explain why it was not called hung."""
    found = {}
    for name in ("cmdline", "stat", "io", "wchan"):
        try:
            found[name] = Path(f"/proc/{pid}/{name}").read_text(errors="replace")[:400]
        except OSError as error:
            found[name] = str(error)
    return found


def kill_frozen(lab: Lab) -> None:
    """A stopped scheduler answers nothing for a minute: hung, proved, killed."""
    time.sleep(max(0.0, lab.facts["frozen_at"] + 65 - time.monotonic()))
    family = {lab.facts["frozen_pid"], *children(lab.facts["frozen_pid"]), *tree(lab, "frozen")}
    lab.keep("frozen-proc-before", {pid: proc_text(pid) for pid in family})
    row = servers.of(lab, "frozen") or {}
    lab.check("status of a frozen scheduler", "specops status", "health not ok",
              json.dumps(brief(row, "phase", "health", "diagnosis")), row.get("health") != "ok")  # fmt: skip
    code, document, seconds = lab.specops("zombies", "gpu", timeout=90)
    lab.keep("zombies-frozen", document)
    lab.keep("frozen-proc-after", {pid: proc_text(pid) for pid in family})
    lab.keep("frozen-status", lab.specops("status", "gpu", timeout=60)[1])
    lab.facts["frozen_family"] = children(lab.facts["frozen_pid"])
    if log := servers.log_of(lab, "frozen"):
        lab.keep_log(str(log), "lifecycle-frozen-still")
    kinds = [z["kind"] for z in document["hosts"][0]["zombies"]]
    lab.check("zombies", "specops zombies", "hung, in ≤ 35 s", f"{kinds}, {seconds:.1f} s",
              "hung" in kinds and seconds <= 35)  # fmt: skip
    before = gpu_memory()
    code, document, seconds = lab.specops(
        "kill-zombies", "gpu", "--kind", "hung", "--yes", timeout=180
    )
    lab.keep("kill-zombies-frozen", document)
    lab.check("the frozen one is killed", "specops kill-zombies --kind hung --yes", "exit 0, clean",
              f"exit {code}, {seconds:.1f} s, {json.dumps(zombies_of(document))}, "
              f"{before:.0f} → {gpu_memory():.0f} MiB", code == 0 and gpu_memory() < before)  # fmt: skip
    state = proc_state(lab.facts["frozen_pid"])
    lab.check("its scheduler", f"/proc/{lab.facts['frozen_pid']}/stat", "gone", state or "gone",
              state in ("", "Z"))  # fmt: skip


def stop(lab: Lab, memory: Memory) -> None:
    """A clean stop: drained, ended, memory verified."""
    launcher, _ = tree(lab, "main")
    family = {launcher, *children(launcher)}
    held, before, at = memory.held(family), gpu_memory(), time.monotonic()
    code, document, seconds = lab.specops("stop", "main", "--yes", timeout=120)
    lag = memory.lag(at, family, 20)
    lab.keep("stop", document)
    left = [pid for pid in family if proc_state(pid) not in ("", "Z")]
    lab.check("stop", "specops stop main --yes", "stopped, exit 0, no process left",
              f"exit {code}, {seconds:.1f} s, {json.dumps(brief(document, 'outcome', 'detail', 'timings'))}"
              f", left {left}", code == 0 and not left)  # fmt: skip
    lab.check("memory after stop", f"NVML at 20 Hz (it held {held:.0f} MiB)",
              f"{before - held:.0f} MiB of {before:.0f}", f"{lag} s after the command began",
              lag is not None)  # fmt: skip


def relaunch(lab: Lab) -> None:
    """A running server with another preset: one command, watched."""
    words = ("relaunch", "again", "--preset", "eagle3-1step", "--wait", "--yes")
    code, document, seconds = lab.specops(*words, timeout=START_S)
    lab.keep("relaunch", document)
    seen = brief(document, "outcome", "seconds", "timings", "phases", "detail")
    lab.check("relaunch, compile caches warm", f"specops {' '.join(words)}", "ready, exit 0",
              f"exit {code} after {seconds:.0f} s: {json.dumps(seen)}", code == 0)  # fmt: skip
    row = servers.of(lab, "again") or {}
    pid = row.get("pid")
    text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() if pid else ""
    lab.check("the preset of the new run", "its argument vector", "--speculative-num-steps 1",
              json.dumps(brief(row, "phase", "preset")), "--speculative-num-steps 1" in text)  # fmt: skip


def nothing_left(lab: Lab, memory: Memory) -> None:
    """At the end: what the killed ones left is cleaned; no zombies, memory as at the beginning."""
    code, document, seconds = lab.specops("kill-zombies", "gpu", "--quick", "--yes", timeout=120)
    lab.keep("kill-zombies-end", document)
    host = document["hosts"][0]
    lab.check("what they left is cleaned", "specops kill-zombies --quick --yes", "exit 0, clean",
              f"exit {code}, {seconds:.1f} s, {json.dumps(brief(host, 'cleaned', 'clean'))}",
              code == 0)  # fmt: skip
    code, document, _ = lab.specops("zombies", "gpu", "--quick", timeout=60)
    found = [brief(z, "pid", "kind", "resource") for z in document["hosts"][0]["zombies"]]
    used = memory.samples[-1][1] if memory.samples else None
    idle = lab.facts["idle_mib"]
    lab.check("nothing is left", "specops zombies --quick", f"none, {idle:.0f} MiB in use",
              f"exit {code}, {found}, {used} MiB", not found and used is not None
              and used <= idle + NO_BYTES)  # fmt: skip
