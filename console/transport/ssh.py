"""SSH by asyncssh: one connection per host, jump hosts shared. Bytes only, host keys enforced."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import asyncssh

from console.errors import AuthError, ConfigError, HostError
from console.model import Host
from console.text import clean
from console.transport import hostkeys, names
from console.transport.base import STDERR_KEPT, lost
from console.transport.login import Login
from console.transport.prompts import Prompts

KEEPALIVE_S = 5
KEEPALIVES = 3
LOGIN_S = 30.0
"""Seconds a login may take without a question being open; sshd's own bound is 120."""
AT_ONCE = 8
"""Connections being opened to one sshd: beyond 10 it drops them at random (MaxStartups)."""
QUIET = ("publickey", "keyboard-interactive", "password")
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com",
           "aes256-ctr", "aes192-ctr", "aes128-ctr")  # fmt: skip


class _Shared:
    """What connections of one event loop have in common: jump hosts and the gates to each sshd."""

    def __init__(self) -> None:
        self.gates: dict[tuple[str, int], asyncio.Semaphore] = {}
        self.jumps: dict[str, tuple[SshTransport, int]] = {}
        self.lock: dict[str, asyncio.Lock] = {}

    def gate(self, host: Host) -> asyncio.Semaphore:
        """The gate to a host's sshd."""
        return self.gates.setdefault((host.address, host.port), asyncio.Semaphore(AT_ONCE))


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


