"""Hosts made up at random, with the truth about each process. Knows nothing of the rules.

A host is a mixture of situations. Each situation adds processes, records, log and health states,
and says which processes are zombies of which kind and whether an operator would want them killed
unasked. Two samples are taken: ``advance`` moves what moves in that situation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from console.model import (
    Artefact,
    Gpu,
    GpuProcess,
    Health,
    Phase,
    Process,
    ProcessId,
    Run,
    Server,
    ServerState,
    Snapshot,
)

BOOT = "5eedb007-0000-4000-8000-000000000000"
T0 = 1_790_000_000.0
GPUS = 8
ME = 0


@dataclass(frozen=True)
class Truth:
    """What one process or path really is: a kind or none, and whether to be killed unasked."""

    kind: str | None
    kill: bool = False


@dataclass
class Made:
    """A host in the making: both samples, what is known, and the truth."""

    rng: random.Random
    before: list[Process] = field(default_factory=list)
    now: list[Process] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    servers: dict[str, Server] = field(default_factory=dict)
    states: list[ServerState] = field(default_factory=list)
    probes: dict[str, dict[str, Any]] = field(default_factory=dict)
    artefacts: list[Artefact] = field(default_factory=list)
    extra: dict[int, list[GpuProcess]] = field(default_factory=dict)
    truth: dict[object, Truth] = field(default_factory=dict)
    seconds: float = 130.0
    next_pid: int = 3000
    next_port: int = 30000

    def pid(self) -> int:
        self.next_pid += self.rng.randint(1, 40)
        return self.next_pid

    def port(self) -> int:
        self.next_port += self.rng.randint(1, 20)
        return self.next_port

    def add(self, title: str, *, moves: dict[str, int] | None = None, **values: Any) -> Process:
        """A process in both samples; ``moves`` is what its counters gain between them."""
        pid = values.pop("pid", None) or self.pid()
        age = values.pop("age_s", self.rng.uniform(300, 90_000))
        argv = tuple(title.split())
        process = Process(
            id=ProcessId(pid, int(5e8 - age * 100) + pid, BOOT),
            ppid=values.pop("ppid", 1),
            pgid=values.pop("pgid", pid),
            sid=values.pop("sid", pid),
            uid=values.pop("uid", ME),
            user=values.pop("user", "root"),
            state=values.pop("state", "S"),
            comm=values.pop("comm", argv[0].rsplit("/", 1)[-1][:15] if argv else "x"),
            argv=argv,
            cpu_ticks=self.rng.randint(100, 10**6),
            rss_mib=self.rng.uniform(100, 9000),
            read_bytes=self.rng.randint(0, 10**12),
            write_bytes=0,
            age_s=age + self.seconds,
            **values,
        )
        gained = {k: getattr(process, k) + v for k, v in (moves or {}).items()}
        self.before.append(replace(process, age_s=age))
        self.now.append(replace(process, **gained))
        return process

    def gone(self, process: Process) -> None:
        """It ended between the samples."""
        self.now = [p for p in self.now if p.id != process.id]

    def erase(self, process: Process) -> None:
        """It had ended before the first sample."""
        self.gone(process)
        self.before = [p for p in self.before if p.id != process.id]

    def change(self, process: Process, *, both: bool = True, **values: Any) -> None:
        """Other values for a process, in both samples or only in the later one."""
        swap = [self.now, self.before] if both else [self.now]
        for sample in swap:
            for i, p in enumerate(sample):
                if p.id == process.id:
                    sample[i] = replace(p, **values)


@dataclass
class Srv:
    """A server as made: launcher, ranks, helpers, its name, port and run id."""

    launcher: Process
    ranks: list[Process]
    helpers: list[Process]
    name: str
    port: int
    run_id: str | None


ENGINES = ("sglang", "sglang", "sglang", "bundled", "vllm")


def server(
    host: Made, *, recorded: bool | None = None, configured: bool = True, **values: Any
) -> Srv:
    """A complete, healthy server of a random engine and size, by unit, shell or nohup."""
    rng = host.rng
    engine = values.pop("engine", None) or rng.choice(ENGINES)
    tp = values.pop("tp", None) or (rng.choice((1, 2, 4, 8)) if engine == "sglang" else 1)
    port, name = host.port(), f"srv-{len(host.servers)}-{rng.randint(0, 999)}"
    recorded = rng.random() < 0.6 if recorded is None else recorded
    run_id = f"{rng.getrandbits(32):08x}" if recorded else None
    line = {
        "sglang": f"python3 -m sglang.launch_server --model-path /m --port {port} --tp {tp}",
        "bundled": f"python3 -m eagle3.launch_server --port {port}",
        "vllm": f"python3 -m vllm.entrypoints.openai.api_server --port {port}",
    }[engine]
    if engine == "sglang" and rng.random() < 0.3:
        line = f"/opt/venv/bin/python /opt/venv/bin/sglang serve --model /m --port {port} --tp={tp}"
    common = {"run_id": run_id, "env": {"SPECOPS_RUN_ID": run_id} if run_id else {}, **values}
    idle = {"cpu_ticks": rng.randint(0, 20)}
    launcher = host.add(line, listening=(port,), moves=idle, **common)
    sid = launcher.sid
    age = launcher.age_s - host.seconds - rng.uniform(1, 20)
    titles = {
        "sglang": ["sglang::scheduler"]
        if tp == 1
        else [f"sglang::scheduler_TP{i}" for i in range(tp)],
        "bundled": ["eagle3::scheduler"],
        "vllm": ["VLLM::EngineCore"],
    }[engine]
    shared = {**common, "ppid": launcher.id.pid, "sid": sid, "pgid": sid, "age_s": age}
    ranks = [
        host.add(t, gpu_memory_mib={i % GPUS: rng.uniform(2000, 15000)}, moves=idle, **shared)
        for i, t in enumerate(titles)
    ]
    helper = "python3 -c from multiprocessing.resource_tracker import main;main(9)"
    helpers = [host.add(helper, **shared)]
    if engine == "sglang":
        helpers.append(host.add("sglang::detokenizer", **shared))
        compile_worker = "python3 /v/torch/_inductor/compile_worker/__main__.py --pickler=x"
        below = {**shared, "ppid": ranks[0].id.pid}
        helpers += [host.add(compile_worker, **below) for _ in range(rng.randint(0, 6))]
    if configured:
        host.servers[name] = Server(name, "h", engine=engine, port=port)  # type: ignore[arg-type]
    if run_id:
        host.runs.append(
            Run(
                run_id, name, engine, "h", (), {}, "/", "/l", port, launcher.id, sid, None,
                T0 - launcher.age_s, "op",
            )
        )  # fmt: skip
    return Srv(launcher, ranks, helpers, name, port, run_id)


def observe(host: Made, srv: Srv, phase: Phase, health: Health, silent: float | None) -> None:
    """What its log and health say."""
    host.states.append(
        ServerState(
            srv.name,
            phase,
            health,
            pid=srv.launcher.id.pid,
            port=srv.port,
            run_id=srv.run_id,
            log_silent_s=silent,
        )
    )


# ---- situations: nothing to kill


def healthy(host: Made) -> None:
    srv = server(host)
    observe(host, srv, Phase.READY, Health.OK, host.rng.uniform(0, 900))


def healthy_under_tmux(host: Made) -> None:
    shell = host.add("bash")
    srv = server(host, ppid=shell.id.pid, sid=shell.id.pid)
    observe(host, srv, Phase.READY, Health.OK, 5.0)


def busy(host: Made) -> None:
    srv = server(host)
    for rank in srv.ranks:
        host.change(rank, both=False, cpu_ticks=rank.cpu_ticks + 12000)
    observe(host, srv, Phase.READY, Health.TIMEOUT, host.rng.uniform(0, 50))
    host.probes[srv.name] = {
        "waits": [20.0, 20.0], "health": Health.TIMEOUT,
        "tokens_still_s": host.rng.uniform(0, 50), "metrics_answered": True,
    }  # fmt: skip


def loading(host: Made) -> None:
    srv = server(host, age_s=host.rng.uniform(30, 9000))
    host.change(srv.launcher, listening=())
    for rank in srv.ranks:
        host.change(rank, both=False, read_bytes=(rank.read_bytes or 0) + 10**9)
        if host.rng.random() < 0.3:
            host.change(rank, state="D", wchan="folio_wait")
    observe(host, srv, Phase.LOAD_TARGET, Health.REFUSED, host.rng.uniform(1, 3000))


def compiling(host: Made) -> None:
    srv = server(host, age_s=host.rng.uniform(100, 4000))
    host.change(srv.launcher, listening=())
    for rank in srv.ranks:
        host.change(rank, both=False, cpu_ticks=rank.cpu_ticks + 13000)
    observe(host, srv, Phase.GRAPH_TARGET, Health.REFUSED, host.rng.uniform(1, 2000))


def starting(host: Made) -> None:
    srv = server(host, age_s=host.rng.uniform(1, 25), engine="sglang")
    for process in (*srv.ranks, *srv.helpers):
        host.erase(process)
    host.change(srv.launcher, listening=())
    observe(host, srv, Phase.SPAWN, Health.REFUSED, 10.0)


def training(host: Made) -> None:
    top = host.add("python3 /usr/bin/torchrun --nproc 2 train.py")
    for rank in range(2):
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        one = host.add(
            "python3 train.py", ppid=top.id.pid, sid=top.sid, env=env, gpu_memory_mib={rank: 9000.0}
        )
        host.truth[one.id] = Truth("foreign")


def orphaned_training(host: Made) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1"}
    one = host.add("python3 finetune.py", sid=2500, env=env, gpu_memory_mib={3: 30000.0})
    host.truth[one.id] = Truth("foreign")


def own_job(host: Made) -> None:
    one = host.add("python3 notebook_export.py", gpu_memory_mib={host.rng.randrange(GPUS): 700.0})
    host.truth[one.id] = Truth("foreign")


def desktop(host: Made) -> None:
    one = host.add("/usr/lib/xorg/Xorg :0 -core", gpu_memory_mib={0: 60.0})
    host.truth[one.id] = Truth("foreign")


def monitors(host: Made) -> None:
    for title in ("/usr/bin/dcgm-exporter", "nvidia-persistenced", "/usr/bin/nvtop"):
        host.add(title, nvidia_minors=(0, 1))
    one = host.add("nvidia-cuda-mps-server", gpu_memory_mib={1: 400.0})
    host.truth[one.id] = Truth("foreign")


def another_user(host: Made) -> None:
    uid = host.rng.randint(1001, 1010)
    one = host.add(
        host.rng.choice(("sglang::scheduler_TP0", "VLLM::EngineCore", "python3 serve.py")),
        uid=uid, user=f"u{uid}", sid=2600, gpu_memory_mib={2: 40000.0},
    )  # fmt: skip
    host.truth[one.id] = Truth("foreign")


def boxed(host: Made) -> None:
    how: dict[str, Any] = host.rng.choice(
        (
            {"container": "9f8e7d", "cgroup": "/docker/9f8e7d"},
            {"unit": "llm.service", "cgroup": "/system.slice/llm.service"},
            {"env": {"SLURM_JOB_ID": "9"}, "cgroup": "/slurm/job_9"},
            {"cgroup": "/kubepods/besteffort/pod77/abc"},
            {"foreign_namespace": True},
        )
    )
    one = host.add("sglang::scheduler_TP0", sid=2700, gpu_memory_mib={4: 60000.0}, **how)
    host.truth[one.id] = Truth("foreign")


def rollout_of_training(host: Made) -> None:
    env = {"RANK": "3", "WORLD_SIZE": "8"}
    one = host.add("sglang::scheduler_TP0", sid=2800, env=env, gpu_memory_mib={5: 60000.0})
    host.truth[one.id] = Truth("foreign")


def lookalikes(host: Made) -> None:
    for title in ("vim sglang.launch_server", "tail -f sglang::scheduler.log", "grep VLLM:: x"):
        host.add(title)
    host.add("python3 -c from multiprocessing.resource_tracker import main;main(3)", sid=2900)


def stopping(host: Made) -> None:
    srv = server(host)
    observe(host, srv, Phase.DRAINING, Health.UNAVAILABLE, 300.0)


def restarted_with_same_run(host: Made) -> None:
    """A unit started anew keeps the run id of its drop-in; the record names the old launcher."""
    srv = server(host, recorded=True)
    old = host.runs[-1]
    was = ProcessId(host.pid(), 17, BOOT)
    host.runs[-1] = replace(old, launcher=was)
    observe(host, srv, Phase.READY, Health.OK, 1.0)


# ---- situations: zombies


def orphan(host: Made) -> None:
    srv = server(host)
    host.erase(srv.launcher)
    for helper in srv.helpers:
        host.erase(helper)
    if host.rng.random() < 0.3:  # the number of the launcher has been given to somebody else
        host.add("python3 other.py", pid=srv.launcher.id.pid, sid=2400, age_s=50.0)
        for rank in srv.ranks:
            host.change(rank, sid=srv.launcher.sid if srv.run_id else 2399)
    for rank in srv.ranks:
        host.change(rank, ppid=1)
        host.truth[rank.id] = Truth("orphan", kill=True)


def orphan_dying_launcher(host: Made) -> None:
    """The launcher ended between the samples: it takes a third sample to be sure."""
    srv = server(host)
    host.gone(srv.launcher)
    for process in (*srv.ranks, *srv.helpers):
        host.change(process, both=False, ppid=1)
    for rank in srv.ranks:
        host.truth[rank.id] = Truth("orphan")
    for helper in srv.helpers:
        if helper.comm.startswith("sglang::") or helper.run_id:
            host.truth[helper.id] = Truth("orphan")


def half_dead(host: Made) -> None:
    srv = server(host, engine="sglang", tp=1)
    observe(host, srv, Phase.READY, Health.OK, 10.0)
    rank = srv.ranks[0]
    pid = rank.id.pid
    states = {pid: "Z", pid + 1: "S", pid + 2: host.rng.choice("SR")}
    fields: dict[str, Any] = {"state": "Z", "task_states": states, "threads": 3, "readable": False}
    host.change(rank, argv=(), comm="sglang::schedul", **fields)
    host.truth[rank.id] = Truth("half-dead", kill=True)


def defunct(host: Made) -> None:
    parent = host.add("python3 my_launcher.py")
    one = host.add("", ppid=parent.id.pid, state="Z", comm="sglang::schedul", readable=False)
    host.truth[one.id] = Truth("defunct")


def headless(host: Made) -> None:
    srv = server(host, engine=host.rng.choice(("sglang", "bundled")))
    observe(host, srv, Phase.READY, Health.TIMEOUT, host.rng.uniform(100, 9000))
    dead = srv.ranks if host.rng.random() < 0.5 else srv.ranks[: max(1, len(srv.ranks) // 2)]
    for rank in dead:
        if host.rng.random() < 0.5:
            host.erase(rank)
        else:
            title = rank.comm[:15]
            host.change(rank, state="Z", argv=(), comm=title, readable=False, gpu_memory_mib={})
            host.truth[rank.id] = Truth("defunct")
    for helper in srv.helpers:
        if helper.ppid != srv.launcher.id.pid:
            host.erase(helper)
    host.truth[srv.launcher.id] = Truth("headless", kill=True)


def never_ready(host: Made) -> None:
    srv = server(host, age_s=host.rng.uniform(2000, 40_000))
    host.change(srv.launcher, listening=())
    phase = host.rng.choice((Phase.LOAD_TARGET, Phase.GRAPH_TARGET, Phase.WARMUP, Phase.KV_TARGET))
    observe(host, srv, phase, Health.REFUSED, host.rng.uniform(200, 30_000))
    host.truth[srv.launcher.id] = Truth("never-ready", kill=True)


def hung(host: Made) -> None:
    srv = server(host)
    observe(host, srv, Phase.READY, Health.TIMEOUT, host.rng.uniform(61, 30_000))
    if host.rng.random() < 0.4:
        for rank in srv.ranks:
            host.change(rank, state="T")
    elif host.rng.random() < 0.5:
        for rank in srv.ranks:
            host.change(rank, both=False, cpu_ticks=rank.cpu_ticks + 13000)
    known = host.rng.random() < 0.5
    host.probes[srv.name] = {
        "waits": [20.0, 20.0], "health": host.rng.choice((Health.TIMEOUT, Health.UNAVAILABLE)),
        "tokens_still_s": host.rng.uniform(61, 9000) if known else None, "metrics_answered": known,
    }  # fmt: skip
    host.truth[srv.launcher.id] = Truth("hung", kill=True)


def stuck(host: Made) -> None:
    srv = server(host)
    observe(host, srv, Phase.READY, Health.OK, 1.0)
    rank = srv.ranks[0]
    host.change(rank, cpu_ticks=7, read_bytes=9, state="D", wchan="nfs4_wait")
    host.truth[rank.id] = Truth("stuck-io")


def ghost(host: Made) -> None:
    gpu = host.rng.randrange(GPUS)
    host.extra.setdefault(gpu, []).append(GpuProcess(900_000 + gpu, host.rng.uniform(2000, 60000)))
    host.truth[("gpu", gpu)] = Truth("ghost-memory")


def leftover(host: Made) -> None:
    rng = host.rng
    for name in rng.sample(
        ("psm_%08x", "nccl-%06x", "torch_%d_1", "sem.mp-%x", "cuda.shm.0.%x.1", "sgl_shm_mm_2_%x"),
        3,
    ):
        path = "/dev/shm/" + name % rng.getrandbits(30)
        bad = rng.random() < 0.5
        value = Artefact("shm", path, ME, "root", 1 << 20, rng.uniform(700, 90000), 1, 5, None, ())
        if bad:
            value = replace(
                value,
                **rng.choice(
                    (
                        {"holders": (77,)},
                        {"uid": 1005, "user": "u1005"},
                        {"age_s": 20.0},
                        {"holders": None},
                    )
                ),
            )
        host.artefacts.append(value)
        held = bool(value.holders)
        host.truth[path] = Truth(None if held else "leftover", kill=not bad)


QUIET: tuple[Callable[[Made], None], ...] = (
    healthy, healthy_under_tmux, busy, loading, compiling, starting, training, orphaned_training,
    own_job, desktop, monitors, another_user, boxed, rollout_of_training, lookalikes, stopping,
    restarted_with_same_run,
)  # fmt: skip
ZOMBIES: tuple[Callable[[Made], None], ...] = (
    orphan, orphan_dying_launcher, half_dead, defunct, headless, never_ready, hung, stuck, ghost,
    leftover,
)  # fmt: skip


def host(rng: random.Random) -> Made:
    """A host: a handful of situations, zombies among them more often than in life."""
    made = Made(rng)
    made.add("/sbin/init", pid=1, ppid=0, age_s=500_000.0)
    chosen = rng.sample(QUIET, rng.randint(2, 5)) + rng.choices(ZOMBIES, k=rng.randint(0, 4))
    rng.shuffle(chosen)
    for situation in chosen:
        situation(made)
    return made


def snapshots(made: Made) -> tuple[Snapshot, Snapshot]:
    """Both samples of a host."""
    return _snapshot(made, made.before, T0), _snapshot(made, made.now, T0 + made.seconds)


def _snapshot(made: Made, processes: list[Process], time: float) -> Snapshot:
    gpus = []
    for index in range(GPUS):
        listed = [
            GpuProcess(p.id.pid, p.gpu_memory_mib[index])
            for p in processes
            if index in p.gpu_memory_mib
        ] + made.extra.get(index, [])
        used = 4.0 + sum(p.memory_mib or 0.0 for p in listed)
        gpus.append(Gpu(index, f"GPU-{index}", "H200", used, 1e6, processes=tuple(listed)))
    listening = {port: p.id.pid for p in processes for port in p.listening}
    return Snapshot(
        BOOT, time, ME, tuple(processes), tuple(gpus), "nvml",
        artefacts=tuple(made.artefacts), listening=listening,
    )  # fmt: skip
