"""The trouble maker as tests use it, on this machine or in a container.

with make("orphan", 3, ranks=8, mib=4, run_id="r{}") as trouble:
    for specimen in trouble.specimens:
        specimen.pids["rank0"]
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rig.inside import Inside
from tests.rig.kept import ROOT

ON_HOST = "/opt/trouble.pyz"


class TroubleError(Exception):
    """A specimen could not be made; the text is the trouble maker's."""


@dataclass(frozen=True)
class Specimen:
    """One thing in trouble. Pids are those of the place where it was made.

    ``pids`` by role (``launcher``, ``rank0``…, ``process``, ``writer``), ``starts`` their start
    ticks (None for one that was already gone); ``more`` holds what only some kinds say
    (``dead_pid``, ``mapped``, ``unlinked``, ``uid``, ``answered``, ``namespace``).
    """

    kind: str
    run_id: str | None
    mib: int
    pids: Mapping[str, int]
    starts: Mapping[str, int | None]
    ports: Sequence[int] = ()
    paths: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The workers' pids in order."""
        return tuple(self.pids[name] for name in self.pids if name.startswith("rank"))

    @staticmethod
    def read(line: bytes) -> Specimen:
        """From the trouble maker's line."""
        raw = json.loads(line)
        own = ("kind", "run_id", "mib", "pids", "starts", "ports", "paths")
        return Specimen(
            **{name: raw[name] for name in own if name in raw},
            more={name: value for name, value in raw.items() if name not in own},
        )


def archive() -> bytes:
    """The trouble maker as one file for any Python 3.8 or later."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pack:
        pack.writestr("__main__.py", "from tests.trouble.__main__ import main\n\nmain()\n")
        pack.writestr("tests/__init__.py", "")
        for source in sorted(Path(__file__).parent.glob("*.py")):
            if source.name != "api.py":
                pack.write(source, f"tests/trouble/{source.name}")
    return buffer.getvalue()


class Trouble:
    """Specimens that exist until ``stop`` or the end of the ``with`` block."""

    def __init__(self, process: subprocess.Popen[bytes], count: int) -> None:
        self._process = process
        self.specimens: tuple[Specimen, ...] = ()
        assert process.stdout is not None
        for _ in range(count):
            line = process.stdout.readline()
            if not line:
                raise TroubleError(self._last_words())
            self.specimens += (Specimen.read(line),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The maker's own pid (of the program that entered the container, for a host)."""
        return self._process.pid

    def stop(self) -> None:
        """End everything that was made; returns when it is gone."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(60)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        said = self._process.communicate(timeout=60)[1]
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return said.decode(errors="replace").strip()


def make(
    kind: str,
    n: int = 1,
    *,
    ranks: int = 1,
    mib: int = 1,
    run_id: str = "",
    port: int = 0,
    age_s: float = 0,
    host: Inside | None = None,
) -> Trouble:
    """Make ``n`` specimens of ``kind`` here, or in ``host`` with its own python3.

    Each has ``ranks`` workers that hold ``mib`` MiB each; ``{}`` in ``run_id`` becomes the
    specimen's number; files look ``age_s`` seconds old.

    Raises:
        TroubleError: it could not be made.
    """
    words = [
        kind, "-n", str(n), "--ranks", str(ranks), "--mib", str(mib), "--run-id", run_id,
        "--port", str(port), "--age", str(age_s),
    ]  # fmt: skip
    if host is not None:
        host.write(ON_HOST, archive())
        return Trouble(host.spawn(["python3", ON_HOST, *words]), n)
    pipe = subprocess.PIPE
    argv = [sys.executable, "-m", "tests.trouble", *words]
    return Trouble(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT), n)
