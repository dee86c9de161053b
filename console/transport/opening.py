"""Chooses the transport of a host and starts its agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.agent import wire
from console.errors import AuthError, ConfigError, HostError, SpecopsError
from console.model import Host
from console.transport import bundle
from console.transport.base import Transport
from console.transport.client import Client
from console.transport.prompts import Prompts

_sudo_passwords: dict[str, str] = {}


async def open_transport(host: Host, hosts: Mapping[str, Host], prompts: Prompts) -> Transport:
    """A connection by the host's own kind; raises ``HostError``."""
    if host.transport == "local":
        from console.transport.local import LocalTransport  # noqa: PLC0415 - Linux only

        return LocalTransport(host.name)
    if host.transport == "openssh":
        from console.transport.openssh import OpensshTransport  # noqa: PLC0415

        return OpensshTransport(host, hosts)
    if host.transport == "ssh":
        from console.transport.ssh import connect  # noqa: PLC0415 - asyncssh is heavy

        return await connect(host, hosts, prompts)
    raise ConfigError(f"transport {host.transport} has no connection", place=host.name)


async def start_agent(
    transport: Transport, host: Host, prompts: Prompts, *, read_only: bool
) -> tuple[Client, dict[str, Any]]:
    """Start the agent on an open transport, as root by sudo where the host asks for it."""
    if not host.sudo:
        return await _start(transport, host, (), b"", read_only=read_only)
    known = _sudo_passwords.get(host.name)
    if known is None:
        try:
            return await _start(transport, host, ("sudo", "-n"), b"", read_only=read_only)
        except HostError as error:
            if "password" not in error.message:
                raise
        known = await prompts.secret(host.name, "sudo", f"sudo password for {host.user}")
        if known is None:
            raise AuthError(
                "sudo needs a password and nobody was there to give it", place=host.name
            )
    # -k: never skip the question, or the password would reach the agent's input
    words = ("sudo", "-k", "-S", "-p", "")
    try:
        started = await _start(transport, host, words, known.encode() + b"\n", read_only=read_only)
    except HostError as error:
        _sudo_passwords.pop(host.name, None)
        if "password" in error.message or "try again" in error.message:
            raise AuthError("sudo refused the password", place=host.name) from None
        raise
    _sudo_passwords[host.name] = known
    return started


async def _start(
    transport: Transport, host: Host, sudo: tuple[str, ...], first: bytes, *, read_only: bool
) -> tuple[Client, dict[str, Any]]:
    mark = bundle.sentinel()
    argv = bundle.wrapped(host, bundle.start_argv(host, mark), sudo)
    channel = await transport.open(argv)
    client = Client(channel, host.name)
    try:
        hello = await client.start(mark, bundle.start_message(read_only=read_only), first)
    except (SpecopsError, wire.WireError, OSError):
        await client.close()
        raise
    return client, hello
