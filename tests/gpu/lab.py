"""One GPU machine as a managed host: an SSH server on loopback, a hosts.yaml, and the command.

The machine may be offline and without sshd; asyncssh's own server stands in for it, with a key made
for the run. ``specops`` is driven as an operator would: as a command, over SSH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import yaml

ROOT = Path(__file__).resolve().parents[2]
SGLANG_ENV = {
    # The packed SGLang has stubs in place of FlashInfer's kernels.
    "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "HF_HUB_OFFLINE": "1",
}
SGLANG_ARGS = {
    "attention-backend": "triton",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "disable-piecewise-cuda-graph": True,
    "cuda-graph-max-bs": 4,
    "max-running-requests": 4,
    "mem-fraction-static": 0.3,
    "enable-metrics": True,
    "dtype": "float32",
    "skip-server-warmup": False,
}


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

    def configure(self, **servers: dict[str, Any]) -> None:
        """Write hosts.yaml with these servers."""
        self.servers.update(servers)
        host = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": "operator",
            "python": sys.executable,
            "identity_files": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
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
        done = subprocess.run(
            [*self.command(*words), "--json"],
            cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
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
        text = seen if isinstance(seen, str) else json.dumps(seen, default=str)
        self.rows.append(Row(self.part, title, command, expected, text[:600], ok))
        print(f"[{'ok' if ok else 'NO'}] {title}: {text[:300]}", flush=True)
        rows = [row.__dict__ for row in self.rows]
        (self.out / f"{self.part}.json").write_text(json.dumps(rows, indent=1))

    def keep_log(self, path: str, name: str, limit: int = 60_000) -> None:
        """Keep a server's log, its end if it is long, with neutral paths."""
        source = Path(path)
        if source.exists():
            text = source.read_bytes()[-limit:].decode("utf-8", "replace")
            text = text.replace(str(self.folder), "/srv").replace(str(ROOT), "/opt/specops")
            (self.out / f"{name}.log.txt").write_text(text)


class Shell:
    """asyncssh's server: runs what is asked, as sshd would, with bytes and no terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
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
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        process.exit(await child.wait())


def make(part: str, out: Path) -> Lab:
    """A lab for one part; ``out`` gets its rows and logs."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="specops-gpu-"))
    folder.chmod(0o700)
    lab = Lab(part, out, folder, Shell(folder).port)
    lab.configure()
    return lab


def gpu_memory() -> list[float]:
    """Memory in use on each GPU in MiB, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
    return [float(line) for line in done.stdout.split()]


def copy_pair(target: Path, draft: Path, folder: Path) -> tuple[Path, Path]:
    """The shipped pair in a folder where it may be changed."""
    for source, name in ((target, "target"), (draft, "draft")):
        shutil.copytree(source, folder / name)
    return folder / "target", folder / "draft"


def edit_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=1))


def words(values: Sequence[object]) -> str:
    """Values on one line."""
    return " ".join(str(value) for value in values)
