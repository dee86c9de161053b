"""Whole commands as an operator runs them: a process of its own, files and state of the test's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "from console.cli import main; main()"
BOUND_S = 120


@dataclass(frozen=True)
class Ran:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one document."""
        return json.loads(self.out)


class Command:
    """Runs ``specops`` with its own hosts.yaml, configuration and state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = folder / "hosts.yaml"
        self.env = {
            **{k: v for k, v in os.environ.items() if k != "SPECOPS_RUN_ID"},
            "SPECOPS_STATE_DIR": str(folder / "state"),
            "XDG_STATE_HOME": str(folder / "operator"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "NO_COLOR": "1",
        }

    def write(self, text: str) -> None:
        """Write hosts.yaml."""
        self.hosts.write_text(text)
        self.hosts.chmod(0o600)

    def argv(self, *words: str) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-c", PROGRAM, *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it and go on."""
        return subprocess.Popen(
            self.argv(*words),
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, bound_s: float = BOUND_S) -> Ran:
        """Run it to its end, without a terminal."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=bound_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Ran(process.returncode, out, err)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def specops(tmp_path: Path) -> Command:
    """The command with an empty world of its own."""
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    command.write("hosts:\n  here: {transport: local}\n")
    return command


@pytest.fixture
def bundled(specops: Command) -> Iterator[Command]:
    """The command with one bundled server ``one``; whatever still runs at the end is stopped."""
    port = free_port()
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n"
        f"  one: {{host: here, engine: bundled, port: {port}, speculative: eagle3-3step,\n"
        "        args: {max-running-requests: 8, no-parent-death-signal: true}}\n"
    )
    yield specops
    specops("stop", "one", "--yes")
