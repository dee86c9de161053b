"""The processes of a host as rows: zombies first, then who holds device memory, then the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.model import Artefact, Gpu, HostView, Process, ProcessId, Zombie
from console.text import mask_argv
from widgets.bars import age, bar, counted, gib, mib, number, percent, size, sparkline
from widgets.paint import Line, fit, line, wrap
from widgets.table import Column
from widgets.words import kind_word, safe


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process, a zombie, or both."""

    process: Process | None
    zombie: Zombie | None
    gpu_mib: float | None
    server: str

    @property
    def key(self) -> object:
        """The identity: never a bare pid."""
        if self.process is not None:
            return self.process.id
        assert self.zombie is not None
        return self.zombie.process or self.zombie.id

    @property
    def identity(self) -> ProcessId | None:
        """What a signal would go to."""
        if self.process is not None:
            return self.process.id
        return self.zombie.process if self.zombie else None

    @property
    def memory_mib(self) -> float | None:
        """Resident memory."""
        if self.process is not None:
            return self.process.rss_mib
        return self.zombie.memory_mib if self.zombie else None

    @property
    def title(self) -> str:
        """The command line, inert and without secrets."""
        if self.process is not None:
            return safe(" ".join(mask_argv(self.process.argv)) or self.process.comm)
        assert self.zombie is not None
        where = self.zombie.resource
        if where is not None:
            return safe(where.path or (f"port {where.port}" if where.port else f"GPU {where.gpu}"))
        return safe(self.zombie.title)


def gpu_memory(process: Process, gpus: Sequence[Gpu]) -> float | None:
    """Device memory of a process: 0 without any, ``None`` where the driver hides it."""
    amounts = list(process.gpu_memory_mib.values())
    if not amounts:
        amounts = [h.memory_mib for gpu in gpus for h in gpu.processes if h.pid == process.id.pid]
    if not amounts:
        return 0.0
    return None if any(a is None for a in amounts) else sum(a or 0.0 for a in amounts)


