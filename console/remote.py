"""What the rest of the house may ask of a connected host: the seam between rules and transports.

``console.session`` implements :class:`Remote` over the agent; tests and replays may implement it
over recordings. Every method may raise ``HostError`` when the link or the agent is lost. Nothing
here is a shell: commands are argument vectors, text from the host is bytes until it is cleaned.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from console.errors import ActionFailed
from console.model import Artefact, Hello, Host, ProcessId, Run, Snapshot, Target

MOST_HITS = 10_000
"""Lines that one search of a log brings at most."""

if TYPE_CHECKING:
    import httpx


class HostFileError(ActionFailed):
    """The host's system refused a call on a path, command or port; ``errno`` says why.

    ``missing`` is true where the path, the command or the listener is simply not there, ``full``
    where the disk has no room, or no more for this user.
    """

    def __init__(
        self, message: str, *, place: str = "", hint: str = "", errno: int | None = None
    ) -> None:
        super().__init__(message, place=place, hint=hint)
        self.errno = errno

    @property
    def full(self) -> bool:
        """Whether there was no room to write."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def missing(self) -> bool:
        """Whether the thing does not exist (ENOENT, ENOTDIR, ECONNREFUSED)."""
        return self.errno in (2, 20, 111)


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """What systemd says of a unit. ``exit_status`` is the last main process's code or signal."""

    unit: str
    loaded: bool
    active: str
    sub: str
    result: str
    main_pid: int | None
    exit_status: int | None
    restarts: int
    restart_policy: str = ""
    cgroup: str = ""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a launched server ended: ``code`` is negative for a signal, ``None`` where unknown."""

    code: int | None
    result: str = ""
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class SignalResult:
    """What became of one target, decided on the host in the same call as the signal.

    ``gone``: no such process any more; ``changed``: the pid is somebody else now, nothing was
    signalled; ``denied``: the host refused, or the pid is on the agent's never-signal list.
    """

    process: ProcessId
    outcome: Literal["signalled", "gone", "changed", "denied"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished command. ``code`` is negative for a signal, ``None`` when it timed out."""

    code: int | None
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Launch:
    """A detached server to start. ``secrets`` maps a variable to its value; never recorded.

    ``scope`` asks for an own transient systemd unit where systemd runs (cgroup = identity);
    elsewhere the agent uses a session of its own. The log is opened for append, parents made.
    """

    run: Run
    secrets: Mapping[str, str] = field(default_factory=dict)
    scope: bool = True


@dataclass(frozen=True, slots=True)
class LogSource:
    """What to tail: exactly one of a file path, a systemd unit or a docker container.

    ``also`` are further files, or patterns of files, that ``console.logs.several`` reads beside it
    (or alone, where nothing else is named); a host's own ``tail`` takes single logs only.
    """

    path: str | None = None
    unit: str | None = None
    container: str | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a tail stands; opaque to callers except for saving and sending it back."""

    device: int = 0
    inode: int = 0
    generation: int = 0
    offset: int = 0
    head_sha: str = ""
    head_len: int = 0
    journal: str | None = None


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Whole or partial lines as bytes, in order.

    ``gap_bytes`` were skipped before ``data`` because the link is slower than the log; ``event``
    names what happened to the file before ``data``: rotated, truncated, refilled, missing, binary.
    """

    data: bytes
    cursor: Cursor
    gap_bytes: int = 0
    event: str | None = None
    lag_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FileStat:
    """A path on the host. ``kind`` is file, dir, other or missing; ``error`` says why unknown."""

    path: str
    kind: Literal["file", "dir", "other", "missing"]
    size_bytes: int = 0
    mtime: float = 0.0
    uid: int = 0
    readable: bool = False
    writable: bool = False
    error: str = ""


class Remote(Protocol):
    """A connected host."""

    host: Host
    hello: Hello

    @property
    def degraded(self) -> str:
        """Why only snapshots are possible, "" where the agent runs."""
        ...

    async def snapshot(self, *, full: bool = False, artefacts: bool = False) -> Snapshot:
        """Sample processes, devices and (on request) artefacts; ``full`` re-reads every process."""
        ...

    async def signal(self, targets: Sequence[Target], signal: str) -> list[SignalResult]:
        """Verify each identity and signal it in one call on the host; ``signal`` like "TERM"."""
        ...

    async def wait_gone(self, processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
        """Wait until all are gone (every thread too); returns those that are still there."""
        ...

    async def launch(self, launch: Launch) -> Run:
        """Start a detached server and write its run record; returns it with pid and unit filled."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a short command on the host, bounded in time and output (8 MiB)."""
        ...

    async def read_file(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Bytes of a file; a negative offset counts from the end."""
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Replace a file whole and atomically, parents made."""
        ...

    async def stat(self, paths: Sequence[str]) -> list[FileStat]:
        """Stat several paths in one call."""
        ...

    async def list_dir(self, path: str) -> list[FileStat]:
        """The entries of a directory with their sizes."""
        ...

    async def remove(self, artefacts: Sequence[Artefact]) -> list[tuple[str, str]]:
        """Remove leftovers that are still the same and still unheld; (path, "" or why not)."""
        ...

    async def unit_status(self, unit: str, *, user_unit: bool = False) -> UnitStatus:
        """What systemd says of a unit; ``ActionFailed`` where systemd does not run."""
        ...

    async def exit_status(self, run_id: str) -> ExitStatus | None:
        """How a launched run ended; ``None`` while it runs, or when nobody saw its end."""
        ...

    async def quiesce(self, seconds: float = 60.0) -> None:
        """Let go of the NVIDIA driver for a while, so that a GPU can be reset."""
        ...

    async def runs(self) -> list[Run]:
        """All run records of the host, newest first."""
        ...

    async def save_run(self, run: Run) -> None:
        """Write a run record."""
        ...

    async def journal(self, plan_id: str, entry: Mapping[str, object]) -> None:
        """Append one line to a plan's journal on the host, fsynced before this returns."""
        ...

    async def journals(self) -> dict[str, list[dict[str, object]]]:
        """The journals on the host: plan id to its entries."""
        ...

    async def open_journals(self) -> dict[str, list[dict[str, object]]]:
        """Those without an end that no later plan has followed: few, and cheap to ask for."""
        ...

    async def lock_owner(self) -> str | None:
        """Who holds the host's lock now, in the words it was taken with; ``None``: nobody."""
        ...

    async def lock(self, owner: str) -> None:
        """Take the host's lock for destructive plans; ``Refused`` names the present owner."""
        ...

    async def unlock(self) -> None:
        """Release the lock; it also falls when the agent ends."""
        ...

    def tail(
        self,
        source: LogSource,
        *,
        cursor: Cursor | None = None,
        last_lines: int | None = None,
        follow: bool = True,
    ) -> AsyncIterator[LogChunk]:
        """Follow a log from a cursor, from its last lines, or from its start (neither given)."""
        ...

    def grep(
        self,
        source: LogSource,
        pattern: str | Sequence[str],
        *,
        max_lines: int = MOST_HITS,
        ignore_case: bool = False,
        newest: bool = False,
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Lines that match a regular expression, searched on the host: (byte offset, line).

        Several words instead: lines that hold one of them. At most ``max_lines``: the first ones,
        or the newest.
        """
        ...

    def http(self) -> httpx.AsyncBaseTransport:
        """An httpx transport whose connections are opened by the agent, on the host's side."""
        ...

    async def close(self) -> None:
        """End the agent and the connection."""
        ...
