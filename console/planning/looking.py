"""One server looked at for a plan: its processes, its records, and whether it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from console.errors import ActionFailed
from console.model import Run, Server, ServerState, Snapshot
from console.remote import Remote
from console.watch import probe
from console.watch.attribution import Found, find
from console.watch.eye import Eye, note

ANSWER_S = 3.0
"""A healthy SGLang answers /health in 1 to 2 s: its handler sleeps in steps of a second."""
FRONT_S = 1.0
"""A front that has not even served its counters after so long, on top of what the link takes,
answers nothing: it is stopped or gone, and waiting longer tells no more."""

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Looked:
    """A server's processes and records at one moment. ``link_s`` is what one question takes."""

    found: Found
    snapshot: Snapshot
    runs: tuple[Run, ...]
    link_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A server as it was when a plan was made."""

    found: Found
    state: ServerState
    snapshot: Snapshot
    runs: tuple[Run, ...]


async def both(first: Awaitable[A], second: Awaitable[B]) -> tuple[A, B]:
    """Both answers; the first error of the two once both have ended."""
    one, two = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(two, BaseException):
        raise two
    return one, two


async def look(remote: Remote, server: Server) -> Looked:
    """Its processes and records.

    Raises:
        HostError: the link is lost.
    """
    began = time.monotonic()
    runs = tuple(await remote.runs())
    link_s = time.monotonic() - began
    snapshot = await remote.snapshot(full=True, artefacts=True)
    return Looked(find(server, runs, snapshot), snapshot, runs, link_s)


async def see(remote: Remote, server: Server, looked: Looked) -> Seen:
    """What it says of itself, within :data:`ANSWER_S`.

    Raises:
        HostError: the link is lost.
    """
    eye = Eye(server)
    client = probe.open_client(remote.http())
    try:
        state = await eye.look(
            remote,
            client,
            looked.snapshot,
            looked.runs,
            wait_s=ANSWER_S,
            front_s=FRONT_S + 4 * looked.link_s,
        )
    finally:
        eye.close()
        await client.aclose()
    return Seen(eye.found, state, looked.snapshot, looked.runs)


async def timed(checking: Awaitable[A]) -> tuple[A, float]:
    """The answer, and when it came (monotonic)."""
    return await checking, time.monotonic()


# ---- what cannot be planned


def checkable(server: Server) -> bool:
    """Whether the command of a launch is known: that of a container made before is docker's."""
    return server.runner.kind != "docker" or server.runner.image is not None


def runs_already(server: Server, found: Found, host: str) -> ActionFailed:
    """Why a server that runs is not launched, and what is meant instead."""
    pid = found.main.id.pid if found.main else None
    if (strange := note(server, found)) is not None and found.run is None:
        hint = f"if it is yours: specops adopt {host} {pid}; if not, another port: in hosts.yaml"
        if found.how in ("unit", "container"):  # its name says whose it is
            hint = f"specops watch {server.name} follows it, specops relaunch {server.name} ends it"
        said = f"{server.name}: port {server.port} is served, {strange}"
        return ActionFailed(said, place=host, hint=hint)
    if found.orphaned and found.run is not None:
        hint = f"specops kill-zombies {host} clears them, specops stop {server.name} too"
        said = f"remains of run {found.run.run_id} are there: its launcher is gone, {found.remains}"
        return ActionFailed(f"{server.name}: {said}", place=host, hint=hint)
    hint = f"specops relaunch {server.name}, or specops watch {server.name}"
    return ActionFailed(f"{server.name} runs already, pid {pid}", place=host, hint=hint)
