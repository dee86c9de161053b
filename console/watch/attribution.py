"""Which processes are a server: by identity first, by what they look like last. Pure.

A worker re-parents to init and outlives its launcher, and its title holds neither port nor model;
so the run id that a launch puts in the environment comes first, then the unit's cgroup, then the
port, then the command line. A name alone is never enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal

from console.model import HostView, Process, Run, Server, Snapshot
from console.zombies.roles import Part, flag, launches, role

How = Literal["run", "unit", "container", "port", "argv", "nothing"]

ENTRIES = ("sglang.launch_server", "eagle3.launch_server", "vllm.entrypoints", "launch_server.py")
ENGINES = {
    "sglang.launch_server": "sglang",
    "eagle3.launch_server": "bundled",
    "vllm.entrypoints": "vllm",
}
TITLES = ("sglang::", "eagle3::", "VLLM::")
DEFAULT_PORTS = {"sglang": 30000, "bundled": 30000, "vllm": 8000}


@dataclass(frozen=True, slots=True)
class Found:
    """A server's processes and how they were recognised.

    ``main`` is the launcher where it lives, else the process that holds the port, else the oldest.
    ``run`` is the record of the launch they came from, or, with no process left, the newest one.
    ``port`` is where they serve, which need not be what hosts.yaml says by now.
    """

    how: How
    run: Run | None
    main: Process | None = None
    processes: tuple[Process, ...] = ()
    port: int | None = None

    @property
    def alive(self) -> bool:
        """Whether anything of the server still runs."""
        return bool(self.processes)

    @property
    def orphaned(self) -> bool:
        """Whether the recorded launcher is gone, nothing took its place, and others live on."""
        if self.how != "run" or self.run is None or self.run.launcher is None:
            return False
        launcher = self.run.launcher
        return not any(p.id == launcher or _starts(p) for p in self.processes)

    @property
    def remains(self) -> str:
        """What of a server has outlived its launcher, in words."""
        more = len(self.processes) - 1
        pid = f"pid {self.main.id.pid if self.main else '?'}"
        return f"{pid} and {more} more are left of it" if more else f"{pid} is left of it"


def _starts(process: Process) -> bool:
    """Whether it may be what serves: a launcher, or what only resembles one."""
    return is_launcher(process) or any(entry in w for w in process.argv for entry in ENTRIES)


def find(server: Server, runs: Iterable[Run], snapshot: Snapshot) -> Found:
    """The processes of one server on one host."""
    runs = tuple(runs)
    own = [run for run in runs if run.server == server.name]
    newest = max(own, key=lambda run: run.launched_at, default=None)
    living = [p for p in snapshot.processes if p.state not in ("Z", "X") or len(p.task_states) > 1]
    for run in sorted(own, key=lambda run: -run.launched_at):
        members = _of_run(run, living)
        if members:
            port = _serves_at(members, (run.port, server.port), snapshot)
            return Found("run", run, _main(run, server, members, snapshot), members, port)
    others = {run.run_id for run in runs if run.server != server.name}
    strangers = {p.id for p in living if p.run_id in others or not _may_be(server, p)}
    unknown = [p for p in living if p.id not in strangers]
    for how, members in (
        ("unit", _of_unit(server, living)),
        ("container", _of_container(server, living)),
        ("port", _at_port(server, unknown, snapshot)),
        ("argv", _by_argv(server, unknown)),
    ):
        if members:
            main = _main(None, server, members, snapshot)
            of = next((r for r in own if r.run_id == (main.run_id if main else None)), None)
            ports = (*((of.port,) if of else ()), server.port)
            port = _serves_at(members, ports, snapshot)
            return Found(how, of, main, members, port)  # type: ignore[arg-type]
    return Found("nothing", newest)


def _serves_at(members: Sequence[Process], ports: Sequence[int], snapshot: Snapshot) -> int:
    """The first of the ports that one of them holds; the first where none is held yet."""
    pids = {p.id.pid for p in members}
    held = (port for port in ports if snapshot.listening.get(port) in pids)
    return next(held, ports[0])


def answers_for(found: Found, port: int, snapshot: Snapshot) -> bool:
    """Whether what listens on the port may be the server: no other model server is seen there.

    A proxy may hold its port for it, and who holds one is not always seen.
    """
    holder = snapshot.listening.get(port)
    pids = {p.id.pid for p in found.processes}
    other = next((p for p in snapshot.processes if p.id.pid == holder), None)
    return holder in pids or other is None or not looks_like_server(other)


def _may_be(server: Server, process: Process) -> bool:
    """Whether nothing in its command line says that it is another server's: engine or model.

    What is found by its port alone is stopped by that server's name, so a stranger that has taken
    the port must not pass for it.
    """
    engine = _launched(process)
    if engine is None:
        return True
    if engine != server.engine:
        return False
    model = flag(process.argv, "--model-path", "--model")
    if model is None or not (model.startswith("/") and server.model.startswith("/")):
        return True  # a name and a path may mean the same
    return PurePosixPath(model) == PurePosixPath(server.model)


def _launched(process: Process) -> str | None:
    """The engine that the command line starts, whatever its interpreter is called."""
    part = role(process)
    if part is not None:
        return part.engine if part.part is Part.LAUNCHER else None
    words = [word for word in process.argv if word.startswith(tuple(ENGINES))]
    return next((e for entry, e in ENGINES.items() if words and words[0].startswith(entry)), None)


def _of_run(run: Run, living: Sequence[Process]) -> tuple[Process, ...]:
    """Everything that carries the run's id, plus its launcher by exact identity.

    Nothing carries the id of a run that was adopted: that is its launcher and what is below it.
    """
    members = tuple(p for p in living if p.run_id == run.run_id or p.id == run.launcher)
    if not run.adopted:
        return members
    return tuple({q.id: q for p in members for q in (p, *descendants(p, living))}.values())


def _of_unit(server: Server, living: Sequence[Process]) -> tuple[Process, ...]:
    unit = server.runner.unit
    return tuple(p for p in living if unit is not None and p.unit == unit)


def _of_container(server: Server, living: Sequence[Process]) -> tuple[Process, ...]:
    name = server.runner.container
    return tuple(p for p in living if name is not None and p.container == name)


def _at_port(server: Server, living: Sequence[Process], snapshot: Snapshot) -> tuple[Process, ...]:
    """The holder of the port with its descendants, if it looks like a model server at all."""
    holder = snapshot.listening.get(server.port)
    process = next((p for p in living if p.id.pid == holder), None) if holder else None
    if process is None or not looks_like_server(process):
        return ()
    top = process
    by_pid = {p.id.pid: p for p in living}
    while (parent := by_pid.get(top.ppid)) is not None and looks_like_server(parent):
        top = parent
    return (top, *descendants(top, living))


def _by_argv(server: Server, living: Sequence[Process]) -> tuple[Process, ...]:
    """A launcher whose own command line names the port, with its descendants."""
    for process in living:
        if looks_like_server(process) and argv_port(process, server.engine) == server.port:
            return (process, *descendants(process, living))
    return ()


def looks_like_server(process: Process) -> bool:
    """Whether the command line or title is one that model servers have."""
    title = process.title
    return (
        any(title.startswith(t) for t in TITLES)
        or any(word.endswith(entry) or entry in word for word in process.argv for entry in ENTRIES)
        or (len(process.argv) > 2 and process.argv[1:3] == ("serve",))
        or _serves(process.argv)
    )


def _serves(argv: Sequence[str]) -> bool:
    """``sglang serve``, ``vllm serve``, ``specops serve``, also behind their interpreter."""
    return any(
        word.rsplit("/", 1)[-1] in ("sglang", "vllm", "specops") and after == "serve"
        for word, after in pairwise(argv[:4])
    )


def is_launcher(process: Process) -> bool:
    """Whether it is what starts a server, and not the ``timeout`` or shell around that."""
    return launches(process.argv) is not None


def unlisted(view: HostView) -> list[Process]:
    """The launchers of servers on a host that are none of its servers in hosts.yaml."""
    snapshot = view.snapshot
    living = [p for p in (snapshot.processes if snapshot else ()) if p.state not in ("Z", "X")]
    mains = {state.pid for state in view.servers} - {None}
    known = [p for p in living if p.id.pid in mains]
    known += [below for main in known for below in descendants(main, living)]
    taken = {p.id for p in known} | {
        p.id for p in living if p.run_id and p.run_id in {s.run_id for s in view.servers}
    }
    tops = [p for p in living if is_launcher(p) and p.id not in taken]
    inner = {below.id for top in tops for below in descendants(top, living)}
    around = {p.ppid for p in known}
    return [p for p in tops if p.id not in inner and p.id.pid not in around]


def argv_port(process: Process, engine: str) -> int | None:
    """The port in a launcher's command line; the engine's default where it gives none."""
    argv = process.argv
    if not any(entry in word for word in argv for entry in ENTRIES) and not _serves(argv):
        return None  # a worker: its title says nothing of the port
    for at, word in enumerate(argv):
        if word == "--port" and at + 1 < len(argv) and argv[at + 1].isdigit():
            return int(argv[at + 1])
        if word.startswith("--port=") and word[7:].isdigit():
            return int(word[7:])
    return DEFAULT_PORTS.get(engine)


def descendants(top: Process, living: Sequence[Process]) -> tuple[Process, ...]:
    """All processes below one, by parent."""
    children: dict[int, list[Process]] = {}
    for process in living:
        children.setdefault(process.ppid, []).append(process)
    out: list[Process] = []
    queue = [top.id.pid]
    while queue:
        for child in children.pop(queue.pop(), ()):
            out.append(child)
            queue.append(child.id.pid)
    return tuple(out)


def _main(
    run: Run | None, server: Server, members: Sequence[Process], snapshot: Snapshot
) -> Process | None:
    if run is not None and run.launcher is not None:
        for process in members:
            if process.id == run.launcher:
                return process
    pids = {p.id.pid for p in members}
    tops = [p for p in members if p.ppid not in pids]
    launchers = [p for p in members if is_launcher(p)] or [p for p in tops if _starts(p)]
    if launchers:
        return min(launchers, key=lambda p: p.id.start_ticks)
    holder = snapshot.listening.get(server.port)
    for process in members:
        if process.id.pid == holder:
            return process
    return min(tops or members, key=lambda p: p.id.start_ticks, default=None)
