"""What only several nodes together can show: that they meet, and that they are of one kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from console.errors import ActionFailed, Refused
from console.model import Finding, Severity
from console.remote import Remote
from console.text import clean

REACH_S = 4.0
"""A node that has not reached another by then is behind something that drops what it sends."""

_SCRIPT = """
import json, socket, sys
host, port, wait = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
try:
    socket.create_connection((host, port), wait).close()
    said = "taken"
except ConnectionRefusedError:
    said = "free"
except socket.gaierror as error:
    said = "name: " + str(error.strerror)
except OSError as error:
    said = "lost: " + str(error.strerror or "no answer")
print(json.dumps(said))
"""


async def meeting_findings(
    remotes: Sequence[Remote], address: str, versions: Mapping[str, str | None]
) -> tuple[Finding, ...]:
    """Whether every node reaches the first where they meet, and all have one version.

    A host that may not be asked (a read-only session) leaves it unknown.

    Raises:
        HostError: a link is lost.
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    found = list(_versions(versions))
    if host and port.isdigit():
        said = await asyncio.gather(*(_reach(one, host, port) for one in remotes))
        for remote, answer in zip(remotes, said, strict=True):
            found += _reached(remote.host.name, address, answer)
    return tuple(found)


async def _reach(remote: Remote, host: str, port: str) -> str:
    """``taken`` and ``free`` both mean that packets come through; ``""``: it could not be asked."""
    words = (remote.host.python, "-c", _SCRIPT, host, port, str(REACH_S))
    try:
        done = await remote.run(words, timeout_s=2 * REACH_S)
        if done.code is None:  # a name that no server answers for takes longer than a connection
            return f"lost: no answer in {2 * REACH_S:.0f} s"
        return str(json.loads(done.stdout))
    except (ActionFailed, Refused, ValueError):
        return ""


def _reached(name: str, address: str, answer: str) -> list[Finding]:
    kind, _, why = answer.partition(": ")
    if kind not in ("name", "lost"):
        return []
    what = "does not know the name in" if kind == "name" else "does not reach"
    return [
        Finding(
            "dist-unreachable",
            Severity.ERROR,
            f"{name} {what} --dist-init-addr {address} ({clean(why)}): its node would wait until "
            "the process group times out",
            "dist-init-addr in the server's args: node 0's address in the network that joins the "
            "nodes, and a port that nothing blocks",
            ("--dist-init-addr",),
        )
    ]


def _versions(versions: Mapping[str, str | None]) -> list[Finding]:
    known = {name: version for name, version in versions.items() if version}
    if len(set(known.values())) < 2:
        return []
    said = ", ".join(f"{name} {version}" for name, version in known.items())
    return [
        Finding(
            "nodes-version",
            Severity.WARNING,
            f"the nodes have different versions of SGLang: {said}; what they send each other "
            "differs between versions",
            "install the same on all of them, or name another python: for the server",
        )
    ]
