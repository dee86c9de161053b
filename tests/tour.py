"""The console in a real terminal (tmux), and the operator's loop by keys.

Nothing is faked: console, agent, server, kill -9. The server has a port of its own and the state
folder is the test's, so that it meets no other server of this machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATIENCE_S = 120.0
PID = re.compile(r"\bpid (\d+)\b")
LOCAL = "{transport: local}"


class Tour:
    """One terminal of tmux with the console in it; what it shows is what is asserted.

    ``host`` are the keys of the one host, ``server`` more keys of the one server, ``state`` the
    state folder on the host.
    """

    def __init__(
        self, folder: Path, width: int, height: int, *,
        host: str = LOCAL, server: str = "", env: Mapping[str, str] | None = None,
        state: Path | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.state = state or folder / "state"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        hosts = folder / "hosts.yaml"
        hosts.write_text(
            f"hosts:\n  here: {host}\nservers:\n"
            f"  pair: {{host: here, engine: bundled, port: {self.port},\n"
            "         speculative: eagle3-3step, args: {no-parent-death-signal: true}"
            f"{server}}}\n"
        )
        self.env = {
            "SPECOPS_STATE_DIR": str(folder / "state"),
            "XDG_STATE_HOME": str(folder / "xdg"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONPATH": str(ROOT),
            **(env or {}),
        }
        program = f"{sys.executable} -c 'from console.cli import main; main()'"
        shell = (
            f"stty -g > {folder}/before; {program} console --hosts {hosts}; "
            f"echo left with $?; stty -g > {folder}/after; sleep 600"
        )
        size = ("-x", str(width), "-y", str(height))
        given = [word for name, value in self.env.items() for word in ("-e", f"{name}={value}")]
        self._tmux("new-session", "-d", *size, *given, shell)

    def _tmux(self, *words: str) -> str:
        argv = ["tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    @property
    def screen(self) -> str:
        """What the terminal shows."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Type, without waiting for what a key does: the next is for what it opens."""
        for key in keys:
            self._tmux("send-keys", key)

    def until(self, *texts: str) -> str:
        """Until the screen shows all of these; the screen."""
        return self.when(lambda shown: all(text in shown for text in texts), repr(texts))

    def any_of(self, *texts: str) -> str:
        """Until the screen shows one of these; the screen."""
        return self.when(lambda shown: any(text in shown for text in texts), f"one of {texts}")

    def when(self, true: Callable[[str], bool], what: str) -> str:
        """Until the screen is as wanted."""
        end = time.monotonic() + PATIENCE_S
        while not true(shown := self.screen):
            assert time.monotonic() < end, f"never came: {what}\n{shown}"
            time.sleep(0.1)
        return shown

    def close(self) -> None:
        """End the terminal, and the servers of this test that still run."""
        self._tmux("kill-server")
        for record in (self.state / "runs").glob("*"):
            for pid in _of_run(record.stem):
                os.kill(pid, signal.SIGKILL)

    # ---- the loop, by keys

    def choose(self) -> None:
        """Keep only the server's row: other tests' zombies may be on this machine."""
        self.until("1 host", "pair", "stopped", "L launch")
        self.press("/", "server:pair", "Enter")
        self.until("/server:pair")

    def launch(self) -> int:
        """Launch until it is ready; its pid."""
        self.press("L")
        self.until("launch pair on here", "eagle3-3step", "[ Cancel ]")
        self.until("preflight done")
        self.press("y")
        shown = self.until("launch pair: done", "3 watch")  # all steps and the end at once
        assert "✖" not in shown
        self.press("Escape", "l")  # at once: its log is known with its process
        self.until("FOLLOW")
        self.press("Escape")
        self.when(lambda text: "FOLLOW" not in text, "the log is left")
        return self.serving("eagle3-3step")

    def serving(self, preset: str, *, not_pid: int = 0) -> int:
        """Until a server answers with this preset, and is not the one with that pid."""
        shown = self.when(
            lambda text: preset in text and "health ok" in text
            and PID.findall(text) not in ([], [str(not_pid)]), f"served with {preset}"
        )  # fmt: skip
        return int(PID.findall(shown)[0])

    def complete(self) -> None:
        """Ask the server itself for a completion."""
        question = {"prompt": "NCCL", "max_tokens": 8, "ignore_eos": True}
        answer = self._ask("/v1/completions", question)
        assert answer["usage"]["completion_tokens"] == 8  # type: ignore[index]

    def steps(self) -> int:
        """With how many speculative steps the server serves, by its own word."""
        return int(str(self._ask("/server_info")["speculative_num_steps"]))

    def _ask(self, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, object] = json.load(answer)
        return found

    def log(self) -> None:
        """Open the log: with one key, also right after a launch."""
        self.press("l")
        self.until("FOLLOW", "lag 0 B", "dropped 0")

    def follows(self) -> None:
        """The log on the screen goes on with what the server does now."""
        before = self.screen.count("POST /v1/completions")
        self.complete()
        self.when(
            lambda text: text.count("POST /v1/completions") > before, "the log shows the request"
        )

    def relaunch(self, pid: int) -> int:
        """With another preset, chosen by keys; the new pid."""
        self.press("R")
        self.until("relaunch pair with eagle3-3step", "nothing changes against run", "[ Cancel ]")
        self.press("p")
        self.pick("eagle3-1step")
        self.until("relaunch pair with eagle3-1step", "--speculative-num-steps  3  →  1")
        self.until("preflight done")
        self.press("y")
        self.until("relaunch pair: done")
        self.press("Escape")
        return self.serving("eagle3-1step", not_pid=pid)

    def pick(self, preset: str) -> None:
        """Move to a preset of the list, wherever it stands there, and take it."""
        rows = self.until("with which presets?", f" {preset} ", "▸ ").splitlines()
        here = next(at for at, row in enumerate(rows) if "▸ " in row)
        there = next(at for at, row in enumerate(rows) if f" {preset} " in row)
        self.press(*(("j" if there > here else "k") for _ in range(abs(there - here))), "Enter")

    def whole_loop(self) -> int:
        """Launch, complete, follow, relaunch, complete, follow; the pid that serves at the end."""
        self.choose()
        pid = self.launch()
        assert self.steps() == 3
        self.complete()
        self.log()
        self.follows()
        self.press("e")
        self.until("no error in this log")
        self.press("Escape")
        pid = self.relaunch(pid)
        assert self.steps() == 1
        self.log()
        self.follows()
        self.press("Escape")
        self.until("/server:pair")
        return pid

    def stop(self) -> None:
        """End the server."""
        self.press("S")
        self.until("stop pair on here", "[ Cancel ]")
        self.press("y")
        self.until("stop pair: done")
        self.press("Escape")
        self.until("stopped", "/server:pair")

    def leave(self) -> None:
        """Quit; the terminal is as it was."""
        self.press("q")
        shown = self.until("left with 0")
        assert "stopped" not in shown, "the alternate screen was left"
        before, after = ((self.folder / name) for name in ("before", "after"))
        self.when(lambda _: after.is_file() and bool(after.read_text()), "the shell goes on")
        assert before.read_text() == after.read_text()


def _of_run(run_id: str) -> list[int]:
    """The processes that carry this run's id in their environment: this test started them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPECOPS_RUN_ID={run_id}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@contextmanager
def tour(folder: Path, width: int, height: int, **options: object) -> Iterator[Tour]:
    """A tour that is cleaned up after whatever happens."""
    opened = Tour(folder, width, height, **options)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        opened.close()
