"""A plain OpenSSH server on 127.0.0.1, with its own configuration, keys and log."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tests.rig.keeper import Spec
from tests.rig.kept import Kept
from tests.rig.keys import Key, make_key
from tests.rig.rootfs import RigError

START_LIMIT_S = 10.0


def sshd_path() -> str | None:
    """OpenSSH's server; it wants to be started by its absolute path."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


def missing() -> str | None:
    """Why no sshd can be started here, or None."""
    if sshd_path() is None:
        return "test needs OpenSSH's sshd installed"
    return None if shutil.which("ssh-keygen") else "test needs ssh-keygen installed"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class LoopbackSshd:
    """A running server.

    ``address`` 127.0.0.1, ``port``, ``user`` (whoever runs the tests), ``key`` (accepted),
    ``host_key``, ``known_hosts`` (a file that knows it), ``config`` (its sshd_config).
    ``noise`` is what a login script would print before every command: bytes, as they come.
    ``config_lines`` come first in sshd_config, where the first mention of a word wins.
    """

    address = "127.0.0.1"

    def __init__(
        self, folder: Path, *, noise: bytes = b"", config_lines: Sequence[str] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.user = getpass.getuser()
        self.key = make_key(folder / "login_key")
        self.host_key = make_key(folder / "host_key")
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "sshd_config"
        self.authorized_keys = folder / "authorized_keys"
        self.authorized_keys.write_text(self.key.public + "\n")
        self._lines = (*config_lines, *self._noise(noise))
        self.port = 0
        self._kept: Kept | None = None
        self.start()

    def _noise(self, noise: bytes) -> tuple[str, ...]:
        if not noise:
            return ()
        before = self._folder / "noise"
        before.write_bytes(noise)
        wrapper = self._folder / "noisy_shell"
        wrapper.write_text(
            f"#!/bin/sh\ncat {shlex.quote(str(before))}\n"
            'exec /bin/sh -c "${SSH_ORIGINAL_COMMAND:-exec /bin/sh}"\n'
        )
        wrapper.chmod(0o755)
        return (f"ForceCommand {wrapper}",)

    def _write_config(self) -> None:
        fixed = (
            f"ListenAddress {self.address}:{self.port}",
            f"HostKey {self.host_key.path}",
            f"AuthorizedKeysFile {self.authorized_keys}",
            "PidFile none",
            "StrictModes no",  # the test folder's parents may be writable by a group
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 200",
            "LogLevel VERBOSE",
            "Subsystem sftp internal-sftp",
        )
        self.config.write_text("\n".join((*self._lines, *fixed)) + "\n")

    def start(self) -> None:
        """Start, on the port it had before if there was one.

        Raises:
            RigError: it did not greet; the text holds its log.
        """
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # privilege separation's empty root
        self.port = self.port or free_port()
        self._write_config()
        self.known_hosts.write_text(self.host_key.known_hosts_line(self.address, self.port))
        program = sshd_path()
        assert program is not None
        spec = Spec(
            argv=(program, "-D", "-e", "-f", str(self.config)),
            cgroups=(),
            log=str(self._folder / "log"),
            notify=None,
            cleanup=(),
            remove=(),
        )
        self._kept = Kept(spec)
        self._await_greeting()

    def _await_greeting(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self.running:
            try:
                with socket.create_connection((self.address, self.port), timeout=2) as link:
                    if link.recv(4) == b"SSH-":
                        return
            except OSError:
                time.sleep(0.02)
        log = self.log().decode(errors="replace")
        self.stop()
        raise RigError(f"sshd on port {self.port} did not start:\n{log}")

    @property
    def running(self) -> bool:
        """Whether the listener is there."""
        return self._kept is not None and self._kept.running

    def pid(self) -> int:
        """The listener's pid."""
        assert self._kept is not None
        return self._kept.pid

    def log(self) -> bytes:
        """What it logged so far."""
        path = self._folder / "log"
        return path.read_bytes() if path.exists() else b""

    def new_host_key(self) -> Key:
        """Another host key from the next start on; known_hosts keeps the old one until then."""
        self.host_key = make_key(self._folder / "host_key")
        return self.host_key

    def stop(self) -> None:
        """End the listener; sessions that are open go on, as on any host."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()
