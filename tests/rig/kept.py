"""The test's end of a keeper process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.rig.keeper import Spec
from tests.rig.rootfs import RigError

ROOT = Path(__file__).resolve().parents[2]


class Kept:
    """A program with its keeper. ``pid`` is the program's, ``leader`` its container's init."""

    def __init__(self, spec: Spec, *, pass_fds: Sequence[int] = ()) -> None:
        self.spec = spec
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.keeper", spec.dump()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        said = json.loads(line or b'{"error": "the keeper ended without a word"}')
        if "error" in said:
            tail = self.log()[-3000:].decode(errors="replace")
            self.close()
            raise RigError(f"{' '.join(spec.argv)}: {said['error']}\n{tail}")
        self.pid: int = said["pid"]
        self.leader: int | None = said["leader"]

    def log(self) -> bytes:
        """What the program wrote so far."""
        path = Path(self.spec.log)
        return path.read_bytes() if path.exists() else b""

    @property
    def running(self) -> bool:
        """Whether the program is still kept."""
        return self._keeper.poll() is None

    def wait(self, timeout_s: float) -> None:
        """Until the program ended by itself and its keeper cleaned up."""
        self._keeper.wait(timeout_s)

    def close(self) -> None:
        """Take the program down and wait until nothing of it is left."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(30)
        self._keeper.stdout.close()
