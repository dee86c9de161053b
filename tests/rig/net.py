"""Addresses for test hosts: 192.0.2.N (TEST-NET-1, RFC 5737), each in its own network namespace.

A host is joined to this machine by one veth pair, routed, without a bridge: nothing is shared with
other hosts, other test workers or other checkouts. A lock file per number is the lease; the keeper
holds it, so that a number is free exactly when its host is gone.
"""

from __future__ import annotations

import fcntl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.rig.rootfs import CACHE, RigError

GATEWAY = "192.0.2.1"
INSIDE = "host0"  # the name systemd gives a container's veth end


def ip(*argv: str) -> None:
    """``ip ARGV``.

    Raises:
        RigError: with ip's own words.
    """
    done = subprocess.run(["ip", *argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"ip {' '.join(argv)}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Lease:
    """A number that is ours while ``lock`` is open somewhere."""

    number: int
    lock: IO[str]

    @property
    def name(self) -> str:
        """The network namespace's name, and the container's."""
        return f"specops-{self.number}"

    @property
    def link(self) -> str:
        """The veth end on this machine."""
        return f"specops{self.number}"

    @property
    def address(self) -> str:
        """The host's IPv4 address."""
        return f"192.0.2.{self.number}"

    @property
    def folder(self) -> Path:
        """The host's own folder on this machine."""
        return CACHE / "hosts" / str(self.number)

    def undo(self) -> tuple[tuple[str, ...], ...]:
        """What takes the network down again."""
        return (("ip", "link", "del", self.link), ("ip", "netns", "del", self.name))


def lease() -> Lease:
    """The first free number.

    Raises:
        RigError: all 200 are in use.
    """
    locks = CACHE / "leases"
    locks.mkdir(parents=True, exist_ok=True)
    for number in range(10, 210):
        lock = (locks / str(number)).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return Lease(number, lock)
    raise RigError("all 200 addresses for test hosts are in use")


def lease_of(number: int) -> Lease:
    """This very number, as soon as whoever has it is gone."""
    lock = (CACHE / "leases" / str(number)).open("a+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Lease(number, lock)


def join(to: Lease) -> None:
    """Make the namespace and the veth pair of ``to``, up and routed."""
    for step in to.undo():  # of a keeper that was itself killed
        subprocess.run(step, capture_output=True, check=False)
    ip("netns", "add", to.name)
    ip("link", "add", to.link, "type", "veth", "peer", "name", INSIDE, "netns", to.name)
    ip("addr", "add", f"{GATEWAY}/32", "dev", to.link)
    ip("link", "set", to.link, "up")
    ip("route", "add", f"{to.address}/32", "dev", to.link)
    # Hosts reach each other through this machine (jump hosts); only between these links.
    Path(f"/proc/sys/net/ipv4/conf/{to.link}/forwarding").write_text("1")
    ip("-n", to.name, "addr", "add", f"{to.address}/32", "dev", INSIDE)
    ip("-n", to.name, "link", "set", "lo", "up")
    up(to)


def up(which: Lease) -> None:
    """The cable in."""
    ip("-n", which.name, "link", "set", INSIDE, "up")
    ip("-n", which.name, "route", "replace", f"{GATEWAY}/32", "dev", INSIDE)
    ip("-n", which.name, "route", "replace", "default", "via", GATEWAY)
    ip("neigh", "flush", "dev", which.link, "nud", "permanent")


def down(which: Lease) -> None:
    """The cable out: packets vanish, nothing is refused, as on a far network."""
    # A fixed neighbour, or this machine would answer connects with "no route to host" after 3 s,
    # which only happens on one's own segment.
    ip(
        "neigh",
        "replace",
        which.address,
        "lladdr",
        "02:00:00:00:00:01",
        "dev",
        which.link,
        "nud",
        "permanent",
    )
    ip("-n", which.name, "link", "set", INSIDE, "down")
