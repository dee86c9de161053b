"""One GPU machine as a managed host: an SSH server on loopback, a hosts.yaml, and the command.

The machine may be offline and without sshd; asyncssh's own server stands in for it, with a key made
for the run. ``specops`` is driven as an operator would: as a command, over SSH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import yaml

ROOT = Path(__file__).resolve().parents[2]
FAULTS = (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, IndexError,
          AttributeError, RuntimeError, AssertionError)  # fmt: skip
"""What a step of a part may raise; the row says so and the part goes on."""
NO_BYTES = 16.0
"""MiB by which the driver's own use may move while a server comes and goes."""


@dataclass
class Row:
    """One line of the report: what was done, what should be seen, what was seen."""

    part: str
    title: str
    command: str
    expected: str
    seen: str
    ok: bool


@dataclass
class Lab:
    """The managed host and the report of one part."""

    part: str
    out: Path
    folder: Path
    port: int
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def configure(self, servers: dict[str, dict[str, Any]] | None = None, **more: Any) -> None:
        """Write hosts.yaml with these servers besides those it has; ``more`` is the host's."""
        self.servers.update(servers or {})
        host = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": "operator",
            "python": sys.executable,
            "identity_files": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
            **more,
        }
        body = {"hosts": {"gpu": host}, "servers": self.servers}
        path = self.folder / "hosts.yaml"
        path.write_text(yaml.safe_dump(body))
        path.chmod(0o600)

    def command(self, *words: str) -> list[str]:
        """The argument vector of a specops command on this hosts.yaml."""
        start = "from console.cli import main; main()"
        hosts = str(self.folder / "hosts.yaml")
        return [sys.executable, "-c", start, words[0], *words[1:], "--hosts", hosts]

    def specops(self, *words: str, timeout: float = 300) -> tuple[int, Any, float]:
        """Run a command with ``--json``: exit code, document (or the text), seconds."""
        started = time.monotonic()
        try:
            done = subprocess.run(
                [*self.command(*words), "--json"],
                cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=timeout,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"specops {' '.join(words)}: nothing for {timeout:.0f} s", timeout
        seconds = time.monotonic() - started
        try:
            return done.returncode, json.loads(done.stdout), seconds
        except ValueError:
            return done.returncode, (done.stdout + done.stderr)[-2000:], seconds

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run a command in the background, its JSON on stdout."""
        return subprocess.Popen(
            [*self.command(*words), "--json"],
            cwd=ROOT, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        """The operator's environment: state and configuration in the lab's folder."""
        own = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"),
               "XDG_STATE_HOME": str(self.folder / "state"), "SSH_AUTH_SOCK": ""}  # fmt: skip
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        return {**os.environ, **own, "PYTHONPATH": path}

    def check(self, title: str, command: str, expected: str, seen: object, ok: bool) -> None:
        """Add a row and save: a part that is cut off keeps what it saw."""
        text = self.neutral(seen if isinstance(seen, str) else json.dumps(seen, default=str))
        self.rows.append(Row(self.part, title, command, expected, text[:600], ok))
        print(f"[{'ok' if ok else 'NO'}] {title}: {text[:300]}", flush=True)
        self.save()

    def save(self) -> None:
        """Write what was seen so far."""
        body = {"facts": self.facts, "rows": [row.__dict__ for row in self.rows]}
        (self.out / f"{self.part}.json").write_text(
            self.neutral(json.dumps(body, indent=1, default=str)) + "\n"
        )

    def attempt(self, title: str, step: Callable[[], None]) -> None:
        """One step; what it raises becomes a row, and the part goes on."""
        try:
            step()
        except FAULTS as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            with self._guard:
                self.check(title, "", "the step ends", said, False)

    def keep(self, name: str, seen: object) -> None:
        """Keep a whole document beside the rows, for whoever looks closer."""
        text = seen if isinstance(seen, str) else json.dumps(seen, indent=1, default=str)
        (self.out / f"{self.part}-{name}.json").write_text(self.neutral(text)[:200_000])

    def neutral(self, text: str) -> str:
        """Text without this run's folders."""
        return text.replace(str(self.folder), "/srv").replace(str(ROOT), "/opt/specops")

    def keep_log(self, path: str, name: str, limit: int = 60_000) -> None:
        """Keep a server's log, its end if it is long, with neutral paths."""
        source = Path(path)
        if source.exists():
            text = source.read_bytes()[-limit:].decode("utf-8", "replace")
            (self.out / f"{name}.log.txt").write_text(self.neutral(text))


class Shell:
    """asyncssh's server: runs what is asked, as sshd would, with bytes and no terminal."""

    def __init__(self, folder: Path, uid: int | None = None) -> None:
        self.folder = folder
        self.port = 0
        self._login: dict[str, Any] = (
            {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        )
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        threading.Thread(target=self._main, daemon=True).start()
        self._ready.wait(20)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key.write_private_key(str(self.folder / "id"))
        (self.folder / "id").chmod(0o600)
        user_key.write_public_key(str(self.folder / "authorized"))
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[host_key], encoding=None,
            authorized_client_keys=str(self.folder / "authorized"), process_factory=self._serve,
        )  # fmt: skip
        self.port = server.get_port()
        public = host_key.export_public_key().decode().strip()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}\n")
        self._ready.set()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", process.command or "true", stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, **self._login,
        )  # fmt: skip
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        process.exit(await child.wait())


