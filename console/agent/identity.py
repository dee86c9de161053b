"""Who may never be signalled, and pinning a process so that no other can be meant."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
from typing import Any

from console.agent import machine, proc

SYS_PIDFD_SEND_SIGNAL = 424
SYS_PIDFD_OPEN = 434
"""The same numbers on all architectures (asm-generic/unistd.h)."""

NEVER = (
    "systemd", "(sd-", "init", "dbus-daemon", "dbus-broker", "sshd", "dropbear", "login",
    "agetty", "dockerd", "containerd", "runc", "crun", "crio", "conmon", "kubelet", "lxc",
    "lxd", "incusd", "pct", "pvedaemon", "pveproxy", "pvestatd", "pve-", "qemu", "kvm",
    "nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm", "nvidia-imex",
    "nvidia-cuda-mps", "nvidia-device-p", "slurmd", "slurmstepd", "slurmctld", "munged", "Xorg",
    "Xwayland", "gnome-shell", "gdm", "sddm", "tmux", "screen", "supervisord", "rsyslogd",
    "cron", "polkitd", "udevd", "chronyd", "NetworkManager",
)  # fmt: skip
"""Beginnings of names (cut at 15 characters by the kernel) that keep a machine running."""


def never_signal(pid: int, seen: proc.Stat, own_session: int, ancestors: set[int]) -> str | None:
    """Why a process must not be signalled, or ``None``. Unknown is a reason."""
    if pid <= 1:
        return "pid {} is never signalled".format(pid)
    if seen.kernel_thread or seen.ppid == 2 or pid == 2:
        return "it is a kernel thread"
    if pid in ancestors:
        return "it is the agent or one of its ancestors"
    if seen.sid == own_session:
        return "it belongs to the agent's own session"
    names = [seen.comm.decode("utf-8", "replace")]
    try:
        names.append(os.path.basename(os.readlink("/proc/{}/exe".format(pid))))
    except FileNotFoundError:
        pass  # a finished leader has none
    except OSError:
        pass  # another user's; the kernel will refuse the signal
    for name in names:
        if name.startswith(NEVER):
            return "{} keeps the machine running".format(name[:40])
    return None


def ancestors() -> set[int]:
    """The agent and all above it."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        seen = proc.visible(pid)
        pid = seen.ppid if seen else 0
    return found


def pidfd_open(pid: int) -> int:
    """A descriptor that means this process and no later one; raises ``OSError``."""
    native = getattr(os, "pidfd_open", None)  # Python 3.9
    if native is not None:
        return int(native(pid))
    return _syscall(SYS_PIDFD_OPEN, ctypes.c_int(pid), ctypes.c_uint(0))


def pidfd_send(descriptor: int, number: int) -> None:
    """Signal the process behind a pidfd; raises ``OSError``."""
    native = getattr(signal, "pidfd_send_signal", None)  # Python 3.9
    if native is not None:
        native(descriptor, number)
        return
    _syscall(
        SYS_PIDFD_SEND_SIGNAL,
        ctypes.c_int(descriptor),
        ctypes.c_int(number),
        ctypes.c_void_p(None),
        ctypes.c_uint(0),
    )


def _syscall(number: int, *args: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def same(pid: int, start_ticks: int, boot: str) -> proc.Stat | str | None:
    """The process if it is still the one meant, ``None`` if gone, else what has changed."""
    if boot != machine.boot_id():
        return "the host has started anew since"
    seen = proc.stat(pid)
    if seen is None:
        return None
    if seen.start_ticks != start_ticks:
        return "pid {} is another process now".format(pid)
    return seen


def all_threads_gone(pid: int, start_ticks: int) -> bool:
    """Whether nothing of the process runs any more: a finished leader may have live threads.

    A process whose threads are all finished but which its parent has not collected counts as gone.
    """
    seen = proc.stat(pid)
    if seen is None or seen.start_ticks != start_ticks:
        return True
    if seen.state not in "ZX":
        return False
    return all(state in "ZX" for state in proc.task_states(pid).values())


def finished(descriptor: int) -> bool:
    """Whether the process behind a pidfd has ended with all its threads."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


GONE = (errno.ESRCH, errno.EINVAL)
"""``pidfd_open`` says EINVAL for a process that has just been killed on some kernels."""
