"""The root file system the test hosts share: built once, kept under its recipe's hash.

A build that fails or takes longer than ``LIMIT_S`` raises ``RigError``; callers let it fail the
test, because a rig that silently disappears proves nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CACHE = Path("/var/cache/specops-tests")
SUITE = "bookworm"
MIRROR = os.environ.get("SPECOPS_DEBIAN_MIRROR", "http://deb.debian.org/debian")
LIMIT_S = 600
PACKAGES = (
    "dbus",
    "iproute2",
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "python3-minimal",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# ``admin`` may sudo without a password, ``other`` may not; both log in with ``PASSWORD``.
PASSWORD = "correct horse"  # of throw-away hosts without a route to anywhere
_SETUP = f"""
set -eu
useradd --create-home --uid 1000 --shell /bin/bash admin
useradd --create-home --uid 1001 --shell /bin/bash other
printf '%s\\n' 'admin:{PASSWORD}' 'other:{PASSWORD}' | chpasswd
printf 'admin ALL=(ALL) NOPASSWD: ALL\\n' > /etc/sudoers.d/admin
chmod 0440 /etc/sudoers.d/admin
printf 'KbdInteractiveAuthentication yes\\nMaxStartups 200\\n' > /etc/ssh/sshd_config.d/rig.conf
rm -f /etc/ssh/ssh_host_*
# Half a second of every boot, and nobody looks at a console.
systemctl mask --quiet console-getty.service getty.target apt-daily.timer \\
    apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer \\
    e2scrub_reap.service systemd-timesyncd.service
mkdir -p /var/log/journal
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
"""


class RigError(Exception):
    """The rig could not do what a test asked of it; the text says what and shows the log's end."""


def fingerprint() -> str:
    """The hash of all that decides what is in the root file system."""
    recipe = "\n".join((SUITE, *PACKAGES, _SETUP))
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _run(argv: list[str], log: Path, deadline: float, stdin: str = "") -> None:
    with log.open("ab") as out:
        try:
            subprocess.run(
                argv,
                input=stdin.encode(),
                stdout=out,
                stderr=subprocess.STDOUT,
                check=True,
                timeout=max(1.0, deadline - time.monotonic()),
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            tail = log.read_bytes()[-2000:].decode(errors="replace")
            raise RigError(f"building the test hosts' root file system: {error}\n{tail}") from error


def _build(target: Path) -> None:
    partial = target.with_suffix(".partial")
    log = target.with_suffix(".log")
    shutil.rmtree(partial, ignore_errors=True)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    deadline = began + LIMIT_S
    include = "--include=" + ",".join(PACKAGES)
    _run(["debootstrap", "--variant=minbase", include, SUITE, str(partial), MIRROR], log, deadline)
    _run(["chroot", str(partial), "/bin/sh"], log, deadline, _SETUP)
    partial.rename(target)
    # Past pytest's capture, or a minute's silence would look like a hang.
    print(
        f"test hosts: root file system {target} built in {time.monotonic() - began:.0f} s",
        file=sys.__stderr__,
        flush=True,
    )


def ensure() -> Path:
    """The folder of the root file system, built now if it is not there.

    Raises:
        RigError: the build failed or exceeded ``LIMIT_S`` seconds.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / f"rootfs-{fingerprint()}"
    with (CACHE / "build.lock").open("w") as lock:  # parallel test workers: one builds
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(target)
    return target
