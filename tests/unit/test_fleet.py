"""The fleet: a host that hangs, refuses or flaps changes nothing for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from console.config import Config
from console.errors import AgentError, AuthError, HostError
from console.model import Host, HostState, HostView, Snapshot
from console.session import Headless
from console.watch import fleet as fleet_module
from console.watch.fleet import Fleet
from console.watch.observe import Depth


class FakeRemote:
    """A connection that only knows whose it is and that it was closed."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class World:
    """Decides what connecting to and looking at each host does."""

    def __init__(self) -> None:
        self.connects: dict[str, Callable[[], Any]] = {}
        self.looks: dict[str, Callable[[], Any]] = {}
        self.remotes: list[FakeRemote] = []
        self.tries: dict[str, int] = {}
        self.heard: dict[str, bool] = {}
        self.anew: list[str] = []

    async def connect(self, host: Host, **_options: Any) -> FakeRemote:
        self.tries[host.name] = self.tries.get(host.name, 0) + 1
        await self._do(self.connects.get(host.name))
        remote = FakeRemote(host)
        self.remotes.append(remote)
        return remote

    @staticmethod
    async def _do(what: Callable[[], Any] | None) -> None:
        if what is not None:
            result = what()
            if asyncio.iscoroutine(result):
                await result

    def observer(self, remote: FakeRemote, servers: Any) -> Any:
        world = self

        class Observer:
            def __init__(self) -> None:
                self.servers: dict[str, Any] = {s.name: s for s in servers}

            async def observe(self, depth: Depth) -> HostView:
                assert depth is Depth.LIGHT
                await world._do(world.looks.get(remote.host.name))
                snapshot = Snapshot("b", 1.0, 0, ())
                return HostView(remote.host, HostState.OK, seen_at=1.0, snapshot=snapshot)

            def anew(self) -> None:
                world.anew.append(remote.host.name)

            async def hear(self) -> bool:
                return world.heard.get(remote.host.name, False)

            async def close(self) -> None:
                return

        return Observer()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(fleet_module, "connect", made.connect)
    monkeypatch.setattr(fleet_module, "Observer", made.observer)
    monkeypatch.setattr(fleet_module, "INTERVAL_S", 0.02)
    monkeypatch.setattr(fleet_module, "STALE_AFTER_S", 0.05)
    monkeypatch.setattr(fleet_module, "GIVE_UP_S", 0.3)
    monkeypatch.setattr(fleet_module, "BACKOFF_S", (0.05, 0.1))
    return made


@pytest.fixture
async def fleet(world: World) -> AsyncIterator[Fleet]:
    hosts = {name: Host(name, transport="local") for name in ("a", "b")}
    made = Fleet(Config(Path("hosts.yaml"), hosts=hosts), Headless())
    yield made
    await made.stop()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.01)


async def test_a_host_that_hangs_while_connecting_delays_nobody(world: World, fleet: Fleet) -> None:
    world.connects["a"] = lambda: asyncio.sleep(60)
    await fleet.start()
    await until(lambda: fleet.views["b"].state is HostState.OK)
    assert fleet.views["a"].state is HostState.CONNECTING


async def test_a_late_answer_is_stale_and_keeps_what_was_known(world: World, fleet: Fleet) -> None:
    await fleet.start()
    await until(lambda: fleet.views["a"].state is HostState.OK)
    world.looks["a"] = lambda: asyncio.sleep(60)
    await until(lambda: fleet.views["a"].state is HostState.STALE)
    assert fleet.views["a"].snapshot is not None
    assert fleet.views["b"].state is HostState.OK
    await until(lambda: fleet.views["a"].state is HostState.UNREACHABLE)
    assert fleet.views["a"].snapshot is not None
    world.looks.clear()
    await until(lambda: fleet.views["a"].state is HostState.OK)
    assert world.tries["a"] == 2


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (HostError("down", place="a"), HostState.UNREACHABLE),
        (AuthError("no key", place="a"), HostState.AUTH_FAILED),
        (AgentError("no python", place="a"), HostState.NO_AGENT),
    ],
)
async def test_each_failure_has_its_state_and_its_reason(
    world: World, fleet: Fleet, error: HostError, state: HostState
) -> None:
    def fail() -> None:
        raise error

    world.connects["a"] = fail
    await fleet.start()
    await until(lambda: fleet.views["a"].state is state)
    assert fleet.views["a"].error == error.message, "the host is named beside it"
    with pytest.raises(HostError, match=f"^a: {error.message}"):
        fleet.remote("a")