def process_rows(view: HostView) -> list[ProcessRow]:
    """All rows, the most interesting first."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    by_id = {z.process: z for z in view.zombies if z.process is not None}
    runs = {run.run_id: run.server for run in view.runs}
    pids = {state.pid: state.name for state in view.servers if state.pid is not None}
    rows = [
        ProcessRow(
            process, by_id.pop(process.id, None), gpu_memory(process, snapshot.gpus),
            runs.get(process.run_id or "", pids.get(process.id.pid, "")),
        )
        for process in snapshot.processes
    ]  # fmt: skip
    rows += [ProcessRow(None, z, z.gpu_memory_mib, "") for z in by_id.values()]
    rows += [ProcessRow(None, z, z.gpu_memory_mib, "") for z in view.zombies if z.process is None]
    rows.sort(key=_order)
    return rows


def _order(row: ProcessRow) -> tuple[int, float, int, float]:
    kind = 2 if row.zombie is None else 0 if row.zombie.killable else 1
    gpu = row.gpu_mib if row.gpu_mib is not None else float("inf")
    return kind, -gpu, 0 if row.server else 1, -(row.memory_mib or 0.0)


def columns(width: int) -> list[Column]:
    """The columns that a width has room for."""
    title = max(10, width - 1 - 8 - 9 - 14 - 8 - 8 - 6 - 1)
    return [
        Column("PID", 7, right=True), Column("USER", 8), Column("WHAT", 13),
        Column("GPU", 7, right=True), Column("MEMORY", 7, right=True),
        Column("AGE", 5, right=True), Column("COMMAND", title),
    ]  # fmt: skip


def cells(row: ProcessRow) -> list[Line]:
    """The cells of a row."""
    zombie, process = row.zombie, row.process
    if zombie is not None:
        role = "bad" if zombie.killable else "warn"
        what = (kind_word(zombie.kind), role)
    else:
        what = (safe(row.server), "accent")
    pid = process.id.pid if process else zombie.pid if zombie else None
    user = process.user if process else zombie.user if zombie else ""
    return [
        line((str(pid) if pid is not None else "-", "strong")),
        line((fit(safe(user), 8), "plain")),
        line(what),
        line("-" if row.gpu_mib == 0 else gib(row.gpu_mib)),
        line(gib(row.memory_mib)),
        line((age(process.age_s) if process else "?", "dim")),
        line((row.title, "dim" if zombie is None and not row.server else "plain")),
    ]


def facts(row: ProcessRow) -> dict[str, str | float | None]:
    """What the filter language can ask of a row."""
    process = row.process
    return {
        "command": row.title,
        "user": process.user if process else row.zombie.user if row.zombie else "",
        "what": row.zombie.kind.value if row.zombie else row.server,
        "pid": float(process.id.pid) if process else None,
        "gpu": None if row.gpu_mib is None else row.gpu_mib / 1024,
        "memory": None if row.memory_mib is None else row.memory_mib / 1024,
        "age": process.age_s if process else None,
    }


SORTS = ("interest", "gpu", "memory", "age", "pid", "user")


def sort_rows(rows: Sequence[ProcessRow], by: str, *, reverse: bool = False) -> list[ProcessRow]:
    """The rows in another order; unknown values come last either way."""
    if by == "interest":
        return list(reversed(rows)) if reverse else list(rows)
    known = [row for row in rows if facts(row)[by] is not None]
    unknown = [row for row in rows if facts(row)[by] is None]
    descending = (by in ("gpu", "memory", "age")) != reverse
    return sorted(known, key=lambda row: facts(row)[by] or 0, reverse=descending) + unknown


def device_lines(
    view: HostView, width: int, height: int, history: Sequence[float | None]
) -> list[Line]:
    """One line a GPU (two a line where they would not fit), or the machine itself."""
    snapshot = view.snapshot
    if snapshot is None:
        return [line((" nothing seen yet", "dim"))]
    out: list[Line] = []
    if snapshot.gpu_error:
        out.append(line((f" GPUs unknown: {safe(snapshot.gpu_error)}", "bad")))
    gpus = [_gpu_line(gpu, width if len(snapshot.gpus) <= height else width // 2 - 1)
            for gpu in snapshot.gpus]  # fmt: skip
    if len(gpus) > height:
        half = (len(gpus) + 1) // 2
        gpus = [
            (*_pad(gpus[at], width // 2), *(gpus[at + half] if at + half < len(gpus) else ()))
            for at in range(half)
        ]
    out += gpus
    if not snapshot.gpus and snapshot.cpu is not None:
        cpu = snapshot.cpu
        share = cpu.memory_used_mib / cpu.memory_total_mib if cpu.memory_total_mib else None
        used = f"{mib(cpu.memory_used_mib)} of {mib(cpu.memory_total_mib)}"
        busy = None if cpu.utilization_pct is None else cpu.utilization_pct / 100
        tail = f" {percent(share)}  {used}  {cpu.cores} cores {percent(busy)}"
        room = max(8, width - len(tail) - 8)
        out.append(line((" cpu  ", "strong"), (bar(share, min(60, room)), "bar"), tail))
    if width >= 100 and history:
        out.append(line((" util ", "dim"), (sparkline(history, width - 20, top=1.0), "accent"),
                        (" last 10 min", "dim")))  # fmt: skip
    return out[: height + 2]


def _gpu_line(gpu: Gpu, width: int) -> Line:
    if gpu.error:
        return line((f" {gpu.index:<3}", "strong"), (f"{safe(gpu.error)}", "bad"))
    share = None
    if gpu.memory_used_mib is not None and gpu.memory_total_mib:
        share = gpu.memory_used_mib / gpu.memory_total_mib
    busy = None if gpu.utilization_pct is None else gpu.utilization_pct / 100
    heat = f"{number(gpu.temperature_c)}°C {number(gpu.power_w)} W"
    tail = f" {fit(percent(share), 5, right=True)} {fit(gib(gpu.memory_used_mib), 7, right=True)}"
    if width >= 60:
        tail += f"  util {fit(percent(busy), 5, right=True)}  {heat}"
    room = max(4, min(40, width - 5 - len(tail)))
    spare = width - 5 - room - len(tail) - 2
    name = "  " + safe(gpu.name) if spare > 18 else ""
    recover = f"  needs {safe(gpu.asks)}" if gpu.asks else ""
    return line((f" {gpu.index:<3}", "strong"), (bar(share, room), "bar"), tail, (name, "dim"),
                (recover, "bad"))  # fmt: skip


def _pad(spans: Line, width: int) -> Line:
    used = sum(len(text) for text, _ in spans)
    return (*spans, (" " * max(1, width - used), "plain"))


def leftover_line(artefacts: Sequence[Artefact], listening: Sequence[int]) -> Line:
    """What lies in /dev/shm and which ports are held, on one line."""
    shm = [a for a in artefacts if a.type == "shm"]
    others = len(artefacts) - len(shm)
    held = size(sum(artefact.size_bytes for artefact in shm))
    parts = [f"{len(shm)} segment{'s' * (len(shm) != 1)} in /dev/shm ({held})"]
    if others:
        parts.append(f"{others} socket{'s' * (others != 1)} or lock{'s' * (others != 1)}")
    if listening:
        shown = ", ".join(str(port) for port in sorted(listening)[:8])
        parts.append(f"ports {shown}{' …' if len(listening) > 8 else ''}")
    return line((" " + " · ".join(parts), "dim"))


def why_lines(row: ProcessRow, width: int, height: int) -> list[Line]:
    """The evidence of a zombie, or what a process is."""
    out: list[Line] = []
    zombie, process = row.zombie, row.process
    if zombie is not None:
        head = f" {kind_word(zombie.kind)} {zombie.id}  score {zombie.score:.2f}"
        tail = (
            "  Z or K removes it"
            if zombie.killable
            else f"  not killed: {safe(zombie.why_not or '?')}"
        )
        out.append(line((head, "bad" if zombie.killable else "warn"), (tail, "plain")))
        for text in zombie.evidence:
            out += [line("   " + part) for part in wrap(safe(text), width - 4, limit=2)]
    if process is not None:
        facts_of = [
            f"pid {process.id.pid}", f"parent {process.ppid}", f"state {safe(process.state)}",
            counted(process.threads, "thread"), f"session {process.sid}",
        ]  # fmt: skip
        if process.unit:
            facts_of.append(f"unit {safe(process.unit)}")
        if process.container:
            facts_of.append(f"container {safe(process.container)}")
        if process.run_id:
            facts_of.append(f"run {safe(process.run_id)}")
        if process.listening:
            facts_of.append("listens on " + ", ".join(str(port) for port in process.listening))
        if process.foreign_namespace:
            facts_of.append("in another pid namespace")
        out.append(line((" " + " · ".join(facts_of), "dim")))
        out += [line(" " + part) for part in wrap(row.title, width - 2, limit=3)]
    return out[:height]
