"""A server over two GPUs: its ranks, their deaths and a rank that stands still. Needs two GPUs."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.gpu import servers
from tests.gpu.lab import Lab, Memory, brief, children, gpu_memory, proc_state, smi
from tests.gpu.lifecycle import proc_text, watch, zombies_of
from tests.gpu.pair import ask

PROMPTS, TOKENS = 12, 32


def run(lab: Lab) -> None:
    """All of the part."""
    entries = {name: servers.sglang(tp_size=2) for name in ("wide", "beheaded", "frozen")}
    entries["exact"] = servers.exact(tp_size=2)
    entries["nowhere"] = servers.sglang(tp_size=2, env={"NCCL_SOCKET_IFNAME": "nosuch0"})
    lab.configure(entries)
    lab.facts["gpus"] = smi("name,memory.total")
    lab.facts["idle_mib"] = gpu_memory()
    with Memory() as memory:
        started(lab, list(entries))
        lab.attempt("freeze", lambda: freeze(lab))
        lab.attempt("placed", lambda: placed(lab))
        lab.attempt("text", lambda: text(lab))
        lab.attempt("beheaded", lambda: beheaded(lab, memory))
        lab.attempt("frozen", lambda: frozen(lab))
        lab.attempt("end", lambda: end(lab))


def started(lab: Lab, names: list[str]) -> None:
    """Launch all, watch all at once; the one without its interface has to fail."""
    for name in names:
        servers.launch(lab, name, f"launch {name}, tp 2", check=name == "wide")
    with ThreadPoolExecutor(len(names)) as pool:
        for name, (code, document, seconds) in zip(
            names, pool.map(lambda n: watch(lab, n), names), strict=True
        ):
            lab.keep(f"watch-{name}", document)
            wanted = 6 if name == "nowhere" else 0
            seen = brief(document, "outcome", "phase", "health", "seconds", "phases", "diagnosis")
            lab.check(f"watch {name}, tp 2", f"specops watch {name}", f"exit {wanted}",
                      f"exit {code} after {seconds:.0f} s: {json.dumps(seen)}", code == wanted)  # fmt: skip
            if log := servers.log_of(lab, name):
                lab.keep_log(str(log), f"ranks-{name}")
    code, document, _ = lab.specops("diagnose", "nowhere", timeout=60)
    lab.keep("diagnose-nowhere", document)
    lab.check("diagnose of an interface that is not there", "specops diagnose nowhere", "nccl-init",
              json.dumps(brief(document, "category", "root", "summary")),
              isinstance(document, dict) and document.get("category") == "nccl-init")  # fmt: skip


def ranks_of(lab: Lab, name: str) -> tuple[int, dict[int, str]]:
    """The launcher and the schedulers of a server."""
    row = servers.of(lab, name) or {}
    launcher = int(row["pid"])
    return launcher, {p: t for p, t in children(launcher).items() if "scheduler" in t}


def placed(lab: Lab) -> None:
    """Each GPU shows its rank with its memory."""
    _, ranks = ranks_of(lab, "wide")
    _, document, _ = lab.specops("status", "gpu", timeout=60)
    gpus = document["hosts"][0]["gpus"]
    seen = {gpu["index"]: [p["pid"] for p in gpu["processes"] if p["pid"] in ranks] for gpu in gpus}
    lab.check("a rank on each GPU", "specops status", "one scheduler of the server on each",
              json.dumps({"gpus": seen, "titles": ranks}), all(len(p) == 1 for p in seen.values()))  # fmt: skip


def text(lab: Lab) -> None:
    """Greedy text over two ranks in float32 is the bundled engine's on a CPU."""
    from tests.unit.eagle3 import support

    asked = support.chat_prompts(PROMPTS // 2) + support.code_prompts(PROMPTS // 2)
    wanted = [a.tokens[a.prompt_length :] for a in support.answer(support.engine(), asked, TOKENS)]
    params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    port = lab.servers["exact"]["port"]
    got = [ask(port, "/generate", {"input_ids": p, "sampling_params": params})["output_ids"]
           for p in asked]  # fmt: skip
    same = sum(a[:TOKENS] == b[:TOKENS] for a, b in zip(wanted, got, strict=True))
    lab.check("greedy text, tp 2 with EAGLE3, float32", f"{PROMPTS} prompts, {TOKENS} tokens",
              "the bundled engine's plain text on a CPU", f"{same} of {PROMPTS} equal",
              same == PROMPTS)  # fmt: skip


def beheaded(lab: Lab, memory: Memory) -> None:
    """Rank 1 dies by signal 9: nothing stays on either GPU, and the diagnosis names it."""
    launcher, ranks = ranks_of(lab, "beheaded")
    family = {launcher, *children(launcher)}
    victim = next(pid for pid, title in ranks.items() if "TP1" in title)
    at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    lag = memory.lag(at, family, 30)
    lab.check("memory after kill -9 of rank 1", "NVML at 20 Hz, both GPUs", "all of the server's",
              f"{lag} s", lag is not None)  # fmt: skip
    if log := servers.log_of(lab, "beheaded"):
        lab.keep_log(str(log), "ranks-beheaded-dead")
    row = servers.of(lab, "beheaded") or {}
    code, document, _ = lab.specops("diagnose", "beheaded", timeout=60)
    lab.keep("diagnose-beheaded", document)
    lab.check("status and diagnose after it", "specops status; specops diagnose beheaded",
              "failed; SIGKILL", json.dumps([brief(row, "phase", "health"),
              brief(document, "category", "root", "summary")]),
              row.get("phase") == "failed" and code == 1)  # fmt: skip


def freeze(lab: Lab) -> None:
    """SIGSTOP of rank 1, then a request that its peer will wait on."""
    _, ranks = ranks_of(lab, "frozen")
    lab.facts["frozen_ranks"] = ranks
    victim = next(pid for pid, title in ranks.items() if "TP1" in title)
    os.kill(victim, signal.SIGSTOP)
    lab.facts["frozen_at"] = time.monotonic()


def frozen(lab: Lab) -> None:
    """One rank stands still, the other spins in the collective: hung, both killed, both GPUs free."""
    family = set(lab.facts["frozen_ranks"])
    time.sleep(max(0.0, lab.facts["frozen_at"] + 65 - time.monotonic()))
    code, document, seconds = lab.specops("zombies", "gpu", timeout=90)
    lab.keep("zombies-frozen", document)
    lab.keep("frozen-proc", {pid: proc_text(pid) for pid in family})
    found = [brief(z, "pid", "kind", "gpu_memory_mib", "evidence") for z in document["hosts"][0]["zombies"]
             if z["kind"] in ("hung", "half-dead", "headless", "orphan")]  # fmt: skip
    lab.check("zombies", "specops zombies", "hung", f"{json.dumps(found)}, {seconds:.1f} s",
              any(z["kind"] == "hung" for z in found))  # fmt: skip
    if log := servers.log_of(lab, "frozen"):
        lab.keep_log(str(log), "ranks-frozen-still")
    words = ("kill-zombies", "gpu", "--kind", "hung", "--yes")
    code, document, seconds = lab.specops(*words, timeout=180)
    lab.keep("kill-zombies-frozen", document)
    left = [pid for pid in family if proc_state(pid) not in ("", "Z")]
    lab.check("the hung one is killed, both ranks", " ".join(words), "exit 0, clean, no rank left",
              f"exit {code}, {seconds:.1f} s, {json.dumps(zombies_of(document))}, left {left}",
              code == 0 and not left)  # fmt: skip


def end(lab: Lab) -> None:
    """Stop the rest; both GPUs as at the beginning."""
    for name in ("wide", "exact"):
        code, document, seconds = lab.specops("stop", name, "--yes", timeout=120)
        lab.check(f"stop {name}, tp 2", f"specops stop {name} --yes", "exit 0",
                  f"exit {code}, {seconds:.1f} s, {json.dumps(brief(document, 'outcome', 'detail'))}",
                  code == 0)  # fmt: skip
    lab.specops("kill-zombies", "gpu", "--quick", "--yes", timeout=120)
    seen: Any = [float(row[0]) for row in smi("memory.used")]
    lab.check("memory at the end", "nvidia-smi", f"{lab.facts['idle_mib']:.0f} MiB over both",
              f"{seen}", sum(seen) <= lab.facts["idle_mib"] + 32)  # fmt: skip