def make(part: str, out: Path) -> Lab:
    """A lab for one part; ``out`` gets its rows and logs."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="specops-gpu-"))
    folder.chmod(0o700)
    os.environ["SPECOPS_STATE_DIR"] = str(folder / "host-state")  # the host's side: a part's own
    lab = Lab(part, out, folder, Shell(folder).port)
    lab.configure()
    return lab


def smi(fields: str) -> list[list[str]]:
    """``nvidia-smi --query-gpu``: one list of values for each GPU."""
    query = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    return [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]


def gpu_memory() -> float:
    """Memory in use on all GPUs in MiB, as nvidia-smi says."""
    return sum(float(row[0]) for row in smi("memory.used"))


def copy_pair(target: Path, draft: Path, folder: Path) -> tuple[Path, Path]:
    """The shipped pair in a folder where it may be changed."""
    for source, name in ((target, "target"), (draft, "draft")):
        shutil.copytree(source, folder / name)
    return folder / "target", folder / "draft"


def edit_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; ``None`` removes one."""
    body = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in body.items() if v is not None}, indent=1))


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def brief(document: Any, *keys: str) -> dict[str, Any]:
    """These keys of a document; the text itself where the command gave none."""
    if not isinstance(document, dict):
        return {"said": str(document)[-300:]}
    return {key: document.get(key) for key in keys}


def proc_state(pid: int) -> str:
    """State letter of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> dict[int, str]:
    """Descendants of a process with their command lines."""
    parents, titles = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            titles[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, UnicodeDecodeError):
            continue
        parents[int(entry.name)] = int(fields[1])
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child, of in parents.items():
            if of == parent and child not in found and child in titles:
                found[child] = titles[child].strip()
                waiting.append(child)
    return found


class Memory:
    """Memory of all GPUs and of the processes on them at 20 Hz, for the lag until it is back."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float, dict[int, float]]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(5)

    def _read(self) -> None:
        import pynvml  # type: ignore[import-untyped, unused-ignore]

        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        while not self._end.wait(0.05):
            at, used, held = time.monotonic(), 0.0, dict[int, float]()
            for gpu in gpus:
                used += (
                    pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2).used / 2**20
                )
                for user in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu):
                    mib = (user.usedGpuMemory or 0) / 2**20
                    held[user.pid] = held.get(user.pid, 0.0) + mib
            self.samples.append((at, used, held))

    def held(self, pids: set[int]) -> float:
        """MiB that these processes hold now."""
        return sum(mib for pid, mib in self.samples[-1][2].items() if pid in pids)

    def lag(self, since: float, pids: set[int], bound_s: float = 30) -> float | None:
        """Seconds from ``since`` until the driver lists none of these; ``None``: not in time."""
        while time.monotonic() < since + bound_s:
            for at, _, held in list(self.samples):
                if at >= since and not pids & held.keys():
                    return round(at - since, 2)
            time.sleep(0.1)
        return None
