"""A Debian machine with its own systemd, journal, sshd and pids, booted in a container."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rig import net, rootfs
from tests.rig.inside import Inside
from tests.rig.keeper import Spec, clean
from tests.rig.kept import ROOT, Kept
from tests.rig.keys import Key, make_key
from tests.rig.rootfs import RigError

TOOLS = ("systemd-nspawn", "debootstrap", "ip", "nsenter", "unshare", "ssh-keygen")
SSH_LIMIT_S = 30.0


def missing() -> str | None:
    """Why hosts cannot be booted on this machine, or None."""
    if sys.platform != "linux":
        return "test hosts need Linux"
    if os.geteuid() != 0:
        return "test hosts need root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"test hosts need {', '.join(lacking)} installed" if lacking else None


def cgroup_roots() -> tuple[Path, ...]:
    """Where the cgroup trees that track processes are mounted (v2, or v1 systemd's, or both)."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(where))
    return tuple(found)


def python_binds() -> tuple[Path, ...]:
    """The folders that hold the Python running the tests, its packages, and the source tree."""
    base = Path(sys.base_prefix)
    own = () if base in (Path("/usr"), Path("/usr/local")) else (base,)
    return (*own, Path(sys.prefix), ROOT) if Path(sys.prefix) != base else (*own, ROOT)


class NspawnHost(Inside):
    """A running test host.

    ``name`` and ``address`` (192.0.2.x), ``port`` 22, ``key`` (accepted for root, ``admin`` and
    ``other``), ``known_hosts`` (a file that knows this host), ``password`` of the two users.
    ``python`` runs the tests' own interpreter inside, where it was bound.
    """

    port = 22
    password = rootfs.PASSWORD

    def __init__(self, lease: net.Lease, kept: Kept, key: Key, known_hosts: Path) -> None:
        assert kept.leader is not None
        super().__init__(kept.leader)
        self._lease = lease
        self._kept = kept
        self.name = lease.name
        self.address = lease.address
        self.key = key
        self.known_hosts = known_hosts
        self.python = sys.executable

    @property
    def running(self) -> bool:
        """Whether the machine is on."""
        return self._kept.running

    def pid(self) -> int:
        """The pid, on this machine, of the host's init."""
        return self.leader

    def ssh_argv(self, *command: str, user: str = "root") -> list[str]:
        """How the system's ssh reaches this host: strictly checked, no user config, no agent."""
        return [
            "ssh", "-F", "none", "-i", str(self.key.path), "-o", "IdentitiesOnly=yes",
            "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "GlobalKnownHostsFile=none",
            "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
            f"{user}@{self.address}", "--", *command,
        ]  # fmt: skip

    def link_down(self) -> None:
        """Pull the cable: packets vanish in both directions."""
        net.down(self._lease)

    def link_up(self) -> None:
        """Put the cable back."""
        net.up(self._lease)

    def restart_sshd(self) -> None:
        """Restart the listener; as on Debian, sessions that are open go on."""
        self.run(["systemctl", "restart", "ssh"])
        self.await_ssh()

    def await_ssh(self) -> None:
        """Wait until sshd greets.

        Raises:
            RigError: it did not within 30 s.
        """
        _await_greeting(self.address, self.port)

    def stop(self, *, graceful: bool = False) -> None:
        """Off: as by the power cord, or with ``graceful`` as by ``poweroff``."""
        if graceful and self.running:
            self.run(["systemctl", "poweroff"], check=False)
            try:
                self._kept.wait(30)
            except subprocess.TimeoutExpired as error:
                raise RigError(f"{self.name} did not power off in 30 s") from error
        self._kept.close()

    def reset(self) -> None:
        """Back to how it was after boot, for the next test (see ``Inside.reset_processes``)."""
        self.link_up()
        self.reset_processes()


def _await_greeting(address: str, port: int) -> None:
    deadline = time.monotonic() + SSH_LIMIT_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, port), timeout=1) as link:
                link.settimeout(5)
                if link.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise RigError(f"no sshd at {address}:{port} after {SSH_LIMIT_S:.0f} s")


