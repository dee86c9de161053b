"""Which host keys are trusted: decided here, and a changed key is never accepted.

An ssh_config has no say in it: it can switch the check off without a word.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import asyncssh
from platformdirs import user_config_path

from console.errors import AuthError, ConfigError
from console.model import Host

SYSTEM = Path("/etc/ssh/ssh_known_hosts")


def own_file() -> Path:
    """Where specops itself keeps the keys that an operator has trusted."""
    return user_config_path("specops") / "known_hosts"


def files(host: Host) -> list[Path]:
    """The files asked: the host's own if it names one, else the user's, the system's and ours."""
    if host.known_hosts is not None:
        return [Path(host.known_hosts).expanduser()]
    return [Path("~/.ssh/known_hosts").expanduser(), SYSTEM, own_file()]


def known(host: Host) -> asyncssh.SSHKnownHosts:
    """All entries of those files; raises ``ConfigError`` for a damaged one."""
    text = []
    for path in files(host):
        try:
            text.append(path.read_text(encoding="utf-8", errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(f"{error.strerror}", place=str(path)) from None
    try:
        return asyncssh.import_known_hosts("\n".join(text) + "\n")
    except ValueError as error:
        raise ConfigError(f"known_hosts: {error}", place=host.name) from None


def entry_name(host: Host) -> str:
    """The host as known_hosts writes it."""
    return host.address if host.port == 22 else f"[{host.address}]:{host.port}"


def fingerprint(key: asyncssh.SSHKey) -> str:
    """SHA256:…, as ssh-keygen prints it."""
    return str(key.get_fingerprint("sha256"))


def entries(
    trusted: asyncssh.SSHKnownHosts, name: str, address: str, port: int
) -> Sequence[asyncssh.SSHKey]:
    """The keys that are known for a host."""
    found = asyncssh.match_known_hosts(trusted, name, address, port)
    return [*found[0], *found[1]]


def refused(host: Host, key: asyncssh.SSHKey, *, changed: bool) -> AuthError:
    """The error for a key that is not trusted."""
    shown = f"{key.get_algorithm()} {fingerprint(key)}"
    own = f" -f {shlex.quote(str(host.known_hosts))}" if host.known_hosts else ""
    if changed:
        return AuthError(
            f"the host key has changed: it is now {shown}",
            place=host.name,
            hint="somebody may be in between; if the host was reinstalled, remove its old key "
            f"from known_hosts (ssh-keygen{own} -R {shlex.quote(entry_name(host))})",
        )
    return AuthError(
        f"unknown host key {shown}",
        place=host.name,
        hint="connect once from the console, or add it to known_hosts",
    )


def remember(host: Host, key: asyncssh.SSHKey) -> None:
    """Append a trusted key to our own file, 0600, never through a link; raises ``ConfigError``."""
    path = Path(host.known_hosts).expanduser() if host.known_hosts else own_file()
    public = key.export_public_key("openssh").decode().split()
    line = f"{entry_name(host)} {public[0]} {public[1]}\n"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o600), "ab") as target:  # noqa: PTH123 - by descriptor
            fcntl.flock(target, fcntl.LOCK_EX)
            target.write(line.encode())
    except OSError as error:
        raise ConfigError(f"the key cannot be kept: {error.strerror}", place=str(path)) from None
