"""A fleet and actions made by hand, in the states an operator has to tell apart."""

# ruff: noqa: E501 - tables of values and log lines read better whole

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.app import SpecopsApp
from console.bench import Level
from console.config import Config
from console.errors import ActionFailed
from console.model import (
    Artefact,
    Change,
    Cpu,
    Diagnosis,
    Finding,
    Gpu,
    GpuProcess,
    Health,
    Host,
    HostState,
    HostView,
    Phase,
    PhaseSpan,
    Plan,
    Preset,
    Process,
    ProcessId,
    Root,
    Run,
    Runner,
    Server,
    ServerState,
    Severity,
    Snapshot,
    Step,
    StepKind,
    StepResult,
    Target,
    Zombie,
    ZombieKind,
)
from console.planning.measuring import Load
from console.remote import Cursor, LogChunk, LogSource
from console.screens.opening import Prepared
from console.screens.ports import ActionsPort, FleetPort, Output
from console.screens.prompts import ScreenPrompts

NOW = 1_796_000_000.0
BOOT = "6f1c9d3e-0000-4000-8000-000000000001"
HOSTILE = "\x1b[31m[bold red]evil[/]\x1b]52;c;AAAA\x07\u202e"

LOG = b"""\
[2026-11-29 05:49:02] server_args=ServerArgs(model_path='/shared/kimi')
[2026-11-29 05:49:08 TP0] Init torch distributed begin.
[2026-11-29 05:49:12 TP1] Load weight begin. avail mem=78.90 GB
Loading safetensors checkpoint shards: 100%|##########| 64/64 [01:52<00:00,  1.75s/it]
[2026-11-29 05:58:14 TP0] Capture cuda graph begin. avail mem=8.91 GB
[2026-11-29 05:58:20 TP3] WARNING: something is slower than it could be
[2026-11-29 05:58:22 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/ml/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 2710, in run
    scheduler = Scheduler(server_args, port_args)
  File "/opt/ml/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 312, in __init__
    self.draft_worker = EAGLEWorker(
  File "/opt/ml/lib/python3.11/site-packages/sglang/srt/configs/model_config.py", line 541, in derive
    raise ValueError(msg)
ValueError: Target model's context_length (262144) is greater than the derived context_length
[2026-11-29 05:58:22] Received sigquit from a child process. It usually means the child failed.
"""


def process(
    pid: int, title: str, *, user: str = "root", mib: float = 900.0, ppid: int = 1
) -> Process:
    """One process of the fake host."""
    return Process(
        ProcessId(pid, pid * 10, BOOT), ppid, pid, pid, 0, user, "S", title.partition(" ")[0][:15],
        tuple(title.split()), rss_mib=mib, age_s=29_520.0,
    )  # fmt: skip


def _gpus(used: float, util: float, pids: tuple[int, ...] = ()) -> tuple[Gpu, ...]:
    holders = tuple(GpuProcess(pid, used) for pid in pids)
    return tuple(
        Gpu(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3", used * (1 - i * 0.01), 81_559.0, 500.0, util, 310.0,
            56.0, holders if i == 0 else ())
        for i in range(8)
    )  # fmt: skip


def run_of(server: str, host: str, run_id: str, outcome: str = "ready") -> Run:
    """A run record."""
    return Run(
        run_id, server, "sglang", host, ("python3", "-m", "sglang.launch_server", "--port", "8000"),
        {}, "/", f"/data/logs/{server}.log", 8000, ProcessId(4711, 47110, BOOT), 4711, None,
        NOW - 30_000, "ops@laptop", speculative="eagle3-3step", nccl="pcie-ll-ring",
        outcome=outcome, phases=(("args", 0.9), ("load_target", 108.0), ("graph_target", 48.0)),
    )  # fmt: skip


ZOMBIE = Zombie(
    "n4711", ZombieKind.NEVER_READY, 4711, ProcessId(4711, 47110, BOOT), NOW - 29_520, "root", 0.97,
    ("weights loaded 8 h 09 min ago; then no log line, 0 tokens, GPU util 0 %",
     "port 8000 refused; last phase graph_target 4/23, usual 48 s"),
    killable=True, device="cuda", memory_mib=9_000.0, gpu_memory_mib=737_312.0, run_id="3f2c",
    title="python3 -m sglang.launch_server",
)  # fmt: skip


