"""Doing things in a container by its leader's pid: run, copy, list processes, reset."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rig.rootfs import RigError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Left by tests and by specops; emptied by ``reset``.
SCRATCH = (
    "dev/shm",
    "opt",
    "tmp",
    "var/tmp",
    "var/lib/specops",
    "root/.local/state",
    "home/admin/.local/state",
    "run/systemd/system",
    "etc/systemd/system",
)
# sh: GROUP… -- ARGV: itself into each cgroup, then ARGV.
_PLACED = """
for group; do
    shift
    [ "$group" = -- ] && break
    echo $$ > "$group" || exit 125
done
exec "$@"
"""


@dataclass(frozen=True)
class Seen:
    """A process of the container: its pid on this machine, its pid inside, start in clock ticks."""

    pid: int
    inner: int
    start_ticks: int


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat, or None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])  # a comm may contain anything, even ")"


class Inside:
    """The container whose init is ``leader`` (a pid of this machine)."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._processes: frozenset[Seen] = frozenset()
        self._units: frozenset[str] = frozenset()
        self._files: dict[str, frozenset[str]] = {}

    # ---- running

    def enter_argv(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        """``argv`` run as root inside, in all its namespaces, in a cgroup of its own there."""
        full = {"PATH": PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", **(env or {})}
        groups = []
        for folder in self._cgroups():
            attached = folder / "attached"
            attached.mkdir(exist_ok=True)
            groups.append(str(attached / "cgroup.procs"))
        return [
            "sh", "-c", _PLACED, "sh", *groups, "--",
            "nsenter", f"--target={self.leader}", "--all", "--root", "--wd",
            "env", "-i", *(f"{key}={value}" for key, value in full.items()), *argv,
        ]  # fmt: skip

    def _cgroups(self) -> list[Path]:
        """The folders, on this machine, of the container's own root cgroups."""
        mounted: dict[str, Path] = {}
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind, options = line.split()[:4]
            if kind == "cgroup2":
                mounted[""] = Path(where)
            elif kind == "cgroup" and "name=systemd" in options.split(","):
                mounted["name=systemd"] = Path(where)
        found = []
        for line in Path(f"/proc/{self.leader}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in mounted and path != "/":
                found.append(mounted[controllers] / path.removesuffix("/init.scope").lstrip("/"))
        return found

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30,
        check: bool = True,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``argv`` inside as root and wait.

        Raises:
            RigError: with ``check``, when its status is not 0; the text holds its stderr.
        """
        done = subprocess.run(
            self.enter_argv(argv, env), input=stdin, capture_output=True, timeout=timeout_s,
            check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout)[-2000:].decode(errors="replace")
            raise RigError(f"{list(argv)} inside: status {done.returncode}: {said}")
        return done

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start ``argv`` inside as root, its three standard streams piped."""
        return subprocess.Popen(
            self.enter_argv(argv, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    # ---- files

    def path(self, inside: str) -> Path:
        """The path, on this machine, of an absolute path inside (symbolic links not resolved)."""
        return Path(f"/proc/{self.leader}/root") / inside.lstrip("/")

    def copy_in(self, source: Path, inside: str) -> None:
        """Copy a file or a folder to the absolute path ``inside``."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    def write(self, inside: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file inside, its folders made where missing; root owns it."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def read(self, inside: str) -> bytes:
        """The bytes of a file inside."""
        return self.path(inside).read_bytes()

    # ---- processes

    def processes(self) -> frozenset[Seen]:
        """All processes of the container's pid namespace and of those nested in it."""
        mine = frozenset(_namespace_chain(self.leader))
        own = str(Path(f"/proc/{self.leader}/ns/pid").readlink())
        found = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            pid = int(entry.name)
            inner = _inner_pid(pid, own, len(mine))
            ticks = start_ticks(pid)
            if inner is not None and ticks is not None:
                found.add(Seen(pid, inner, ticks))
        return frozenset(found)

    def seen(self, inner: int) -> Seen:
        """The process that is ``inner`` inside.

        Raises:
            RigError: there is none.
        """
        for seen in self.processes():
            if seen.inner == inner:
                return seen
        raise RigError(f"no process {inner} inside")

    def outer_pid(self, inner: int) -> int:
        """The pid on this machine of the process that is ``inner`` inside; as ``seen``."""
        return self.seen(inner).pid

    def set_pid_max(self, limit: int) -> bool:
        """Lower the container's own pid_max; False where the kernel has only one for all (< 6.14).

        The machine's own value is never written: the kernel resolves the file by the pid namespace
        of whoever opens it.
        """
        major, minor = (int(part) for part in os.uname().release.split(".")[:2])
        if (major, minor) < (6, 14):
            return False
        enter = ["nsenter", f"--target={self.leader}", "--pid", "sh", "-c"]
        subprocess.run([*enter, f"echo {limit} > /proc/sys/kernel/pid_max"], check=True)
        return True

    # ---- back to the beginning

    def remember(self) -> None:
        """Take what is there now as the state ``reset_processes`` returns to."""
        self._units = self._active_units()
        self._processes = self.processes()
        self._files = {name: self._entries(name) for name in SCRATCH}

    def reset_processes(self) -> None:
        """End what was started and remove what was written since ``remember``.

        Units started since are stopped (a raw kill would let Restart= bring them back), then every
        new process is killed by pid and start time, then new entries of ``SCRATCH`` are removed.

        Raises:
            RigError: something survived SIGKILL for 10 s.
        """
        new_units = sorted(self._active_units() - self._units)
        if new_units:
            self.run(["systemctl", "kill", "--signal=KILL", "--", *new_units], check=False)
            self.run(["systemctl", "stop", "--", *new_units], check=False)
        deadline = time.monotonic() + 10
        while fresh := self._fresh():
            for seen in fresh:
                _kill(seen)
            if time.monotonic() > deadline:
                raise RigError(f"left after reset: {sorted(seen.pid for seen in fresh)}")
            time.sleep(0.02)
        removed = [name for name in SCRATCH if self._empty(name)]
        if any("systemd" in name for name in removed) or new_units:
            self.run(["systemctl", "daemon-reload"])
            self.run(["systemctl", "reset-failed"])

    def _active_units(self) -> frozenset[str]:
        kinds = "--type=service,scope,timer,socket"
        lines = self.run(["systemctl", "list-units", kinds, "--plain", "--no-legend"]).stdout
        # Login sessions and user managers come and go with connections.
        return frozenset(
            name
            for line in lines.decode().splitlines()
            if not (name := line.split()[0]).startswith(("session-", "user@", "user-runtime"))
        )

    def _fresh(self) -> frozenset[Seen]:
        """New processes, except a restarted one of a unit that was there, and user managers."""
        return frozenset(
            seen for seen in self.processes() - self._processes if not self._belongs(seen.pid)
        )

    def _belongs(self, pid: int) -> bool:
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return True  # gone
        parts = [part for line in groups for part in line.split("/")]
        manager = any(part.startswith("user@") for part in parts) and parts[-1] == "init.scope"
        return manager or not self._units.isdisjoint(parts)

    def _entries(self, name: str) -> frozenset[str]:
        folder = self.path(name)
        return frozenset(p.name for p in folder.iterdir()) if folder.is_dir() else frozenset()

    def _empty(self, name: str) -> bool:
        new = self._entries(name) - self._files.get(name, frozenset())
        for entry in new:
            path = self.path(name) / entry
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return bool(new)


def _namespace_chain(pid: int) -> list[int]:
    """NSpid: the process's pid in each pid namespace from this machine's down to its own."""
    for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
        if line.startswith(b"NSpid:"):
            return [int(part) for part in line.split()[1:]]
    return []


def _inner_pid(pid: int, namespace: str, depth: int) -> int | None:
    """What ``pid`` is called in ``namespace`` (``depth`` levels down), or None if not in it."""
    try:
        chain = _namespace_chain(pid)
        if len(chain) < depth:
            return None
        current = str(Path(f"/proc/{pid}/ns/pid").readlink())
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(chain) == depth:
        return chain[-1] if current == namespace else None
    return chain[depth - 1] if _descends(pid, namespace) else None


def _descends(pid: int, namespace: str) -> bool:
    """Whether some ancestor of ``pid`` lives in ``namespace`` itself."""
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        pid = int(stat[stat.rindex(b")") + 2 :].split()[1])
        if pid and str(Path(f"/proc/{pid}/ns/pid").readlink()) == namespace:
            return True
    return False


def _kill(seen: Seen) -> None:
    """SIGKILL, to this very process."""
    try:
        handle = os.pidfd_open(seen.pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(seen.pid) == seen.start_ticks:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
