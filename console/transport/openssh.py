"""SSH by the system's ``ssh``: for what asyncssh cannot do (GSSAPI, hardware keys, odd configs)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from console.errors import ConfigError
from console.model import Host
from console.transport import names
from console.transport.pipes import PipeChannel


class OpensshTransport:
    """Starts ``ssh`` for each channel; the user's ssh_config holds, its questions are not asked."""

    def __init__(self, host: Host, hosts: Mapping[str, Host]) -> None:
        names.check(host)
        self._host = host
        self._words = ["ssh", "-T", "-a", "-x", *options(host)]
        if host.jump is not None:
            jump = hosts.get(host.jump)
            if jump is None:
                raise ConfigError(f"jump: there is no host {host.jump}", place=host.name)
            names.check(jump)
            self._words += ["-J", f"{jump.user}@{jump.address}:{jump.port}"]
        self._words += ["--", host.address]

    async def open(self, argv: Sequence[str]) -> PipeChannel:
        """Start a command on the host."""
        command = "exec " + " ".join(shlex.quote(word) for word in argv)
        return await PipeChannel.start(self._host.name, [*self._words, command])

    async def close(self) -> None:
        """Nothing is held between channels."""


def options(host: Host) -> list[str]:
    """The options that specops insists on: no questions, host keys checked, a dead link noticed."""
    words = [
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        f"-oConnectTimeout={max(1, round(host.connect_timeout))}",
        "-oServerAliveInterval=5",
        "-oServerAliveCountMax=3",
        "-oForwardAgent=no",
        f"-l{host.user}",
    ]
    if host.port != 22:
        words.append(f"-p{host.port}")
    if host.known_hosts:
        words.append(f"-oUserKnownHostsFile={host.known_hosts}")
    words += [f"-i{path}" for path in host.identity_files]
    return words