def views() -> dict[str, HostView]:
    """Five hosts: a zombie, a healthy one, one that starts, a lost one, a hostile one."""
    ct129 = Host("ct129", "ct129.example", labels=("pcie",))
    procs = (
        process(
            4711,
            "python3 -m sglang.launch_server --model-path /shared/kimi --api-key sk-SECRETSECRETSECRET1",
        ),
        *(
            process(4720 + i, f"sglang::scheduler_TP{i}", ppid=4711, mib=2_000.0 + i)
            for i in range(8)
        ),
        process(900, "/usr/bin/python3 train.py", user="bob", mib=12_000.0),
    )
    shm = Artefact("shm", "/dev/shm/sglang_17", 0, "root", 224_395_264, 30_000.0)
    never = HostView(
        ct129, HostState.OK, "", NOW - 1, None,
        Snapshot(BOOT, NOW, 0, procs, _gpus(78_000.0, 0.0, (4711,)), "nvml", None,
                 Cpu(90_000.0, 515_000.0, 64, 3.0), (shm,)),
        (ServerState("kimi-k25", Phase.GRAPH_TARGET, Health.REFUSED, 4711, 8000, "3f2c", None,
                     phases=(PhaseSpan(Phase.ARGS, 0.0, 0.9), PhaseSpan(Phase.LOAD_TARGET, 0.9, 113.0),
                             PhaseSpan(Phase.GRAPH_TARGET, 113.0, None, done=4, total=23)),
                     log_silent_s=29_340.0),),
        (ZOMBIE,), (run_of("kimi-k25", "ct129", "3f2c", ""),),
    )  # fmt: skip
    dflash = HostView(
        Host("dflash", "dflash.example"), HostState.OK, "", NOW - 1, None,
        Snapshot(BOOT, NOW, 0, (process(5100, "python3 -m sglang.launch_server"),), _gpus(61_000.0, 61.0),
                 "nvml", None, Cpu(50_000.0, 515_000.0, 64, 12.0)),
        (ServerState("k26", Phase.READY, Health.OK, 5100, 30001, "7d10", "eagle3-1step", 2.4, 812.0, 3, 0,
                     phases=(PhaseSpan(Phase.ARGS, 0.0, 0.9), PhaseSpan(Phase.LOAD_TARGET, 0.9, 110.0))),),
        (), (run_of("k26", "dflash", "7d10"),),
    )  # fmt: skip
    failed = HostView(
        Host("gpu7", "gpu7.example"), HostState.OK, "", NOW - 1, None,
        Snapshot(BOOT, NOW, 0, (), (replace(_gpus(9.0, 0.0)[0], memory_used_mib=None),), "nvml"),
        (ServerState("k30", Phase.FAILED, Health.NONE, None, 30002, "aa11",
                     diagnosis=Diagnosis(
                         Root("AssertionError", "", "server_args.py", 3809, "TP0", 9), "args-validation",
                         "args", "steps, topk and draft tokens have to be given together",
                         "set --speculative-num-steps 3", Change({"speculative-num-steps": 3}))),),
        (), (run_of("k30", "gpu7", "aa11", "failed"),),
    )  # fmt: skip
    lost = HostView(
        Host("lost", "lost.example"), HostState.UNREACHABLE, "no answer in 5 s", NOW - 900
    )
    evil = HostView(
        Host("evil", "evil.example"), HostState.OK, HOSTILE, NOW - 1, None,
        Snapshot(BOOT, NOW, 0, (process(31, f"{HOSTILE} x", user=HOSTILE),), (), None, None,
                 Cpu(1_000.0, 16_000.0, 2, None)),
    )  # fmt: skip
    return {view.host.name: view for view in (dflash, never, failed, lost, evil)}


def config(**changes: Any) -> Config:
    """The hosts.yaml that goes with them."""
    hosts = {name: view.host for name, view in views().items()}
    servers = {
        "kimi-k25": Server("kimi-k25", "ct129", model="/shared/kimi", port=8000,
                           speculative="eagle3-3step", nccl="pcie-ll-ring"),
        "k26": Server("k26", "dflash", port=30001, speculative="eagle3-1step"),
        "k30": Server("k30", "gpu7", port=30002, runner=Runner("systemd", unit="k30.service")),
    }  # fmt: skip
    return replace(Config(Path("hosts.yaml"), hosts, servers), **changes)


def level(concurrency: int, tokens_per_s: float, accept: float | None = 2.4) -> Level:
    """One measured level."""
    ttft = {50: 0.05 * concurrency, 90: 0.08 * concurrency, 99: 0.1 * concurrency}
    return Level(concurrency, 4 * concurrency, 0, 10.0, 5000, tokens_per_s, ttft,
                 {50: 0.011, 90: 0.012, 99: 0.02}, accept)  # fmt: skip


