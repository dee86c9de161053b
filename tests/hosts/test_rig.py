"""The rig itself: hosts are hosts, and nothing of them stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import asyncssh
import pytest

from tests.nvml import install
from tests.rig import net, nspawn, pct, rootfs
from tests.rig.inside import start_ticks
from tests.rig.nspawn import NspawnHost, cgroup_roots
from tests.rig.plugin import HostFactory, SshdFactory, require
from tests.rig.rootfs import CACHE, RigError
from tests.rig.sshd import LoopbackSshd

pytestmark = pytest.mark.hosts


def ssh(host: NspawnHost, command: str, user: str = "root") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        host.ssh_argv(command, user=user), capture_output=True, timeout=20, check=False
    )


def loopback(server: LoopbackSshd, *command: str) -> subprocess.CompletedProcess[bytes]:
    argv = [
        "ssh", "-F", "none", "-i", str(server.key.path), "-o", "IdentitiesOnly=yes",
        "-o", f"UserKnownHostsFile={server.known_hosts}", "-o", "StrictHostKeyChecking=yes",
        "-o", "BatchMode=yes", "-p", str(server.port), f"{server.user}@{server.address}", *command,
    ]  # fmt: skip
    return subprocess.run(argv, capture_output=True, timeout=20, check=False)


def traces(number: int) -> list[str]:
    """Everything a host of this number leaves on this machine while it lives."""
    name = f"specops-{number}"
    found = [str(root / name) for root in cgroup_roots() if (root / name).exists()]
    if name in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout:
        found.append(f"netns {name}")
    if Path(f"/sys/class/net/specops{number}").exists():
        found.append(f"link specops{number}")
    if (CACHE / "hosts" / str(number)).exists():
        found.append(f"folder {number}")
    mounts = Path("/proc/self/mounts").read_text()
    return [*found, *(line for line in mounts.splitlines() if f"/hosts/{number}/" in line)]


class TestHost:
    def test_is_a_debian_with_systemd_of_its_own(self, nspawn_host: NspawnHost) -> None:
        assert ssh(nspawn_host, "cat /proc/1/comm").stdout == b"systemd\n"
        assert nspawn_host.run(["systemctl", "is-system-running"]).stdout == b"running\n"
        assert ssh(nspawn_host, "stat -fc %T /sys/fs/cgroup").stdout == b"cgroup2fs\n"
        inner = nspawn_host.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
        assert inner != Path("/proc/sys/kernel/random/boot_id").read_bytes()

    def test_units_run_in_their_cgroups_and_write_the_journal(
        self, nspawn_host: NspawnHost
    ) -> None:
        nspawn_host.run(["systemd-run", "--wait", "--quiet", "--unit=hello", "sh", "-c",
                         "cat /proc/self/cgroup"])  # fmt: skip
        journal = nspawn_host.run(["journalctl", "--unit=hello", "--output=cat"]).stdout
        assert b"0::/system.slice/hello.service" in journal

    def test_logins(self, nspawn_host: NspawnHost) -> None:
        for user, uid in (("root", 0), ("admin", 1000), ("other", 1001)):
            assert ssh(nspawn_host, "id -u", user).stdout == f"{uid}\n".encode()
        assert ssh(nspawn_host, "sudo -n id -u", "admin").stdout == b"0\n"
        refused = ssh(nspawn_host, "sudo -n id -u", "other")
        assert (refused.returncode, refused.stdout) == (1, b"")

    def test_reset_ends_processes_units_and_files_but_not_sshd(
        self, nspawn_host: NspawnHost
    ) -> None:
        nspawn_host.write(
            "/etc/systemd/system/again.service",
            "[Service]\nExecStart=/bin/sleep 600\nRestart=always\nRestartSec=0\n",
        )
        nspawn_host.run(["systemctl", "daemon-reload"])
        nspawn_host.run(["systemctl", "start", "again"])
        assert ssh(nspawn_host, "setsid -f sleep 601 </dev/null >/dev/null 2>&1").returncode == 0
        nspawn_host.write("/dev/shm/psm_left", b"x")
        nspawn_host.restart_sshd()
        nspawn_host.reset()
        left = nspawn_host.run(["ps", "-eo", "args"]).stdout
        assert b"sleep 60" not in left
        assert nspawn_host.run(["systemctl", "is-active", "again"], check=False).returncode != 0
        assert not nspawn_host.path("/dev/shm/psm_left").exists()
        assert ssh(nspawn_host, "true").returncode == 0

    def test_the_cable_can_be_pulled_and_put_back(self, nspawn_host: NspawnHost) -> None:
        nspawn_host.link_down()
        with pytest.raises(TimeoutError):
            socket.create_connection((nspawn_host.address, 22), timeout=0.5)
        nspawn_host.link_up()
        assert ssh(nspawn_host, "true").returncode == 0

    def test_pids_map_between_inside_and_outside(self, nspawn_host: NspawnHost) -> None:
        with nspawn_host.spawn(["sh", "-c", "echo $$; read -r line"]) as child:
            assert child.stdout is not None
            inner = int(child.stdout.readline())
            outer = nspawn_host.outer_pid(inner)
            assert Path(f"/proc/{outer}/comm").read_text() == "sh\n"
            child.communicate(b"\n", timeout=10)
        with pytest.raises(RigError):
            nspawn_host.outer_pid(inner)

    def test_pid_max_is_lowered_for_the_host_alone(self, nspawn_host: NspawnHost) -> None:
        before = Path("/proc/sys/kernel/pid_max").read_text()
        inside = nspawn_host.run(["cat", "/proc/sys/kernel/pid_max"]).stdout
        if not nspawn_host.set_pid_max(1000):
            pytest.skip("this kernel has one pid_max for all namespaces (6.14 changed it)")
        assert nspawn_host.run(["cat", "/proc/sys/kernel/pid_max"]).stdout == b"1000\n"
        assert Path("/proc/sys/kernel/pid_max").read_text() == before
        nspawn_host.set_pid_max(int(inside))

    def test_a_failing_command_says_so(self, nspawn_host: NspawnHost) -> None:
        with pytest.raises(RigError, match=r"status 3: why"):
            nspawn_host.run(["sh", "-c", "echo why >&2; exit 3"])


class TestLife:
    def test_stop_leaves_nothing_and_hosts_reach_each_other(
        self, host_factory: HostFactory
    ) -> None:
        first, second = host_factory(hostname="jump"), host_factory()
        assert first.run(["hostname"]).stdout == b"jump\n"
        greeting = (
            f"import socket; print(socket.create_connection(('{second.address}', 22)).recv(4))"
        )
        assert first.run(["python3", "-c", greeting]).stdout == b"b'SSH-'\n"
        number = int(first.address.rsplit(".", 1)[1])
        assert traces(number)
        leader, began = first.pid(), start_ticks(first.pid())
        first.stop()
        assert traces(number) == []
        assert start_ticks(leader) != began
        second.stop(graceful=True)
        assert not second.running

    def test_a_killed_test_run_leaves_nothing(self, tmp_path: Path) -> None:
        program = (
            "import sys, time; from pathlib import Path; from tests.rig import nspawn;"
            "h = nspawn.boot(Path(sys.argv[1])); print(h.address, flush=True); time.sleep(60)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
        ) as run:
            assert run.stdout is not None
            number = int(run.stdout.readline().rsplit(b".", 1)[1])
            assert traces(number)
            run.kill()
        held = net.lease_of(number)  # free only when the keeper has cleaned up and gone
        assert traces(number) == []
        held.lock.close()

    def test_the_tests_python_runs_inside(self, python_host: NspawnHost) -> None:
        code = "import asyncssh, console; print(console.__file__)"
        where = python_host.run(
            [python_host.python, "-c", code], env={"PYTHONPATH": str(Path.cwd())}
        ).stdout
        assert where.strip().endswith(b"console/__init__.py")
        with pytest.raises(RigError, match="Read-only"):
            python_host.run(["touch", str(Path(__file__).parent / "never")])


class TestPct:
    def test_exec_enters_the_container(self, nspawn_host: NspawnHost, tmp_path: Path) -> None:
        command = str(pct.install(tmp_path, {129: nspawn_host.pid(), 130: None}))

        def call(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [command, *argv], input=stdin, capture_output=True, timeout=20, check=False,
                env={**os.environ, "FROM_CALLER": "yes"},
            )  # fmt: skip

        assert call("exec", "129", "--", "hostname").stdout.decode().strip() == nspawn_host.name
        assert call("exec", "129", "cat", stdin=b"\x00\xff\n").stdout == b"\x00\xff\n"
        seen = call("exec", "129", "--", "sh", "-c", "echo $container $FROM_CALLER; exit 42")
        assert (seen.returncode, seen.stdout) == (42, b"lxc yes\n")
        assert call("status", "129").stdout == b"status: running\n"
        assert call("status", "130").stdout == b"status: stopped\n"
        stopped = call("exec", "130", "--", "true")
        assert stopped.returncode == 1
        assert b"Failed to get init pid" in stopped.stderr
        absent = call("exec", "999", "--", "true")
        assert absent.returncode == 2
        assert b"lxc/999.conf' does not exist" in absent.stderr
        for wrong, text in (
            (("exec", "129"), b"missing command"),
            (("exec",), b"400 not enough arguments"),
            (("exec", "ct129", "true"), b"valid VM ID"),
            (("explode",), b"unknown command 'pct explode'"),
            ((), b"no command specified"),
        ):
            refused = call(*wrong)
            assert (refused.returncode, text in refused.stderr) == (255, True), refused.stderr

    def test_stdin_is_not_held_back(self, nspawn_host: NspawnHost, tmp_path: Path) -> None:
        command = str(pct.install(tmp_path, {129: nspawn_host.pid()}))
        with subprocess.Popen(
            [command, "exec", "129", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as cat:
            assert cat.stdin is not None
            assert cat.stdout is not None
            for line in (b"one\n", b"two\n"):
                cat.stdin.write(line)
                cat.stdin.flush()
                assert cat.stdout.readline() == line
            cat.stdin.close()
            assert cat.wait(10) == 0


class TestBuild:
    def test_a_build_that_fails_is_an_error_with_its_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require(nspawn.missing())
        monkeypatch.setattr(rootfs, "CACHE", tmp_path)
        monkeypatch.setattr(rootfs, "MIRROR", "http://127.0.0.1:1/debian")
        with pytest.raises(RigError, match=r"(?s)root file system.*Retrieving InRelease"):
            rootfs.ensure()
        assert not (tmp_path / f"rootfs-{rootfs.fingerprint()}").exists()

    def test_a_build_that_takes_too_long_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require(nspawn.missing())
        monkeypatch.setattr(rootfs, "CACHE", tmp_path)
        monkeypatch.setattr(rootfs, "LIMIT_S", 0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            monkeypatch.setattr(rootfs, "MIRROR", f"http://127.0.0.1:{port}/debian")
            with pytest.raises(RigError, match="timed out"):
                rootfs.ensure()


class TestPasswords:
    @pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
    async def test_accounts_take_their_password(self, nspawn_host: NspawnHost, method: str) -> None:
        async with asyncssh.connect(
            nspawn_host.address,
            username="admin",
            password=nspawn_host.password,
            preferred_auth=method,
            client_keys=None,
            known_hosts=str(nspawn_host.known_hosts),
            config=None,
        ) as link:
            assert (await link.run("id -un")).stdout == "admin\n"


class TestNvmlInside:
    def test_the_stub_follows_processes_of_the_host(self, nspawn_host: NspawnHost) -> None:
        stub = install(nspawn_host, gpus=2)
        smi = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        with nspawn_host.spawn(["sh", "-c", "echo $$; read -r line"]) as child:
            assert child.stdout is not None
            inner = int(child.stdout.readline())
            stub.set_process(1, inner, 321, start=nspawn_host.seen(inner).start_ticks)
            assert nspawn_host.run(smi).stdout == b"0\n321\n"
            child.communicate(b"\n", timeout=10)
        assert nspawn_host.run(smi).stdout == b"0\n0\n"
        library = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
        assert nspawn_host.run(["python3", "-c", library]).stdout == b"0\n"


class TestLoopbackSshd:
    def test_login_and_restart(self, sshd_factory: SshdFactory) -> None:
        server = sshd_factory()
        assert loopback(server, "echo", "hello").stdout == b"hello\n"
        port = server.port
        server.stop()
        assert loopback(server, "true").returncode == 255
        server.start()
        assert server.port == port
        assert loopback(server, "exit 7").returncode == 7

    def test_a_changed_host_key_is_seen(self, sshd_factory: SshdFactory) -> None:
        server = sshd_factory()
        old = server.known_hosts.read_text()
        server.stop()
        server.new_host_key()
        server.start()
        server.known_hosts.write_text(old)
        refused = loopback(server, "true")
        assert refused.returncode == 255
        assert b"IDENTIFICATION HAS CHANGED" in refused.stderr

    def test_noise_comes_before_the_command(self, sshd_factory: SshdFactory) -> None:
        noise = b"\x1b]0;x\x07Welcome\xff\n"
        server = sshd_factory(noise=noise)
        assert loopback(server, "cat").stdout == noise
        assert loopback(server, "echo", "'a  b'").stdout == noise + b"a  b\n"

    def test_configuration_lines_win(self, sshd_factory: SshdFactory) -> None:
        server = sshd_factory(config_lines=["ForceCommand echo forced"])
        assert loopback(server, "true").stdout == b"forced\n"

    def test_one_that_cannot_start_shows_its_log(self, sshd_factory: SshdFactory) -> None:
        with pytest.raises(RigError, match="Bad configuration option: Nonsense"):
            sshd_factory(config_lines=["Nonsense yes"])
