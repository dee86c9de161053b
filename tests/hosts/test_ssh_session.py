"""Sessions over a real sshd on 127.0.0.1."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.errors import AgentError, AuthError, ConfigError, HostError
from console.model import Host
from console.remote import LogSource
from console.session import Headless, Session, connect
from tests.proxy import Proxy
from tests.rig.sshd import LoopbackSshd, free_port

pytestmark = pytest.mark.hosts
SshdFactory = Callable[..., LoopbackSshd]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No key, agent or known_hosts of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def host_of(server: LoopbackSshd, **more: object) -> Host:
    host = Host(
        "box",
        address=server.address,
        port=server.port,
        user=server.user,
        python=sys.executable,
        identity_files=(str(server.key.path),),
        known_hosts=str(server.known_hosts),
    )
    return replace(host, **more)  # type: ignore[arg-type]


async def open_to(host: Host, *others: Host) -> Session:
    return await connect(host, hosts={item.name: item for item in others}, prompts=Headless())


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_a_session(loopback_sshd: LoopbackSshd, transport: str) -> None:
    session = await open_to(host_of(loopback_sshd, transport=transport))
    assert session.hello.uid == os.getuid()
    assert (await session.run(["printf", "%s", "a 'b' $(c)\n"])).stdout == b"a 'b' $(c)\n"
    snapshot = await session.snapshot()
    parents = {item.id.pid: item.ppid for item in snapshot.processes}
    pid, above = session.hello.pid, set()
    while pid in parents:
        above.add(pid)
        pid = parents[pid]
    assert above <= snapshot.protected, "its sshd is protected, too"
    await session.close()
    agent = Path(f"/proc/{session.hello.pid}")
    for _ in range(100):
        if not agent.exists():
            break
        await asyncio.sleep(0.05)
    assert not agent.exists(), "nothing is left running"


NOISE = b"Welcome!\x1b]0;pwn\x07\n" + b"\xff\xfe half a line, 64 kB of it would be too much\n" * 900


async def test_login_noise_is_passed_over(sshd_factory: SshdFactory) -> None:
    session = await open_to(host_of(sshd_factory(noise=NOISE + b"no newline at the end")))
    assert (await session.run(["echo", "x"])).stdout == b"x\n"
    await session.close()


async def test_too_much_noise_is_an_error(sshd_factory: SshdFactory) -> None:
    server = sshd_factory(noise=b"x" * 70_000)
    with pytest.raises(AgentError, match="more than 64 kB before a command"):
        await open_to(host_of(server))


async def test_unknown_host_key(loopback_sshd: LoopbackSshd, tmp_path: Path) -> None:
    host = host_of(loopback_sshd, known_hosts=str(tmp_path / "kh"))
    with pytest.raises(AuthError, match="unknown host key ssh-ed25519 SHA256:"):
        await open_to(host)
    asked: list[tuple[str, str, str]] = []

    class Trusting(Headless):
        async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
            asked.append((host, key_type, fingerprint))
            return True

    session = await connect(host, hosts={}, prompts=Trusting())
    await session.close()
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "kh")], capture_output=True, text=True, check=True
    )
    assert asked == [("box", "ssh-ed25519", shown.stdout.split()[1])]
    assert (tmp_path / "kh").stat().st_mode & 0o777 == 0o600
    session = await open_to(host)  # nobody is asked again
    await session.close()


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_changed_host_key_is_a_hard_stop(sshd_factory: SshdFactory, transport: str) -> None:
    server = sshd_factory()
    before = server.known_hosts.read_bytes()
    server.new_host_key()
    server.restart()
    server.known_hosts.write_bytes(before)

    class Trusting(Headless):
        async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
            raise AssertionError("a changed key must not be offered for trust")

    with pytest.raises(AuthError, match="the host key has changed"):
        await connect(host_of(server, transport=transport), hosts={}, prompts=Trusting())


async def test_an_ssh_config_cannot_switch_the_check_off(
    loopback_sshd: LoopbackSshd, own_home: Path
) -> None:
    (own_home / ".ssh").mkdir()
    (own_home / ".ssh" / "config").write_text(
        "Host *\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n"
    )
    with pytest.raises(AuthError, match="unknown host key"):
        await open_to(host_of(loopback_sshd, known_hosts=None))


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_refused_login(loopback_sshd: LoopbackSshd, transport: str, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    host = host_of(loopback_sshd, transport=transport, identity_files=(str(key),))
    with pytest.raises(AuthError, match="refused") as caught:
        await open_to(host)
    assert caught.value.exit_code == 3


async def test_encrypted_key(loopback_sshd: LoopbackSshd, tmp_path: Path) -> None:
    key = tmp_path / "locked"
    key.write_bytes(Path(loopback_sshd.key.path).read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-qp", "-P", "", "-N", "open sesame", "-f", str(key)], check=True)
    host = host_of(loopback_sshd, identity_files=(str(key),))
    with pytest.raises(AuthError):
        await open_to(host)
    questions: list[str] = []

    class Answering(Headless):
        async def secret(self, host: str, what: str, prompt: str) -> str | None:
            questions.append(what)
            return "open sesame"

    for _ in range(2):  # asked once for both
        session = await connect(host, hosts={}, prompts=Answering())
        await session.close()
    assert questions == ["passphrase"]


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_nobody_listens(loopback_sshd: LoopbackSshd, transport: str) -> None:
    with pytest.raises(HostError, match="refused") as caught:
        await open_to(host_of(loopback_sshd, port=free_port(), transport=transport))
    assert not isinstance(caught.value, AuthError | AgentError)


async def test_no_such_name(loopback_sshd: LoopbackSshd) -> None:
    with pytest.raises(HostError, match="no address"):
        await open_to(host_of(loopback_sshd, address="no-such-host.invalid"))


@pytest.mark.parametrize("python", ["/no/such/python3", "no-such-python3"])
@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_no_python(loopback_sshd: LoopbackSshd, python: str, transport: str) -> None:
    session = await open_to(host_of(loopback_sshd, python=python, transport=transport))
    assert "no python" in session.degraded
    snapshot = await session.snapshot()
    mine = next(item for item in snapshot.processes if item.id.pid == os.getpid())
    assert mine.ppid == os.getppid()
    assert mine.id.pid in snapshot.protected, "nothing can be killed without an identity"
    with pytest.raises(AgentError, match="no python on this host") as caught:
        await session.run(["true"])
    assert "python:" in caught.value.hint
    await session.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [("address", "-oProxyCommand=id"), ("address", "a;id"), ("address", "x\ny"),
     ("address", "a" * 300), ("user", "root -l"), ("user", "-x"), ("port", 0), ("port", 65536),
     ("python", "python3; id")],
)  # fmt: skip
@pytest.mark.parametrize("transport", ["ssh", "openssh"])
async def test_hostile_names(
    loopback_sshd: LoopbackSshd, field: str, value: object, transport: str
) -> None:
    with pytest.raises(ConfigError):
        await open_to(host_of(loopback_sshd, transport=transport, **{field: value}))


async def test_a_shared_jump_host(sshd_factory: SshdFactory) -> None:
    """Four hosts behind one: a single connection to it, closed with its last user."""
    jump, inner = sshd_factory(), sshd_factory()
    door = host_of(jump, name="door")
    hosts = [host_of(inner, name=f"in{number}", jump="door") for number in range(4)]
    sessions = await asyncio.gather(*(open_to(host, door) for host in hosts))
    for session in sessions:
        assert (await session.run(["echo", session.host.name])).stdout.strip().decode() in {
            host.name for host in hosts
        }
    assert jump.log().count(b"Accepted publickey") == 1
    for session in sessions:
        await session.close()
    again = await open_to(hosts[0], door)
    await again.close()
    assert jump.log().count(b"Accepted publickey") == 2


@pytest.fixture
async def proxy(loopback_sshd: LoopbackSshd) -> AsyncIterator[Proxy]:
    async with Proxy(loopback_sshd.address, loopback_sshd.port) as running:
        yield running


def through(proxy: Proxy, server: LoopbackSshd, tmp_path: Path) -> Host:
    known = tmp_path / "kh"
    known.write_text(server.host_key.known_hosts_line(server.address, proxy.port))
    return host_of(server, port=proxy.port, known_hosts=str(known))


async def test_a_dead_link_is_noticed_and_freezes_nobody(
    loopback_sshd: LoopbackSshd, proxy: Proxy, tmp_path: Path
) -> None:
    dead = await open_to(through(proxy, loopback_sshd, tmp_path))
    alive = await open_to(host_of(loopback_sshd))
    proxy.half_open()
    waiting = asyncio.create_task(dead.snapshot())
    answered = 0
    while not waiting.done():
        await asyncio.wait_for(alive.run(["true"]), 5)
        answered += 1
    with pytest.raises(HostError, match="box"):
        await waiting
    assert answered > 10
    await alive.close()
    await dead.close()


async def test_a_reset_link_is_noticed_at_once(
    loopback_sshd: LoopbackSshd, proxy: Proxy, tmp_path: Path
) -> None:
    session = await open_to(through(proxy, loopback_sshd, tmp_path))
    waiting = asyncio.create_task(session.run(["sleep", "60"], timeout_s=60))
    await asyncio.sleep(0.3)
    proxy.reset_all()
    with pytest.raises(HostError):
        await asyncio.wait_for(waiting, 10)
    await session.close()


async def test_a_flooded_slow_link_does_not_delay_a_request(
    loopback_sshd: LoopbackSshd, proxy: Proxy, tmp_path: Path
) -> None:
    """1 Mbit/s, a log written at ten times that, and requests answered before the backlog."""
    session = await open_to(through(proxy, loopback_sshd, tmp_path))
    log = tmp_path / "log"
    log.write_bytes(b"x" * 1023 + b"\n")
    proxy.both(bytes_per_s=125_000)
    received, running = 0, True

    async def read() -> None:
        nonlocal received
        async for chunk in session.tail(LogSource(path=str(log))):
            received += len(chunk.data)

    async def write() -> None:
        with log.open("ab") as target:
            while running:
                target.write(b"y" * 125_000 + b"\n")
                target.flush()
                await asyncio.sleep(0.1)

    reader, writer = asyncio.create_task(read()), asyncio.create_task(write())
    await asyncio.sleep(3)
    delays = []
    for _ in range(20):
        begun = time.monotonic()
        await session.stat(["/"])
        delays.append(time.monotonic() - begun)
        await asyncio.sleep(0.05)
    running = False
    await writer
    assert received > 100_000, "the log flows all the while"
    backlog = log.stat().st_size - received
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    proxy.both(bytes_per_s=None)
    await session.close()
    # Behind the backlog the answer would take this long; the bound is a tenth of it.
    assert max(delays) < backlog / 125_000 / 10, (max(delays), backlog)
