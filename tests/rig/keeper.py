"""The process that owns what a test started, and takes it down when its stdin closes.

Run as ``python -m tests.rig.keeper SPEC``, SPEC being JSON:

``argv``     the program to keep
``cgroups``  folders of the cgroup tree that the program is put into (made if missing)
``log``      file that gets its stdout and stderr
``notify``   socket path for systemd's readiness protocol, or null: ready as soon as started
``cleanup``  argument vectors run at the end, in order, whose failures do not matter
``remove``   folders deleted at the end

It prints one JSON line when the program is ready: ``{"pid", "leader"}`` (``leader`` is the
container's init, null without ``notify``), or ``{"error"}``. Then it waits for EOF on stdin or for
the program's end. A test run that dies, by whatever signal, closes the pipe: nothing stays behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
READY_LIMIT_S = 60.0


@dataclass(frozen=True)
class Spec:
    """What to keep; see the module's docstring."""

    argv: tuple[str, ...]
    cgroups: tuple[str, ...]
    log: str
    notify: str | None
    cleanup: tuple[tuple[str, ...], ...]
    remove: tuple[str, ...]

    def dump(self) -> str:
        """The spec as the keeper's argument."""
        return json.dumps(self.__dict__)

    @staticmethod
    def load(text: str) -> Spec:
        """The reverse of ``dump``."""
        raw = json.loads(text)
        return Spec(
            argv=tuple(raw["argv"]),
            cgroups=tuple(raw["cgroups"]),
            log=raw["log"],
            notify=raw["notify"],
            cleanup=tuple(tuple(step) for step in raw["cleanup"]),
            remove=tuple(raw["remove"]),
        )


def _enter(cgroups: tuple[str, ...]) -> None:
    """In the child, before exec: into its cgroups, and to die with the keeper."""
    for folder in cgroups:
        Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(spec: Spec) -> subprocess.Popen[bytes]:
    for folder in spec.cgroups:
        Path(folder).mkdir(exist_ok=True)
    env = dict(os.environ)
    if spec.notify is not None:
        env["NOTIFY_SOCKET"] = spec.notify
    with Path(spec.log).open("ab") as log:
        return subprocess.Popen(
            spec.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: _enter(spec.cgroups),  # noqa: PLW1509 (this process has one thread)
        )


def _await_ready(bell: socket.socket, child: subprocess.Popen[bytes]) -> int | str:
    """The leader's pid once its init says READY, or what went wrong."""
    leader: int | None = None
    deadline = time.monotonic() + READY_LIMIT_S
    bell.settimeout(0.2)
    while time.monotonic() < deadline:
        if child.poll() is not None:
            return f"ended with status {child.returncode} while starting"
        try:
            message = bell.recv(4096).decode(errors="replace")
        except TimeoutError:
            continue
        fields = dict(line.split("=", 1) for line in message.splitlines() if "=" in line)
        if "X_NSPAWN_LEADER_PID" in fields:
            leader = int(fields["X_NSPAWN_LEADER_PID"])
        if fields.get("READY") == "1" and leader is not None:
            return leader
    return f"not ready after {READY_LIMIT_S:.0f} s"


def _wait_for_end(child: subprocess.Popen[bytes]) -> None:
    """Until the other side closes our stdin or the child ends."""
    ended = os.pidfd_open(child.pid)
    try:
        select.select([0, ended], [], [])
    finally:
        os.close(ended)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _take_down(spec: Spec, child: subprocess.Popen[bytes], leader: int | None) -> None:
    # The container's init first: with it the kernel ends every process of its pid namespace, and
    # nspawn, its parent, then leaves in order. The child is unreaped, so its pid is still its own.
    if leader is not None and child.poll() is None:
        _signal(leader, signal.SIGKILL)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            _signal(child.pid, signal.SIGKILL)
    if child.poll() is None:
        _signal(child.pid, signal.SIGTERM)
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            _signal(child.pid, signal.SIGKILL)
            child.wait()
    clean(spec)


def clean(spec: Spec) -> None:
    """Remove what the spec's program leaves: leftover processes, steps, folders, cgroups."""
    for folder in spec.cgroups:
        for procs in Path(folder).rglob("cgroup.procs"):
            for pid in procs.read_text().split():
                _signal(int(pid), signal.SIGKILL)
    for step in spec.cleanup:
        subprocess.run(step, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    for path in spec.remove:
        shutil.rmtree(path, ignore_errors=True)
    for folder in spec.cgroups:
        _remove_cgroup(Path(folder))


def _remove_cgroup(folder: Path) -> None:
    """Remove a cgroup and its children; a killed process may leave it a moment later."""
    for _ in range(50):
        try:
            for sub in sorted(folder.rglob("*/"), reverse=True):
                sub.rmdir()
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return


def main() -> int:
    """Keep the program of the spec in ``argv[1]`` until stdin ends."""
    spec = Spec.load(sys.argv[1])
    # A Ctrl-C is for the test run; the pipe then tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bell: socket.socket | None = None
    if spec.notify is not None:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.bind(spec.notify)
    child = _start(spec)
    leader: int | None = None
    try:
        ready = _await_ready(bell, child) if bell is not None else None
        if isinstance(ready, str):
            print(json.dumps({"error": ready}), flush=True)
            return 1
        leader = ready
        print(json.dumps({"pid": child.pid, "leader": leader}), flush=True)
        _wait_for_end(child)
    finally:
        _take_down(spec, child, leader)
        if bell is not None:
            bell.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
