"""GPUs without ever waiting for the driver: NVML and nvidia-smi are asked in children.

A call into the driver can hang in the kernel, where not even SIGKILL reaches it. So there is one
question under way at most, an answer that is late is an error in the meantime, and the list of
processes never waits.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
import time
from typing import Any

from console.agent import child, machine, smi, wire
from console.agent.calls import Call, VerbError, Verbs

FIRST_WAIT_S = 1.5
"""Seconds the first snapshot waits: NVML's start takes that long without persistence mode."""
WAIT_S = 0.3
FRESH_S = 3.0
"""Seconds an answer stays valid when the next one is late."""
GIVE_UP_S = 30.0
"""Seconds without an answer after which the child is ended and, once gone, replaced."""
CRASHES = 3
"""Deaths of the NVML child after which nvidia-smi is asked instead."""
MAX_SOURCE = 8 << 20

NOTHING: dict[str, Any] = {"gpus": [], "gpu_source": None, "gpu_error": None}


class Gpus:
    """Asks for GPU data in the background and hands out the latest answer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = False
        self._busy_since: float | None = None
        self._answer: dict[str, Any] = dict(NOTHING)
        self._at: float | None = None
        self._source = b""
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._crashes = 0
        self._quiet_until = 0.0

    def provide(self, piece: bytes, *, last: bool) -> None:
        """NVIDIA's binding arrives in pieces."""
        with self._changed:
            if len(self._source) + len(piece) > MAX_SOURCE:
                raise VerbError("usage", "the binding is too long")
            self._source += piece
        if last:
            self.ask()

    def ask(self) -> None:
        """Start a question, unless one is under way; never waits."""
        with self._changed:
            if not self.present() or time.monotonic() < self._quiet_until:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            if self._busy_since is None:
                self._asked = True
                self._busy_since = time.monotonic()
                self._changed.notify_all()
            elif time.monotonic() - self._busy_since > GIVE_UP_S and self._child is not None:
                self._child.kill()  # only that: closing a pipe would wait for its reader

    def present(self) -> bool:
        """Whether there is anything to ask."""
        return machine.nvml_library() is not None or smi.path() is not None

    def answer(self) -> dict[str, Any]:
        """The latest answer; an error where it is too old to be true."""
        with self._changed:
            if time.monotonic() < self._quiet_until:
                return dict(NOTHING, gpu_error="paused so that a GPU can be reset")
            wait = FIRST_WAIT_S if self._at is None else WAIT_S
            late = self._busy_since is not None and time.monotonic() - self._busy_since > wait
            if self._busy_since is not None and not late:
                self._changed.wait_for(lambda: self._busy_since is None, wait)
            now = time.monotonic()
            if self._busy_since is None or (self._at is not None and now - self._at < FRESH_S):
                return dict(self._answer)
            source = self._answer["gpu_source"] or ("nvml" if self._source else None)
            text = "the NVIDIA driver has not answered for {:.0f} s".format(now - self._busy_since)
            return dict(NOTHING, gpu_source=source, gpu_error=text)

    def quiesce(self, seconds: float) -> None:
        """End the child, which holds the driver open, and ask nothing for a while (0: go on)."""
        with self._changed:
            self._quiet_until = time.monotonic() + seconds
            self._answer, self._at = dict(NOTHING), None  # what was so before need not be after
            if self._child is not None:
                self._child.kill()

    # ---- in the background thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked)
                self._asked = False
            try:
                found = self._ask_nvml() if self._uses_nvml() else smi.sample()
            except (OSError, ValueError, wire.WireError) as error:
                found = dict(NOTHING, gpu_error="{}".format(error))
            with self._changed:
                self._answer, self._at, self._busy_since = found, time.monotonic(), None
                self._changed.notify_all()

    def _uses_nvml(self) -> bool:
        enough = bool(self._source) and machine.nvml_library() is not None
        return enough and (self._crashes < CRASHES or smi.path() is None)

    def _ask_nvml(self) -> dict[str, Any]:
        """One question to the child; a dead or silent child is replaced by the next question."""
        if self._child is None or self._child.poll() is not None:
            if self._child is not None:
                child.end(self._child)
            self._child = child.spawn("nvml")
            assert self._child.stdin is not None
            library = (machine.nvml_library() or "").encode()
            head = "{} {}\n".format(len(self._source), len(library)).encode()
            self._child.stdin.write(head + self._source + library)
        process = self._child
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b"sample\n")
            process.stdin.flush()
            line = process.stdout.readline(4 << 20)
        except (OSError, ValueError):
            line = b""
        if not line:
            return self._crashed(process)
        self._crashes = 0
        value = wire.loads(line)
        if value.get("gpu_error") is not None:
            child.end(process)  # a fresh start is the only way out of most driver errors
        elif not value["gpus"] and not os.path.exists("/dev/nvidiactl"):
            return dict(NOTHING)
        if value.get("no_driver") and not os.path.exists("/dev/nvidiactl"):
            return dict(NOTHING)
        return {name: value[name] for name in NOTHING}

    def _crashed(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        said = b""
        try:
            if process.stderr is not None and process.poll() is not None:
                said = process.stderr.read(4096)
        except (OSError, ValueError):
            pass
        child.end(process)
        if time.monotonic() >= self._quiet_until:
            self._crashes += 1
        words = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        text = "the NVML child ended ({})".format(process.poll())
        return dict(NOTHING, gpu_source="nvml", gpu_error=": ".join([text, *words])[:300])


GPUS = Gpus()


def provide_nvml(call: Call) -> None:
    """The verb: NVIDIA's binding, in base64, in pieces."""
    GPUS.provide(base64.b64decode(call.text("data")), last=bool(call.args.get("last")))


def quiesce(call: Call) -> None:
    """The verb."""
    GPUS.quiesce(call.seconds("seconds", 60.0))


VERBS: Verbs = {"provide_nvml": provide_nvml, "quiesce": quiesce}
