"""Follow the start of a server over several hosts: ready, failed or stalled as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from console.errors import HostError
from console.model import Diagnosis, Phase, Server, ServerState, Snapshot
from console.remote import Remote
from console.watch.nodes import MISSING, lacking_words, nodes_of
from console.watch.watching import TICK_S, Watched, Watcher

PEER_S = 3.0
"""Where a node says only that another is lost, that one is heard for so long: it may still tell."""
LOST_PEER = "peer-rank-lost"
WAITED = frozenset({"collective-timeout", "nccl-init"})
Ending = tuple[Literal["failed", "stopped"], str]


@dataclass(slots=True)
class _Look:
    """All nodes at one moment, by rank."""

    states: list[ServerState]
    snapshots: list[Snapshot]
    endings: list[Ending | None]


class GroupWatcher:
    """Watches all nodes of a server, one :class:`Watcher` each; ``remotes`` are by rank.

    It is ready when node 0 serves and every other node lives, and has failed when one has: the
    outcome names its rank and host, and the diagnosis is its own.
    """

    def __init__(
        self, remotes: Sequence[Remote], server: Server,
        tell: Callable[[ServerState], None] | None = None, *,
        to_come: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:  # fmt: skip
        self.server = server
        self._tell = tell or (lambda _state: None)
        self._watchers = [Watcher(remote, server, to_come=to_come) for remote in remotes]
        self._hosts = [remote.host.name for remote in remotes]
        self._last: list[ServerState] = []
        self._lost_at: float | None = None

    async def watch(self, timeout_s: float | None = None) -> Watched:
        """Until ready, ended, stalled, or the bound is reached.

        Raises:
            HostError: a link is lost; the server goes on, and so may another watch.
        """
        started = time.monotonic()
        while True:
            look = await self._look()
            elapsed = time.monotonic() - started
            if (ended := await self._ended(look, elapsed)) is not None:
                return ended
            whole = self._whole(look.states)
            first = self._watchers[0]
            if not whole.lacking and first.serves(look.states[0], look.snapshots[0]):
                return Watched("ready", whole, elapsed)
            why = first.stall(look.states[0], look.snapshots[0])
            if why is None and timeout_s is not None and elapsed > timeout_s:
                why = f"not ready within {timeout_s:.0f} s"
            if why is not None:
                return Watched("stalled", whole, elapsed, self._behind(why, look.states))
            await asyncio.sleep(TICK_S)

    async def alive(self, seconds: float) -> Watched:
        """Until all nodes have been seen alive for so long; ``failed`` when one ends before.

        Raises:
            HostError: a link is lost.
        """
        started = time.monotonic()
        while True:
            look = await self._look()
            elapsed = time.monotonic() - started
            if (ended := await self._ended(look, elapsed)) is not None:
                return ended
            if elapsed >= seconds:
                serves = self._watchers[0].serves(look.states[0], look.snapshots[0])
                return Watched("ready" if serves else None, self._whole(look.states), elapsed)
            await asyncio.sleep(TICK_S)

    async def _look(self) -> _Look:
        seen = await asyncio.gather(*(watcher.look() for watcher in self._watchers))
        states = [state for state, _ in seen]
        snapshots = [snapshot for _, snapshot in seen]
        endings = await asyncio.gather(
            *(w.ended(*pair) for w, pair in zip(self._watchers, seen, strict=True))
        )
        self._last = states
        self._tell(self._whole(states))
        return _Look(states, snapshots, list(endings))

    def _whole(self, states: Sequence[ServerState], at: int = 0) -> ServerState:
        """The state of one node, which knows of all of them."""
        return replace(states[at], nodes=nodes_of(zip(self._hosts, states, strict=True)))

    async def _ended(self, look: _Look, elapsed: float) -> Watched | None:
        if not any(look.endings):
            self._lost_at = None
            return None
        if all(ending and ending[0] == "stopped" for ending in look.endings):
            assert look.endings[0] is not None
            return Watched("stopped", self._whole(look.states), elapsed, look.endings[0][1])
        final = [
            await watcher.final(state)
            for watcher, state in zip(self._watchers, look.states, strict=True)
        ]
        self._last = final
        at, victim = culprit(final, look.endings)
        if victim and not all(look.endings):
            self._lost_at = self._lost_at or time.monotonic()
            if time.monotonic() - self._lost_at < PEER_S:
                return None
        return Watched("failed", self._whole(final, at), elapsed, self._how(at, look, final))

    def _how(self, at: int, look: _Look, final: Sequence[ServerState]) -> str:
        ending = look.endings[at]
        said = ": it logged its end"
        if ending is not None:  # what an earlier run of it came to says nothing of this one
            said = f": {ending[1]}" if ending[0] == "failed" else f" {MISSING}"
        left = [
            f"rank {rank} on {self._hosts[rank]}"
            for rank, state in enumerate(final)
            if rank != at and state.pid is not None
        ]
        text = f"rank {at} on {self._hosts[at]}{said}"
        return f"{text}; left: {', '.join(left)}" if left else text

    def _behind(self, why: str, states: Sequence[ServerState]) -> str:
        """Why it stalls, and how far each node has come."""
        nodes = nodes_of(zip(self._hosts, states, strict=True))
        if lacking := lacking_words(nodes):
            return f"{why}; {lacking}"
        stands = ", ".join(f"rank {n.rank} on {n.host} in {n.phase.value}" for n in nodes)
        return f"{why}; {stands}"

    async def confirm(self, watched: Watched) -> Watched:
        """After ready: one real completion from node 0; keep the times of all nodes."""
        done = await self._watchers[0].confirm(watched)
        await self._remember(watched, range(1, len(self._watchers)))
        return replace(done, state=replace(done.state, nodes=watched.state.nodes))

    async def remember(self, watched: Watched) -> Watched:
        """Write into the record of every node how it went; node 0's is the server's start."""
        return await self._remember(watched, range(len(self._watchers)))

    async def _remember(self, watched: Watched, ranks: Sequence[int]) -> Watched:
        start_s = watched.start_s
        for rank in ranks:
            own = replace(watched, state=self._last[rank]) if self._last else watched
            kept = await self._watchers[rank].remember(own)
            start_s = kept.start_s if rank == 0 else start_s
        return replace(watched, start_s=start_s)

    async def close(self) -> None:
        """End open probes; the connections are the caller's."""
        for watcher in self._watchers:
            await watcher.close()


