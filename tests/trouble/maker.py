"""Makes specimens: one launcher process each, awaited until it is what it should be."""

# No pathlib: os.path and open suit forked processes and Python 3.8.
# ruff: noqa: PTH100, PTH101, PTH102, PTH110, PTH113, PTH118, PTH120, PTH123
from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

from tests.trouble import sweeper
from tests.trouble.kinds import ENVIRON, KINDS, frozen_writer
from tests.trouble.process import LIFE_S, Order, Report, state, until

ROOM = "x" * 400  # argument bytes for the titles to come
MARK = "--launch"
FROZEN_S = 180.0
"""Nothing stays frozen for longer, should the sweeper fail too."""


def _self_argv() -> list[str]:
    """How this program is run again: the archive, or the module in its source tree."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return (
        [sys.executable, here] if os.path.isfile(here) else [sys.executable, "-m", "tests.trouble"]
    )


def launch(argv: list[str]) -> None:
    """In the launcher process: ``KIND FD ORDER ROOM``."""
    signal.alarm(LIFE_S)
    kind, fd = argv[0], int(argv[1])
    if kind == "watchdog":
        sweeper.thaw_later(argv[2], FROZEN_S)
    elif kind == "stuck-frozen":
        frozen_writer(Report(fd), Order(*json.loads(argv[2])))
    else:
        KINDS[kind](Report(fd), Order(*json.loads(argv[2])))


class Maker:
    """All specimens of one run, and the sweeper that ends them.

    ``token`` marks every process; ``folder`` holds their files.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.folder = tempfile.mkdtemp(prefix="specops-trouble-")
        os.chmod(self.folder, 0o755)  # a specimen may belong to another user
        self._sweeper, self._orders = sweeper.start(self.token)
        self._tell("remove", self.folder)

    def _tell(self, *order: Any) -> None:
        os.write(self._orders, (json.dumps(order) + "\n").encode())

    def make(self, kind: str, order: Order, run_id: str) -> dict[str, Any]:
        """One specimen, as it describes itself.

        Raises:
            SystemExit: it did not become what it should be; the text says what was missing.
        """
        reader, writer = os.pipe()
        env = {**os.environ, **ENVIRON.get(kind, {}), sweeper.TOKEN: self.token}
        env.pop("SPECOPS_RUN_ID", None)
        if run_id:
            env["SPECOPS_RUN_ID"] = run_id
        folder = os.path.join(self.folder, secrets.token_hex(4))
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        asked = json.dumps(order._replace(folder=folder))
        child = subprocess.Popen(
            [*_self_argv(), MARK, kind, str(writer), asked, ROOM],
            env=env, pass_fds=(writer,), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        with os.fdopen(reader) as pipe:
            line = pipe.readline()
        if not line:
            raise SystemExit(
                f"trouble: {kind} ended with status {child.wait()} before it was ready"
            )
        said: dict[str, Any] = json.loads(line)
        self._remember(said)
        self._settle(said, child)
        return {"kind": kind, "run_id": run_id or None, "mib": order.mib, **said}

    def _remember(self, said: dict[str, Any]) -> None:
        for name, pid in said["pids"].items():
            if said["starts"][name] is not None:
                self._tell("kill", pid, said["starts"][name])
        for path in (*said.get("paths", ()), *said.get("mapped", ())):
            self._tell("remove", path)

    @staticmethod
    def _settle(said: dict[str, Any], child: subprocess.Popen[bytes]) -> None:
        """Wait until a launcher that dies is reaped and each process is in its state."""
        if said.pop("dies", False):
            child.wait(20)
        for pid, letter in said.pop("await_state", {}).items():
            until(lambda p=pid, s=letter: state(int(p)) == s, f"state {letter} of {pid}")  # type: ignore[misc]
        gone = said.pop("await_gone", None)
        if gone is not None:
            until(lambda: not os.path.exists(gone), f"the end of {gone}")

    def frozen(self, mib: int, run_id: str) -> dict[str, Any]:
        """A writer stuck for good in state D: its file system is frozen (needs root and loop).

        Thawed by the sweeper, whatever becomes of us, and by a watchdog after FROZEN_S.
        """
        if os.getuid() != 0 or shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None:
            raise SystemExit("trouble: stuck-frozen needs root and mkfs.ext4")
        room = os.path.join(self.folder, secrets.token_hex(4))
        image, folder = room + ".image", room + ".mount"
        with open(image, "wb") as file:
            file.truncate(max(mib, 8) << 20)
        os.mkdir(folder)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        self._tell("unmount", folder)
        self._tell("thaw", folder)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        reader, writer = os.pipe()
        env = {**os.environ, sweeper.TOKEN: self.token}
        env.pop("SPECOPS_RUN_ID", None)
        subprocess.Popen(
            [*_self_argv(), MARK, "watchdog", "-1", folder], env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        subprocess.run(["fsfreeze", "--freeze", folder], check=True)
        if run_id:
            env["SPECOPS_RUN_ID"] = run_id
        order = json.dumps(Order(0, mib, 0, 0, folder))
        child = subprocess.Popen(
            [*_self_argv(), MARK, "stuck-frozen", str(writer), order, ROOM], env=env,
            pass_fds=(writer,), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said: dict[str, Any] = json.loads(pipe.readline())
        self._remember(said)
        until(lambda: state(child.pid) == "D", f"state D of {child.pid}")
        return {"kind": "stuck-frozen", "run_id": run_id or None, "mib": mib, **said}

    def close(self) -> None:
        """End everything and wait for it."""
        os.close(self._orders)
        os.waitpid(self._sweeper, 0)