def _seed(upper: Path, hostname: str, login: Key, host_key: Key) -> None:
    """Write what is this host's own into its layer of the file system, before it boots."""
    for home, uid in (("root", 0), ("home/admin", 1000), ("home/other", 1001)):
        # Only folders the root file system has, with its owners and modes, may appear here.
        folder = upper / home / ".ssh"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "authorized_keys").write_text(login.public + "\n")
        for path in (folder.parent, folder, folder / "authorized_keys"):
            os.chown(path, uid, uid)
        folder.parent.chmod(0o700)
    etc = upper / "etc"
    (etc / "ssh").mkdir(parents=True)
    (etc / "hostname").write_text(hostname + "\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n")
    shutil.copy2(host_key.path, etc / "ssh" / "ssh_host_ed25519_key")
    shutil.copy2(host_key.public_path, etc / "ssh" / "ssh_host_ed25519_key.pub")


def _nspawn_argv(
    lease: net.Lease, root: Path, hostname: str, binds: Sequence[Path], env: Mapping[str, str]
) -> tuple[str, ...]:
    """Mount the layers in a mount namespace of their own, so that they end with the host; boot."""
    merged = lease.folder / "root"
    layers = f"lowerdir={root},upperdir={lease.folder / 'upper'},workdir={lease.folder / 'work'}"
    script = 'mount -t overlay -o "$1" overlay "$2" && shift 2 && exec "$@"'
    return (
        "unshare", "--mount", "--propagation", "private",
        "sh", "-c", script, "sh", layers, str(merged),
        # cgroup v2 inside, whatever this machine mounts, as on the hosts that specops is for.
        "env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1",
        "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
        f"--directory={merged}", f"--machine={lease.name}", f"--hostname={hostname}",
        f"--network-namespace-path=/run/netns/{lease.name}", "--resolv-conf=off",
        "--timezone=off", "--link-journal=no", "--console=pipe", "--notify-ready=yes",
        *(f"--bind-ro={path}" for path in binds),
        *(f"--setenv={key}={value}" for key, value in env.items()),
        "systemd.unit=multi-user.target", "systemd.show_status=no",
    )  # fmt: skip


def boot(
    folder: Path,
    *,
    hostname: str = "",
    bind_python: bool = False,
    binds: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> NspawnHost:
    """Boot a fresh host; about a second. ``folder`` gets its keys and known_hosts.

    ``bind_python`` mounts the tests' interpreter, its packages and the source tree read-only at the
    same paths; ``binds`` mounts more. ``env`` is the environment of the host's init.

    Raises:
        RigError: it did not come up; the text holds the end of its console.
    """
    root = rootfs.ensure()
    lease = net.lease()
    cgroups = tuple(str(where / lease.name) for where in cgroup_roots())
    spec = Spec(
        argv=_nspawn_argv(
            lease, root, hostname or lease.name,
            (*(python_binds() if bind_python else ()), *binds), env or {},
        ),
        cgroups=cgroups,
        log=str(folder / f"{lease.name}.console"),
        notify=str(lease.folder / "notify"),
        cleanup=lease.undo(),
        remove=(str(lease.folder),),
    )  # fmt: skip
    try:
        clean(spec)
        for name in ("upper", "work", "root"):
            (lease.folder / name).mkdir(parents=True)
        key = make_key(folder / f"{lease.name}.key")
        host_key = make_key(lease.folder / "host_key")
        _seed(lease.folder / "upper", hostname or lease.name, key, host_key)
        known_hosts = folder / f"{lease.name}.known_hosts"
        known_hosts.write_text(host_key.known_hosts_line(lease.address))
        net.join(lease)
        kept = Kept(spec, pass_fds=(lease.lock.fileno(),))
    finally:
        lease.lock.close()
    host = NspawnHost(lease, kept, key, known_hosts)
    try:
        host.await_ssh()
        host.remember()
    except RigError:
        host.stop()
        raise
    return host
