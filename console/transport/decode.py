"""From the agent's JSON to the house's data. Checks types and bounds: the host may be hostile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from console.errors import AgentError
from console.model import Artefact, Cpu, Gpu, GpuProcess, Hello, Process, ProcessId, Run, Snapshot
from console.remote import Cursor, ExitStatus, FileStat, UnitStatus

T = TypeVar("T")
MAX_PID = 1 << 22
"""Linux's PID_MAX_LIMIT."""


def checked(host: str, build: Callable[[], T]) -> T:
    """Run a decoder; anything that does not fit is an ``AgentError``."""
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {str(error)[:120]}"
        raise AgentError(f"the agent's answer does not fit ({what})", place=host) from None


def _int(value: Any, low: int = 0, high: int = 1 << 63) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{value!r:.40} is not an integer from {low} to {high}")
    return value


def _pid(value: Any) -> int:
    return _int(value, 0, MAX_PID)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)


def _maybe(value: Any, convert: Callable[[Any], T]) -> T | None:
    return None if value is None else convert(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    return value


def _ints(value: Any, high: int = 1 << 32) -> tuple[int, ...]:
    return tuple(_int(item, 0, high) for item in value)


def hello(value: Mapping[str, Any]) -> Hello:
    """The agent's first words."""
    kinds: dict[str, Callable[[Any], Any]]
    kinds = {"str": _text, "int": _int, "float": _number, "bool": bool}
    said = [item for item in fields(Hello) if item.name != "through"]  # ours, not the agent's
    found = {item.name: kinds[str(item.type)](value[item.name]) for item in said}
    return Hello(**found)


def process(row: Mapping[str, Any], boot: str, uptime_s: float, ticks_per_s: int) -> Process:
    """One process from its merged row."""
    start = _int(row["start"])
    uid = _int(row.get("uid", -1), -1)
    return Process(
        id=ProcessId(_pid(row["pid"]), start, boot),
        ppid=_pid(row["ppid"]),
        pgid=_int(row["pgid"], -1, MAX_PID),
        sid=_int(row["sid"], -1, MAX_PID),
        uid=uid,
        user=_text(row.get("user", "?")),
        state=_text(row["state"])[:1],
        comm=_text(row["comm"]),
        argv=tuple(_text(word) for word in row.get("argv", ())),
        threads=_int(row["threads"]),
        task_states={int(key): _text(item)[:1] for key, item in row.get("tasks", {}).items()},
        cpu_ticks=_int(row["ticks"]),
        rss_mib=_int(row["rss"], -1) / 1048576,
        age_s=max(0.0, uptime_s - start / ticks_per_s),
        run_id=_maybe(row.get("env", {}).get("SPECOPS_RUN_ID"), _text),
        env={_text(key): _text(item) for key, item in row.get("env", {}).items()},
        cgroup=_text(row.get("cgroup", "")),
        unit=_maybe(row.get("unit"), _text),
        container=_maybe(row.get("container"), _text),
        foreign_namespace=bool(row.get("foreign_namespace", False)),
        pid_namespace=_text(row.get("pid_namespace", "")),
        inner_pid=_maybe(row.get("inner_pid"), _pid),
        listening=_ints(row.get("listening", ()), 65535),
        established=_ints(row.get("established", ()), 65535),
        nvidia_minors=_ints(row.get("nvidia_minors", ())),
        wchan=_maybe(row.get("wchan"), _text),
        read_bytes=_maybe(row.get("read_bytes"), _int),
        write_bytes=_maybe(row.get("write_bytes"), _int),
        readable=bool(row.get("readable", False)),
    )


def gpu(row: Mapping[str, Any]) -> Gpu:
    """One GPU; what is absent is unknown."""
    numbers = ("memory_used_mib", "memory_total_mib", "memory_reserved_mib", "utilization_pct",
               "power_w", "temperature_c")  # fmt: skip
    found: dict[str, Any] = {name: _maybe(row.get(name), _number) for name in numbers}
    for name in ("mig", "recovery_action", "error"):
        found[name] = _maybe(row.get(name), _text)
    found["minor"] = _maybe(row.get("minor"), _int)
    users = tuple(
        GpuProcess(
            _int(item["pid"], 0, 1 << 32), _maybe(item.get("memory_mib"), _number), item["kind"]
        )
        for item in row.get("processes", ())
    )
    return Gpu(
        index=_int(row["index"], 0, 4096),
        uuid=_text(row.get("uuid", "")),
        name=_text(row.get("name", "")),
        processes=users,
        **found,
    )


def artefact(row: Mapping[str, Any]) -> Artefact:
    """One leftover."""
    if row["type"] not in ("shm", "socket", "lock", "port"):
        raise ValueError(f"{row['type']!r:.40} is no type of artefact")
    holders = row.get("holders")
    return Artefact(
        type=row["type"],
        path=_text(row["path"]),
        uid=_int(row["uid"], -1),
        user=_text(row["user"]),
        size_bytes=_int(row["size_bytes"]),
        age_s=_number(row["age_s"]),
        device=_int(row["device"]),
        inode=_int(row["inode"]),
        port=_maybe(row.get("port"), _int),
        holders=None if holders is None else tuple(_pid(pid) for pid in holders),
    )


def cpu(row: Mapping[str, Any]) -> Cpu:
    """The machine as a device."""
    return Cpu(
        memory_used_mib=_number(row["memory_used_mib"]),
        memory_total_mib=_number(row["memory_total_mib"]),
        cores=_int(row["cores"], 1, 1 << 16),
        utilization_pct=_maybe(row.get("utilization_pct"), _number),
        shm_used_mib=_maybe(row.get("shm_used_mib"), _number),
        shm_total_mib=_maybe(row.get("shm_total_mib"), _number),
    )


class SnapshotBuilder:
    """Merges the agent's changes into whole snapshots."""

    def __init__(self, said: Hello) -> None:
        self._ticks = max(1, said.clock_ticks)
        self._init_namespace = said.init_namespace
        self._rows: dict[int, dict[str, Any]] = {}
        self._known: dict[int, Process] = {}
        self.whole = False
        self._began: tuple[str, float] | None = None

    def _time(self, boot: str, uptime: float, now: float) -> float:
        """The host's clock, in seconds since 1970, that no setting of it can move.

        How long something has been so is the difference of two of these: a clock set forward by an
        hour must not make a server silent for an hour. So it is read once and counted on.
        """
        if self._began is None or self._began[0] != boot:
            self._began = boot, now - uptime
        return self._began[1] + uptime

    def build(self, value: Mapping[str, Any]) -> Snapshot:
        """One snapshot; raises what :func:`checked` turns into an ``AgentError``."""
        delta = value["processes"]
        if delta["whole"]:
            self._rows, self._known = {}, {}
        for pid in delta["gone"]:
            self._rows.pop(_pid(pid), None)
            self._known.pop(pid, None)
        for row in delta["rows"]:
            self._known.pop(_pid(row["pid"]), None)
            known = self._rows.get(row["pid"])
            if known is not None and known["start"] == row["start"]:
                known.update(row)
            else:
                self._rows[row["pid"]] = dict(row)
        self.whole = True
        boot, uptime = _text(value["boot_id"]), _number(value["uptime"])
        gpus = tuple(gpu(row) for row in value.get("gpus") or ())
        memory = gpu_memory(gpus)
        found = []
        for pid, row in self._rows.items():
            item = self._known.get(pid)
            if item is None or item.id.boot_id != boot:
                item = process(row, boot, uptime, self._ticks)
            else:  # most of a host's processes stay as they are from look to look: only older
                age_s = max(0.0, uptime - item.id.start_ticks / self._ticks)
                item = replace(item, age_s=age_s)
            self._known[pid] = item
            held = memory.get(item.id.pid)
            # In a container the driver's pids may be the host's: somebody else's number.
            sure = held and (self._init_namespace or item.nvidia_minors)
            found.append(replace(item, gpu_memory_mib=held) if held and sure else item)
        return Snapshot(
            boot_id=boot,
            time=self._time(boot, uptime, _number(value["time"])),
            uid=_int(value["uid"]),
            processes=tuple(found),
            gpus=gpus,
            gpu_source=_maybe(value.get("gpu_source"), _text),
            gpu_error=_maybe(value.get("gpu_error"), _text),
            cpu=_maybe(value.get("cpu"), cpu),
            artefacts=tuple(artefact(row) for row in value.get("artefacts") or ()),
            listening={_int(port, 0, 65535): _maybe(pid, _pid) for port, pid in value["listening"]},
            protected=frozenset(_pid(pid) for pid in value["protected"]),
            processes_complete=bool(value["complete"]),
        )


def gpu_memory(gpus: tuple[Gpu, ...]) -> dict[int, dict[int, float | None]]:
    """Pid to GPU index to MiB, as the driver lists them; MIG instances add up on their GPU."""
    memory: dict[int, dict[int, float | None]] = {}
    for card in gpus:
        for user in card.processes:
            held = memory.setdefault(user.pid, {})
            before = held.get(card.index, 0.0)
            both = before is not None and user.memory_mib is not None
            held[card.index] = before + user.memory_mib if both else None  # type: ignore[operator]
    return memory


def file_stat(row: Mapping[str, Any]) -> FileStat:
    """One path."""
    if row["kind"] not in ("file", "dir", "other", "missing"):
        raise ValueError(f"{row['kind']!r:.40} is no kind of path")
    return FileStat(
        path=_text(row["path"]),
        kind=row["kind"],
        size_bytes=_int(row.get("size_bytes", 0)),
        mtime=_number(row.get("mtime", 0.0)),
        uid=_int(row.get("uid", 0)),
        readable=bool(row.get("readable", False)),
        writable=bool(row.get("writable", False)),
        error=_text(row.get("error", "")),
    )


def run(row: Mapping[str, Any]) -> Run:
    """A run record; fields of a newer format are left out, an exit status is put in."""
    known = {item.name for item in fields(Run)}
    found: dict[str, Any] = {key: item for key, item in row.items() if key in known}
    for name in ("run_id", "server", "engine", "host", "cwd", "log", "launched_by"):
        _text(found[name])
    found["argv"] = tuple(_text(word) for word in found["argv"])
    found["env"] = {_text(key): _text(item) for key, item in found["env"].items()}
    found["port"] = _int(found["port"], 0, 65535)
    launcher = found.get("launcher")
    if launcher is not None:
        found["launcher"] = ProcessId(
            _pid(launcher["pid"]), _int(launcher["start_ticks"]), _text(launcher["boot_id"])
        )
    found["baseline_mib"] = {
        int(key): _number(item) for key, item in (found.get("baseline_mib") or {}).items()
    }
    found["phases"] = tuple((_text(name), _number(s)) for name, s in found.get("phases") or ())
    found["failure"] = _text(found.get("failure") or "")
    ended = row.get("exit")
    if ended is not None and found.get("ended_at") is None:
        status = exit_status(ended)
        found["ended_at"] = status.ended_at
        if found.get("outcome") in (None, "ready"):  # it served, and then it ended by itself
            found["outcome"] = "exited" if status.code is None else f"exit {status.code}"
    return Run(**found)


def run_record(value: Run) -> dict[str, Any]:
    """A run as it is written."""
    return asdict(value)


def exit_status(row: Mapping[str, Any]) -> ExitStatus:
    """How a run ended, from either way of launching; a signal's number is negated."""
    ended = _maybe(row.get("time"), _number)
    if "code" in row:
        return ExitStatus(_int(row["code"], -128, 255), ended_at=ended)
    how, status = _text(row["how"]), _text(row["status"])
    code: int | None = int(status) if how == "exited" and status.isdigit() else None
    if how in ("killed", "dumped"):
        import signal  # noqa: PLC0415 - beside its only use

        number = getattr(signal, f"SIG{status}", None)
        code = None if number is None else -int(number)
    return ExitStatus(code, _text(row.get("result", "")), ended)


def unit_status(unit: str, row: Mapping[str, Any]) -> UnitStatus:
    """A unit's properties."""

    def number(name: str) -> int:
        value = _text(row.get(name, "")) or "0"
        return int(value) if value.isdigit() else 0

    died = number("ExecMainCode")  # CLD_EXITED 1, CLD_KILLED 2, CLD_DUMPED 3; 0: not ended
    status = number("ExecMainStatus")
    return UnitStatus(
        unit=unit,
        loaded=row.get("LoadState") == "loaded",
        active=_text(row.get("ActiveState", "unknown")),
        sub=_text(row.get("SubState", "")),
        result=_text(row.get("Result", "")),
        main_pid=number("MainPID") or None,
        exit_status=None if died == 0 else status if died == 1 else -status,
        restarts=number("NRestarts"),
        restart_policy=_text(row.get("Restart", "")),
        cgroup=_text(row.get("ControlGroup", "")),
    )


def cursor(row: Mapping[str, Any]) -> Cursor:
    """Where a tail stands."""
    return Cursor(
        device=_int(row["device"]),
        inode=_int(row["inode"]),
        generation=_int(row["generation"]),
        offset=_int(row["offset"]),
        head_sha=_text(row["head_sha"]),
        head_len=_int(row["head_len"]),
        journal=_maybe(row.get("journal"), _text),
    )


def matches(host: str, meta: Mapping[str, Any], data: bytes) -> list[tuple[int, bytes]]:
    """The lines of one frame of search results: their lengths and offsets are in its meta."""

    def build() -> list[tuple[int, bytes]]:
        found, at = [], 0
        for offset, length in meta.get("lines", ()):
            found.append((_int(offset), data[at : at + _int(length)]))
            at += length
        return found

    return checked(host, build)