class SshChannel:
    """One command over a connection."""

    def __init__(self, host: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._host = host
        self._process = process
        self._kept = bytearray()
        self._errors = asyncio.create_task(self._keep_errors())

    async def _keep_errors(self) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(65536):
                self._kept += data
                del self._kept[:-STDERR_KEPT]

    async def read(self, limit: int) -> bytes:
        """Some output."""
        try:
            data = await self._process.stdout.read(limit)
        except (asyncssh.Error, OSError) as error:
            raise lost(self._host, _words(error)) from None
        if not data:
            await asyncio.wait([self._errors], timeout=2.0)
        return data

    def write(self, data: bytes) -> None:
        """Queue input; on a lost connection the reader reports it."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)

    async def drain(self) -> None:
        """Wait for room in the channel's window."""
        try:
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise lost(self._host, _words(error)) from None

    async def close(self) -> None:
        """Close the channel: the agent leaves at the end of its input."""
        self._errors.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._errors
        with contextlib.suppress(asyncssh.Error, OSError):
            self._process.stdin.write_eof()
        self._process.close()

    def errors(self) -> bytes:
        """The last of standard error."""
        return bytes(self._kept)


class SshTransport:
    """A connection and what it holds of its jump host."""

    def __init__(
        self, host: Host, connection: asyncssh.SSHClientConnection, jump: str | None
    ) -> None:
        self.host = host
        self.connection = connection
        self._jump = jump

    async def open(self, argv: Sequence[str]) -> SshChannel:
        """Start a command; its words are quoted so that sh, csh and fish all see the same."""
        command = "exec " + " ".join(shlex.quote(word) for word in argv)
        try:
            async with asyncio.timeout(LOGIN_S):
                process = await self.connection.create_process(
                    command, encoding=None, request_pty=False
                )
        except asyncssh.ChannelOpenError as error:
            raise HostError(
                f"no further channel: {_words(error)}",
                place=self.host.name,
                hint="MaxSessions in its sshd_config",
            ) from None
        except TimeoutError:
            raise lost(self.host.name, "sshd did not start a command in 30 s") from None
        except (asyncssh.Error, OSError) as error:
            raise lost(self.host.name, _words(error)) from None
        return SshChannel(self.host.name, process)

    async def close(self) -> None:
        """Close the connection, and the jump host's when nobody else uses it."""
        self.connection.close()
        try:
            async with asyncio.timeout(2.0):
                await self.connection.wait_closed()
        except (TimeoutError, asyncssh.Error, OSError):
            self.connection.abort()
        if self._jump is not None:
            await _release(self._jump)


async def connect(
    host: Host, hosts: Mapping[str, Host], prompts: Prompts, via: tuple[str, ...] = ()
) -> SshTransport:
    """Connect and log in; raises ``HostError`` or ``AuthError`` in one clear line."""
    names.check(host)
    jump: SshTransport | None = None
    if host.jump is not None:
        jump = await _take_jump(host, hosts, prompts, via)
    try:
        connection = await _log_in(host, prompts, jump)
    except BaseException:
        if host.jump is not None:
            await _release(host.jump)
        raise
    return SshTransport(host, connection, host.jump)


async def _take_jump(
    host: Host, hosts: Mapping[str, Host], prompts: Prompts, via: tuple[str, ...]
) -> SshTransport:
    """The shared connection to a jump host, opened by its first user."""
    name = host.jump
    assert name is not None
    if name not in hosts:
        raise ConfigError(f"jump: there is no host {name}", place=host.name)
    if name in (host.name, *via):
        raise ConfigError("jump: the hosts go round in a circle", place=host.name)
    shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
    async with shared.lock.setdefault(name, asyncio.Lock()):
        known = shared.jumps.get(name)
        if known is None or known[0].connection.is_closed():
            fresh = await connect(hosts[name], hosts, prompts, (*via, host.name))
            known = (fresh, known[1] if known else 0)
        shared.jumps[name] = (known[0], known[1] + 1)
        return known[0]


async def _release(name: str) -> None:
    shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
    async with shared.lock.setdefault(name, asyncio.Lock()):
        transport, users = shared.jumps.get(name, (None, 0))
        if transport is None:
            return
        if users > 1:
            shared.jumps[name] = (transport, users - 1)
            return
        del shared.jumps[name]
        await transport.close()


async def _log_in(
    host: Host, prompts: Prompts, jump: SshTransport | None
) -> asyncssh.SSHClientConnection:
    """One login; an unknown key is shown to the operator, kept if trusted, then tried again."""
    shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
    for _ in range(2):
        login = Login(host, prompts)
        trusted = hostkeys.known(host)
        try:
            async with shared.gate(host):
                return await asyncssh.connect(**_options(host, login, trusted, jump))
        except asyncssh.HostKeyNotVerifiable as error:
            if login.key is None:
                raise AuthError(f"host key: {_words(error)}", place=host.name) from None
            changed = bool(hostkeys.entries(trusted, host.address, "", host.port))
            key = login.key
            shown = hostkeys.fingerprint(key)
            if changed or not await prompts.trust(host.name, key.get_algorithm(), shown):
                raise hostkeys.refused(host, key, changed=changed) from None
            hostkeys.remember(host, key)
        except (asyncssh.Error, OSError, ValueError) as error:
            raise _explain(host, error, login) from None
    raise AuthError("the host shows a different key each time", place=host.name)


def _options(
    host: Host, login: Login, trusted: asyncssh.SSHKnownHosts, jump: SshTransport | None
) -> dict[str, Any]:
    config = [path for path in (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config"))
              if path.is_file()]  # fmt: skip
    options: dict[str, Any] = {
        "host": host.address,
        "username": host.user,
        "client_factory": lambda: login,
        "known_hosts": trusted,
        "config": [str(path) for path in config],
        "connect_timeout": host.connect_timeout,
        "login_timeout": LOGIN_S if jump is None else 2 * LOGIN_S,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVES,
        "encryption_algs": CIPHERS,
        "passphrase": login.passphrase,
        "agent_forwarding": False,
        "preferred_auth": QUIET,
    }
    if host.port != 22:
        options["port"] = host.port
    if host.identity_files:
        options["client_keys"] = [str(Path(path).expanduser()) for path in host.identity_files]
    if jump is not None:
        options["tunnel"] = jump.connection
    return options


def _is_number(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _words(error: BaseException) -> str:
    text = getattr(error, "reason", "") or str(error) or type(error).__name__
    return clean(text, limit=200)


def _explain(host: Host, error: Exception, login: Login) -> HostError:
    """The one line an operator sees."""
    where, target = host.name, f"{host.address}:{host.port}"
    if isinstance(error, asyncssh.PermissionDenied):
        missing = " and nobody was there to answer" if login.asked else ""
        return AuthError(
            f"{host.user}@{host.address} was refused{missing}",
            place=where,
            hint="check user, keys and agent (ssh-add -l)",
        )
    if isinstance(error, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        return AuthError(f"a key file cannot be used: {_words(error)}", place=where)
    if isinstance(error, asyncssh.KeyExchangeFailed) and "host key" in _words(error).lower():
        return AuthError(
            "the host offers none of the kinds of key that are known for it",
            place=where,
            hint="its key may have changed; compare with ssh-keyscan before removing the old one",
        )
    if isinstance(error, asyncssh.ConfigParseError):
        return HostError(f"ssh_config: {_words(error)}", place=where)
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return HostError(f"{host.address} has no address (DNS)", place=where)
    if isinstance(error, ConnectionRefusedError):
        return HostError(f"{target} refused the connection", place=where, hint="does sshd run?")
    if isinstance(error, TimeoutError):
        # The bound covers the name's lookup too, and a name server that is down looks the same.
        hint = "" if _is_number(host.address) else "or its name has no address yet (DNS)"
        text = f"{target} did not answer in {host.connect_timeout:g} s"
        return HostError(text, place=where, hint=hint)
    if isinstance(error, asyncssh.ChannelOpenError):
        return HostError(
            f"{target} cannot be reached from the jump host: {_words(error)}", place=where
        )
    if isinstance(error, OSError) and error.filename:  # a file of this machine, not the link
        return HostError(
            f"{error.filename} cannot be read: {error.strerror}",
            place=where,
            hint="correct identity_files of the host, or make the key",
        )
    if isinstance(error, OSError):
        return HostError(f"{target}: {error.strerror or _words(error)}", place=where)
    return HostError(f"{target}: {_words(error)}", place=where)
