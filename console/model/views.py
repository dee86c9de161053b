"""What the two faces show."""

from __future__ import annotations

from dataclasses import dataclass

from console.model.hosts import Host, HostState, Run
from console.model.seen import Hello, Snapshot
from console.model.state import ServerState
from console.model.verdicts import Zombie


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A plan on a host that has no end: under way, or cut off. ``detail``: where, and what to do.

    ``done`` and ``in_doubt`` are numbers of its steps.
    """

    id: str
    action: str
    server: str | None
    under_way: bool
    detail: str
    done: tuple[int, ...] = ()
    in_doubt: int | None = None


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the two faces show it. ``seen_at`` is the operator's clock, seconds since 1970.

    On a lost host everything stays as last seen, ``state`` and ``error`` say what happened.
    """

    host: Host
    state: HostState
    error: str = ""
    seen_at: float | None = None
    hello: Hello | None = None
    snapshot: Snapshot | None = None
    servers: tuple[ServerState, ...] = ()
    zombies: tuple[Zombie, ...] = ()
    runs: tuple[Run, ...] = ()
    unlisted: tuple[int, ...] = ()
    """Pids of the launchers that run here and are no server of hosts.yaml."""
    unfinished: tuple[OpenPlan, ...] = ()
    """Plans that were cut off after they had changed something, with more left to do."""

    def cut_off(self, server: str) -> OpenPlan | None:
        """The plan of a server that nobody is at work on any more."""
        mine = (one for one in self.unfinished if one.server == server and not one.under_way)
        return next(mine, None)

    @property
    def told(self) -> tuple[object, ...]:
        """What it says of its servers that nobody should wait for."""
        return tuple((s.name, s.phase, s.diagnosis is None) for s in self.servers)

    def age_s(self, now: float) -> float | None:
        """Seconds since the values were seen, ``None`` when they never were."""
        return None if self.seen_at is None else max(0.0, now - self.seen_at)