async def test_a_failure_in_a_log_brings_the_next_look_forward(
    world: World, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "INTERVAL_S", 3600.0)
    monkeypatch.setattr(fleet_module, "LISTEN_S", 0.02)
    looked: list[str] = []
    world.looks["a"] = lambda: looked.append("a")
    world.looks["b"] = lambda: looked.append("b")
    await fleet.start()
    await until(lambda: sorted(looked) == ["a", "b"])
    world.heard["a"] = True
    await until(lambda: looked.count("a") > 2)
    assert looked.count("b") == 1


async def test_a_refresh_connects_a_lost_host_without_waiting(
    world: World, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "BACKOFF_S", (3600.0,))
    down = True

    def fail() -> None:
        if down:
            raise HostError("down", place="a")

    world.connects["a"] = fail
    await fleet.start()
    await until(lambda: fleet.views["a"].state is HostState.UNREACHABLE)
    down = False

    def refreshed() -> bool:
        fleet.refresh("a")
        return fleet.views["a"].state is HostState.OK

    await until(refreshed)


async def test_who_asks_during_a_look_is_answered_by_the_next_with_everything(
    world: World, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "INTERVAL_S", 3600.0)
    monkeypatch.setattr(fleet_module, "STALE_AFTER_S", 3600.0)
    monkeypatch.setattr(fleet_module, "GIVE_UP_S", 3600.0)
    looks: list[str] = []
    go_on = asyncio.Event()

    async def look() -> None:
        looks.append("a")
        await go_on.wait()

    world.looks["a"] = look
    await fleet.start()
    await until(lambda: looks == ["a"])
    fleet.refresh("a")
    go_on.set()
    await until(lambda: looks == ["a", "a"])
    assert world.anew == ["a"]


async def test_stop_closes_every_connection_and_listeners_end(world: World, fleet: Fleet) -> None:
    seen: list[str] = []
    end = fleet.subscribe(lambda view: seen.append(view.host.name))
    await fleet.start()
    await until(lambda: {"a", "b"} <= set(seen))
    assert fleet.remote("a").host.name == "a"
    end()
    await fleet.stop()
    assert world.remotes
    assert all(remote.closed for remote in world.remotes)
    before = len(seen)
    await asyncio.sleep(0.05)
    assert len(seen) == before


async def test_an_edited_file_is_taken_over_host_by_host(world: World, fleet: Fleet) -> None:
    await fleet.start()
    await until(lambda: all(v.state is HostState.OK for v in fleet.views.values()))
    kept, changed = (fleet.remote(name) for name in ("a", "b"))
    hosts = {
        "c": Host("c", transport="local"),
        "b": Host("b", transport="local", labels=("new",)),
        "a": Host("a", transport="local"),
    }
    fleet.configure(Config(Path("hosts.yaml"), hosts=hosts))
    assert list(fleet.views) == ["c", "b", "a"]
    await until(lambda: all(v.state is HostState.OK for v in fleet.views.values()))
    assert fleet.remote("a") is kept, "a host that did not change keeps its connection"
    assert fleet.remote("b") is not changed
    assert fleet.views["b"].host.labels == ("new",)
    assert [r.host.name for r in world.remotes if r.closed] == ["b"]
    fleet.configure(Config(Path("hosts.yaml"), hosts={"c": hosts["c"]}))
    assert list(fleet.views) == ["c"]
    await until(lambda: sum(r.closed for r in world.remotes) == 3)
    with pytest.raises(HostError):
        fleet.remote("a")
    await fleet.stop()
    assert all(r.closed for r in world.remotes)


async def test_a_file_edited_before_the_start_connects_to_nothing(
    world: World, fleet: Fleet
) -> None:
    fleet.configure(Config(Path("hosts.yaml"), hosts={"c": Host("c", transport="local")}))
    await asyncio.sleep(0)
    assert world.tries == {}
    await fleet.start()
    await until(lambda: fleet.views["c"].state is HostState.OK)
    assert world.tries == {"c": 1}
