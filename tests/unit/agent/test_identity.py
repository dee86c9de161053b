"""Pinning and signalling a process, with and without Python's own calls for it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from console.agent import identity, machine, proc


@pytest.mark.parametrize("native", [True, False])
def test_signal_through_a_pidfd(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    if not native:  # as on Python 3.8
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")
    with subprocess.Popen(["sleep", "60"]) as child:
        descriptor = identity.pidfd_open(child.pid)
        assert not identity.finished(descriptor)
        identity.pidfd_send(descriptor, signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
        assert identity.finished(descriptor)
        with pytest.raises(ProcessLookupError):
            identity.pidfd_send(descriptor, signal.SIGKILL)
        os.close(descriptor)


REST = b" S %d 18 19 0 -1 %d 1 2 3 4 100 23 0 0 20 0 5 0 12345 1000 77"
NOBODY = 1 << 22  # no pid is that large: nothing to look at but what is given


@pytest.mark.parametrize(
    ("pid", "comm", "ppid", "flags", "reason"),
    [
        (1, b"x", 0, 0, "never signalled"),
        (0, b"x", 0, 0, "never signalled"),
        (-1, b"x", 0, 0, "never signalled"),
        (NOBODY, b"kworker", 2, 0, "kernel thread"),
        (NOBODY, b"nfsd", 0, 0x00200000, "kernel thread"),
        (NOBODY, b"sshd", 1, 0, "keeps the machine running"),
        (NOBODY, b"systemd-logind", 1, 0, "keeps the machine running"),
        (NOBODY, b"nv-fabricmanage", 1, 0, "keeps the machine running"),
        (NOBODY, b"tmux: server", 1, 0, "keeps the machine running"),
        (NOBODY - 1, b"python3", 1, 0, "ancestors"),
        (NOBODY, b"python3", 1, 0, None),
        (NOBODY, b"sglang::schedul", 1, 0, None),
    ],
)
def test_never_signal(pid: int, comm: bytes, ppid: int, flags: int, reason: str | None) -> None:
    seen = proc.parse_stat(b"1 (" + comm + b")" + REST % (ppid, flags))
    why = identity.never_signal(pid, seen, own_session=20, ancestors={NOBODY - 1})
    if reason is None:
        assert why is None
    else:
        assert why is not None
        assert reason in why


def test_own_session_is_never_signalled() -> None:
    seen = proc.parse_stat(b"1 (python3)" + REST % (1, 0))
    assert "session" in (identity.never_signal(NOBODY, seen, 19, set()) or "")


def test_identity() -> None:
    me = proc.stat(os.getpid())
    assert me is not None
    boot = machine.boot_id()
    assert isinstance(identity.same(os.getpid(), me.start_ticks, boot), proc.Stat)
    assert "another process" in str(identity.same(os.getpid(), me.start_ticks + 1, boot))
    assert "started anew" in str(identity.same(os.getpid(), me.start_ticks, "x"))
    assert identity.same(NOBODY, 1, boot) is None
