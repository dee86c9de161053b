"""Samples processes: cheaply every second, completely every half minute, only changes sent."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from console.agent import gpu, machine, ports, proc
from console.agent.calls import Call, Verbs

FULL_EVERY_S = 30.0
"""Seconds after which everything is read again."""
YOUNG_S = 15.0
"""Seconds during which a process may still exec or rename itself."""
TASKS_EVERY_S = 5.0
"""Seconds between two looks at the threads of a busy candidate."""
_NAMES = (b"python", b"sglang", b"VLLM", b"vllm", b"ray", b"pt_", b"torchrun", b"uvicorn")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Keeps what it knows of each process between samples. One sample at a time."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._sent: dict[int, dict[str, Any]] = {}
        self._sockets_of: dict[int, set[int]] = {}
        self._tasks_at: dict[int, float] = {}
        self._full_at = float("-inf")
        self._tick = os.sysconf("SC_CLK_TCK")
        self.lock = threading.Lock()

    def rows(self, *, full: bool) -> tuple[dict[int, dict[str, Any]], bool]:
        """All processes that are not the kernel's, and whether this was a full sweep."""
        now = time.monotonic()
        full = full or now - self._full_at >= FULL_EVERY_S
        if full:
            self._full_at = now
        present = set(proc.pids())
        for pid in set(self._rows) - present:
            self._drop(pid)
        for pid in present:
            row = self._rows.get(pid)
            if row is None or full or (not row["kernel"] and row["candidate"]):
                self._update(pid, row, full)
            elif not row["kernel"] and self._young(row):
                self._update(pid, row, full=True)
        return {pid: row for pid, row in self._rows.items() if not row["kernel"]}, full

    def _drop(self, pid: int) -> None:
        self._rows.pop(pid, None)
        self._sockets_of.pop(pid, None)
        self._tasks_at.pop(pid, None)

    def _young(self, row: dict[str, Any]) -> bool:
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return bool(up - row["start"] / self._tick < YOUNG_S)

    def _update(self, pid: int, row: dict[str, Any] | None, full: bool) -> None:
        seen = proc.visible(pid)
        if seen is None:
            self._drop(pid)
            return
        if row is None or row["start"] != seen.start_ticks:
            row = {"start": seen.start_ticks, "kernel": seen.kernel_thread, "comm": None}
        if seen.kernel_thread:
            self._rows[pid] = row
            return
        comm = seen.comm.decode("utf-8", "backslashreplace")
        if full or row["comm"] != comm or self._young(row):
            fresh = proc.details(pid, seen)
            if seen.state in "ZX" and not fresh["argv"] and row.get("argv"):
                fresh = {}  # keep what was known while it lived
            row.update(fresh)
        row.update(
            comm=comm,
            state=seen.state,
            ppid=seen.ppid,
            pgid=seen.pgid,
            sid=seen.sid,
            threads=seen.threads,
            ticks=seen.cpu_ticks,
            rss=seen.rss_pages * _PAGE,
        )
        self._rows[pid] = row
        row["candidate"] = self._is_candidate(row, seen)
        if row["candidate"] or full or "sockets" not in row:
            self._look_closer(pid, row, seen, full)

    @staticmethod
    def _is_candidate(row: dict[str, Any], seen: proc.Stat) -> bool:
        name = seen.comm.startswith(_NAMES) or "sgl" in row["comm"]
        return bool(name or row["env"] or row.get("nvidia_minors") or seen.state in "ZXD")

    def _look_closer(self, pid: int, row: dict[str, Any], seen: proc.Stat, full: bool) -> None:
        row.update(proc.activity(pid, seen))
        opened = row.pop("sockets")
        row["sockets"] = opened is not None
        self._sockets_of[pid] = opened or set()
        row["candidate"] = row["candidate"] or bool(row["nvidia_minors"])
        now = time.monotonic()
        due = full or now - self._tasks_at.get(pid, float("-inf")) >= TASKS_EVERY_S
        if seen.threads == 1 and seen.state not in "ZX":
            row["tasks"] = {pid: seen.state}
        elif seen.state in "ZXD" or (due and row["candidate"]) or "tasks" not in row:
            row["tasks"] = proc.task_states(pid)
            self._tasks_at[pid] = now

    def listening(self, rows: dict[int, dict[str, Any]]) -> dict[int, int | None]:
        """Port to the pid that listens on it; ``None`` where the holder cannot be seen."""
        table = ports.sockets()
        holders = {inode: pid for pid in rows for inode in self._sockets_of.get(pid, ())}
        if any(inode not in holders for inode in table.listening):
            for pid in rows:  # somebody who is no candidate has begun to listen
                opened = proc.descriptors("/proc/{}".format(pid))
                self._sockets_of[pid] = opened[1] if opened else set()
            holders = {inode: pid for pid in rows for inode in self._sockets_of.get(pid, ())}
        found: dict[int, int | None] = {}
        for row in rows.values():
            row["listening"], row["established"] = [], []
        for inode, port in table.listening.items():
            holder = holders.get(inode)
            found[port] = holder if holder is not None else found.get(port)
            if holder is not None:
                rows[holder]["listening"] = sorted({*rows[holder]["listening"], port})
        for inode, port in table.established.items():
            holder = holders.get(inode)
            if holder is not None and rows[holder]["candidate"]:
                rows[holder]["established"] = sorted({*rows[holder]["established"], port})
        return found

    def changes(self, rows: dict[int, dict[str, Any]], *, whole: bool) -> dict[str, Any]:
        """What the client does not know yet: fields that changed, processes that are gone."""
        sent = {} if whole else self._sent
        self._sent = {}
        news: list[dict[str, Any]] = []
        for pid, row in rows.items():
            wire_row = {
                key: value
                for key, value in row.items()
                if key not in ("kernel", "candidate", "sockets")
            }
            wire_row["pid"] = pid
            before = sent.get(pid, {})
            if before.get("start") != row["start"]:
                before = {}
            news_of = {
                key: value for key, value in wire_row.items() if before.get(key, news) != value
            }
            if news_of:
                news_of["pid"], news_of["start"] = pid, row["start"]
                news.append(news_of)
            self._sent[pid] = {
                key: dict(value) if isinstance(value, dict) else value
                for key, value in wire_row.items()
            }
        gone = [pid for pid in sent if pid not in rows]
        return {"whole": whole or not sent, "rows": news, "gone": gone}