def watcher_of(
    server: Server, remotes: Mapping[str, Remote],
    tell: Callable[[ServerState], None] | None = None, *,
    to_come: Callable[[], Awaitable[bool]] | None = None,
) -> Watcher | GroupWatcher:  # fmt: skip
    """What watches a server, on one host or on several.

    Raises:
        HostError: there is no connection to one of them.
    """
    for name in server.nodes:
        if name not in remotes:
            raise HostError(f"{server.name} runs there too", place=name, hint="not connected")
    if len(server.nodes) == 1:
        return Watcher(remotes[server.host], server, tell, to_come=to_come)
    return GroupWatcher([remotes[host] for host in server.nodes], server, tell, to_come=to_come)


def told(said: Diagnosis | None) -> int:
    """How little a failed rank's log tells of the reason: 0 is its own, 4 that a peer is lost."""
    if said is None or said.root is None:
        return 2
    return 4 if said.category == LOST_PEER else 3 if said.category in WAITED else 0


def culprit(states: Sequence[ServerState], endings: Sequence[Ending | None]) -> tuple[int, bool]:
    """The rank that the others followed, and whether it says itself that it is only a victim.

    First one that tells a reason of its own; then one that was never there, one that is gone
    without a word, one that waited for others in vain, one that lost its peer.
    """

    def weight(rank: int) -> int:
        state, ending = states[rank], endings[rank]
        if ending is None and state.phase is not Phase.FAILED:
            return 9
        if ending is not None and ending[0] == "stopped":
            return 1
        return told(state.diagnosis)

    at = min(range(len(states)), key=weight)
    return at, weight(at) == 4