class FakeFleet(FleetPort):
    """Views that a test changes."""

    def __init__(self, shown: dict[str, HostView] | None = None) -> None:
        self._views = views() if shown is None else shown
        self._callbacks: list[Callable[[HostView], None]] = []
        self.refreshed: list[str | None] = []
        self.configured: list[Config] = []
        self.running = False

    @property
    def views(self) -> Mapping[str, HostView]:
        return self._views

    def subscribe(self, callback: Callable[[HostView], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    def refresh(self, host: str | None = None) -> None:
        self.refreshed.append(host)

    def configure(self, config: Config) -> None:
        self.configured.append(config)

    def publish(self, view: HostView) -> None:
        """What a poll would do."""
        self._views[view.host.name] = view
        for callback in self._callbacks:
            callback(view)


class FakeActions(ActionsPort):
    """Plans as the rooms behind would make them; records what was executed."""

    def __init__(self, log: bytes = LOG) -> None:
        self.log = log
        self.planned: list[tuple[str, str, str | None, dict[str, Any]]] = []
        self.executed: list[Plan] = []
        self.commands: list[str] = []
        self.findings: list[Finding] = []
        self.outcome: str = "ok"
        self.refuse: str = ""
        self.confirm: str = ""
        self.offered: tuple[Step, ...] = ()
        self.more = asyncio.Event()
        self.benched: list[tuple[str, Load]] = []
        self.bench_error = ""
        self.checked: list[tuple[str, Preset]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        self.planned.append((action, host, server, options))
        if self.refuse:
            raise ActionFailed(self.refuse, place=host)
        pids = options.get("processes") or (ProcessId(4711, 47110, BOOT),)
        targets = tuple(Target(p, 0, "root", f"python3 -m sglang {HOSTILE}") for p in pids)
        steps = [
            Step(StepKind.SIGNAL, host, "drain, then end", signal="TERM", targets=targets,
                 dangerous=True, verify="every thread gone"),
            Step(StepKind.VERIFY, host, "", verify="8 GPUs back to 9 MiB each"),
        ]  # fmt: skip
        if self.confirm:
            steps[0] = replace(steps[0], params={"confirm": self.confirm})
        if action in ("launch", "relaunch"):
            argv = ("python3", "-m", "sglang.launch_server", "--port", "8000")
            entry = config().servers.get(server or "")
            run = {
                "speculative": options.get("speculative") or (entry and entry.speculative),
                "nccl": options.get("nccl") or (entry and entry.nccl),
            }
            steps.append(Step(StepKind.LAUNCH, host, "", argv=argv, params={"run": run}))
        summary = ("This changes 1 flag against run 3f2c", "  --speculative-num-steps 2 → 3")
        name = f"p-{len(self.planned)}"
        return Plan(name, action, host, tuple(steps), server, NOW, summary, offered=self.offered)

    async def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        self.executed.append(plan)
        for at in range(len(plan.steps)):
            await asyncio.sleep(0)
            yield StepResult(at, self.outcome, 0.1, "as planned")  # type: ignore[arg-type]
            if self.outcome != "ok":
                return

    async def preflight_stream(self, plan: Plan) -> AsyncIterator[Finding]:
        for finding in self.findings:
            await asyncio.sleep(0)
            yield finding

    async def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        yield LogChunk(self.log, Cursor())
        await self.more.wait()

    async def check_preset(self, server: str, preset: Preset) -> tuple[Finding, ...]:
        self.checked.append((server, preset))
        await asyncio.sleep(0)
        if self.refuse:
            raise ActionFailed(self.refuse, place=server)
        return tuple(self.findings)

    async def bench(self, server: str, load: Load) -> AsyncIterator[Level]:
        self.benched.append((server, load))
        if self.bench_error:
            raise ActionFailed(self.bench_error, place=server)
        for count in load.concurrency:
            await self.go_on.wait()
            yield level(count, 100.0 * count)

    async def run_command(self, line: str) -> Output:
        self.commands.append(line)
        return Output(0, f"output of {line}\n{HOSTILE}\n")

    async def audit(self, limit: int = 500) -> list[Mapping[str, Any]]:
        def entry(at: float, event: str, **values: Any) -> dict[str, Any]:
            return {"format": 1, "time": NOW - 60 + at, "user": "ops@laptop", "event": event,
                    "plan": "kz-1", "host": "ct129", **values}  # fmt: skip

        step = {"kind": "signal", "why": f"end n4711 {HOSTILE}", "signal": "KILL", "targets": [
            {"process": {"pid": 4711}, "user": "root", "title": HOSTILE}]}  # fmt: skip
        plan = {"action": "kill-zombies", "server": None, "summary": [HOSTILE], "steps": [step]}
        return [
            entry(3, "end", detail={"outcome": "ok"}),
            entry(2, "result", step=0, outcome="ok", seconds=1.2, detail=HOSTILE),
            entry(1, "intent", detail={"step": 0, "kind": "signal", "what": step}),
            entry(0, "plan", detail=plan),
        ]


WARNING = Finding("max-running-requests", Severity.WARNING, "--max-running-requests will be 48")
ERROR = Finding("context-length", Severity.ERROR, "draft context 131072 against target 262144",
                "--context-length 131072")  # fmt: skip


def app(
    fleet: FakeFleet | None = None, actions: FakeActions | None = None, **options: Any
) -> tuple[SpecopsApp, FakeFleet, FakeActions]:
    """The console over the fakes."""
    fleet, actions = fleet or FakeFleet(), actions or FakeActions()

    async def opener(prompts: ScreenPrompts) -> tuple[FleetPort, ActionsPort]:
        return fleet, actions

    first_run = options.pop("first_run", False)
    prepared = Prepared(options.pop("config", None) or config(), opener, first_run=first_run)
    return SpecopsApp(lambda: prepared, clock=lambda: NOW, **options), fleet, actions