def protected(rows: dict[int, dict[str, Any]]) -> set[int]:
    """The agent, its ancestors and its session: never to be signalled."""
    own = {os.getpid(), 1}
    session = os.getsid(0)
    pid: int | None = os.getpid()
    while pid and pid > 1:
        own.add(pid)
        seen = proc.visible(pid)
        pid = seen.ppid if seen else None
    return own | {pid for pid, row in rows.items() if row.get("sid") == session}


SAMPLER = Sampler()
CPU = machine.CpuSampler()


def snapshot(call: Call) -> dict[str, Any]:
    """The verb: processes (changes only), ports, the machine; artefacts on request."""
    gpu.GPUS.ask()
    with SAMPLER.lock:
        rows, swept = SAMPLER.rows(full=bool(call.args.get("full")))
        listening = SAMPLER.listening(rows)
        for row in rows.values():
            row["user"] = machine.user_name(row.get("uid", -1)) if row.get("uid", -1) >= 0 else "?"
        delta = SAMPLER.changes(rows, whole=bool(call.args.get("whole")))
        found = None
        if call.args.get("artefacts"):
            from console.agent import artefacts  # noqa: PLC0415 - seldom asked for

            found = artefacts.find(rows)
        return {
            **gpu.GPUS.answer(),
            "boot_id": machine.boot_id(),
            "time": time.time(),
            "uptime": time.clock_gettime(time.CLOCK_BOOTTIME),
            "uid": os.geteuid(),
            "processes": delta,
            "listening": [[port, pid] for port, pid in sorted(listening.items())],
            "protected": sorted(protected(rows)),
            "cpu": CPU.sample(),
            "artefacts": found,
            "complete": proc.hides_nothing(),
            "swept": swept,
        }


VERBS: Verbs = {"snapshot": snapshot}
