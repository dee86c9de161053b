"""A host that is this machine: enough of ``Remote`` to run plans on real processes of a test.

It reads /proc for the processes of one session tree only, signals through pidfd, keeps journals as
files, and counts what it was asked, so that a test can say what was signalled and how often.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal as signals
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from console.errors import AgentError, Refused
from console.model import Artefact, Hello, Host, Process, ProcessId, Snapshot, Target
from console.remote import Completed, Remote, SignalResult

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
TICKS = os.sysconf("SC_CLK_TCK")


class LocalHost:
    """See the module. ``break_at`` names calls after whose n-th use the link is lost."""

    def __init__(self, state: Path, *, read_only: bool = False, marker: str = "") -> None:
        self.host = Host("here", transport="local")
        self.hello = Hello(
            "1", "3", "here", os.getuid(), "me", os.getpid(), BOOT, "ns", True, "6", False,
            str(state), read_only, TICKS, time.time(),
        )  # fmt: skip
        self.state = state
        self.marker = marker
        self.sent: list[tuple[int, str]] = []
        self.journalled: list[str] = []
        self.owner: str | None = None
        self.break_at: dict[str, int] = {}
        self.commands: list[tuple[str, ...]] = []
        self.answers: Callable[[Sequence[str]], Completed] = lambda _argv: Completed(0, b"", b"")
        self.look: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot

    @property
    def remote(self) -> Remote:
        """Itself, as what the executor takes."""
        return cast("Remote", self)

    def _link(self, call: str) -> None:
        if call in self.break_at:
            self.break_at[call] -= 1
            if self.break_at[call] < 0:
                raise AgentError("the link was lost", place="here")

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        self._link("snapshot")
        found = tuple(p for p in map(_read, _pids()) if p is not None and self._mine(p))
        snapshot = Snapshot(BOOT, time.time(), os.getuid(), found)
        return self.look(snapshot)

    def _mine(self, process: Process) -> bool:
        return not self.marker or process.run_id == self.marker or self.marker in process.title

    async def signal(self, targets: Sequence[Target], signal: str) -> list[SignalResult]:
        self._link("signal")
        results = [self._signal(target.process, signal) for target in targets]
        self._link("answer to signal")
        return results

    def _signal(self, process: ProcessId, signal: str) -> SignalResult:
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return SignalResult(process, "gone")
        try:
            now = _read(process.pid)
            if now is None:
                return SignalResult(process, "gone")
            if now.id != process:
                return SignalResult(process, "changed")
            signals.pidfd_send_signal(fd, signals.Signals[f"SIG{signal}"])
        except ProcessLookupError:
            return SignalResult(process, "gone")
        finally:
            os.close(fd)
        self.sent.append((process.pid, signal))
        return SignalResult(process, "signalled")

    async def wait_gone(self, processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
        self._link("wait_gone")
        deadline = time.monotonic() + timeout_s
        while True:
            _reap()
            left = [p for p in processes if (now := _read(p.pid)) is not None and now.id == p]
            if not left or time.monotonic() >= deadline:
                return left
            await asyncio.sleep(0.02)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        self._link("run")
        self.commands.append(tuple(argv))
        return self.answers(argv)

    async def remove(self, artefacts: Sequence[Artefact]) -> list[tuple[str, str]]:
        self._link("remove")
        results = []
        for artefact in artefacts:
            try:
                info = Path(artefact.path).lstat()
            except FileNotFoundError:
                results.append((artefact.path, "no such file"))
                continue
            if (info.st_dev, info.st_ino) != (artefact.device, artefact.inode):
                results.append((artefact.path, "another file now"))
                continue
            Path(artefact.path).unlink()
            results.append((artefact.path, ""))
        return results

    async def journal(self, plan_id: str, entry: Mapping[str, object]) -> None:
        self._link("journal")
        self.journalled.append(str(entry["event"]))
        with (self.state / f"{plan_id}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    async def journals(self) -> dict[str, list[dict[str, object]]]:
        return {
            path.stem: [json.loads(line) for line in path.read_text().splitlines()]
            for path in self.state.glob("*.jsonl")
        }

    async def open_journals(self) -> dict[str, list[dict[str, object]]]:
        return await self.journals()

    async def lock_owner(self) -> str | None:
        return self.owner

    async def lock(self, owner: str) -> None:
        if self.owner is not None:
            raise Refused(f"in use by {self.owner}", place="here")
        self.owner = owner

    async def unlock(self) -> None:
        self._link("unlock")
        self.owner = None


def _reap() -> None:
    """Collect children of the test itself; on a host init does."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _read(pid: int) -> Process | None:
    """A process from /proc, or ``None`` when it is gone."""
    root = Path(f"/proc/{pid}")
    try:
        stat = (root / "stat").read_bytes()
        line = (root / "cmdline").read_bytes()
        uid = root.stat().st_uid
        environ = _environ(root)
    except (FileNotFoundError, ProcessLookupError):
        return None
    comm, _, rest = stat.partition(b"(")[2].rpartition(b")")
    words = rest.split()
    return Process(
        id=ProcessId(pid, int(words[19]), BOOT),
        ppid=int(words[1]),
        pgid=int(words[2]),
        sid=int(words[3]),
        uid=uid,
        user=str(uid),
        state=words[0].decode(),
        comm=comm.decode("utf-8", "replace"),
        argv=tuple(line.decode("utf-8", "replace").rstrip("\0").split("\0")) if line else (),
        threads=int(words[17]),
        cpu_ticks=int(words[11]) + int(words[12]),
        age_s=_uptime() - int(words[19]) / TICKS,
        run_id=environ.get("SPECOPS_RUN_ID"),
    )


def _environ(root: Path) -> dict[str, str]:
    try:
        data = (root / "environ").read_bytes().decode("utf-8", "replace")
    except PermissionError:
        return {}
    return dict(item.split("=", 1) for item in data.split("\0") if "=" in item)


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
