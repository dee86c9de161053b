"""All hosts at once: one task each, so that a slow or dead one never delays another."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from console.config import Config
from console.errors import AgentError, AuthError, HostError, SpecopsError
from console.model import Host, HostState, HostView
from console.remote import Remote
from console.session import Prompts, connect
from console.watch.nodes import joined
from console.watch.observe import Depth, Observer

INTERVAL_S = 1.0
LISTEN_S = 0.3
"""Between two looks the logs alone are read so often: why a server died is not kept waiting."""
STALE_AFTER_S = 2 * INTERVAL_S
GIVE_UP_S = 20.0
"""A sample that has not come by then is on a dead link: connect anew."""
BACKOFF_S = (3.0, 15.0, 60.0)
JITTER = 0.2
STOP_S = 5.0

Listener = Callable[[HostView], None]


class Member:
    """One host of the fleet: its connection, its newest view, and the task that keeps both."""

    def __init__(self, fleet: Fleet, host: Host) -> None:
        self.host = host
        self.view = HostView(host, HostState.CONNECTING)
        self.remote: Remote | None = None
        self.wake = asyncio.Event()
        self._anew = False
        self._fleet = fleet

    async def run(self) -> None:
        """Connect, sample until the link is lost, wait a little longer each time, again."""
        attempt = 0
        while True:
            # What failed before is still true until the next try says otherwise.
            if attempt == 0:
                self._show(HostState.CONNECTING, "")
            self.wake.clear()
            try:
                self.remote = await connect(
                    self.host,
                    hosts=self._fleet.config.hosts,
                    prompts=self._fleet.prompts,
                    read_only=self._fleet.read_only,
                )
                attempt = 0
                await self._sample(self.remote)
            except SpecopsError as error:
                self._show(state_of(error), error.at(self.host.name))
            finally:
                await self._drop()
            pause = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)]
            attempt += 1
            await self._wait(pause * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311

    async def _sample(self, remote: Remote) -> None:
        """One look a second; raises ``HostError`` when the link is lost or gives no answer."""
        observer = Observer(remote, self._fleet.config.servers_on(self.host.name))
        try:
            while True:
                began = time.monotonic()
                if observer.servers != self._servers():
                    await observer.close()
                    observer = Observer(remote, self._fleet.config.servers_on(self.host.name))
                self.wake.clear()  # who asks during a look is answered by the one after it
                if self._anew:
                    self._anew = False
                    observer.anew()
                self.view = await self._look(observer)
                self._fleet.publish(self.view)
                await self._rest(observer, began + INTERVAL_S)
        finally:
            await observer.close()

    async def _rest(self, observer: Observer, until: float) -> None:
        """Wait for the next look; a failure in a log, or a refresh, brings it forward."""
        await self._wait(max(0.05, min(until - time.monotonic(), LISTEN_S)))
        while not self.wake.is_set() and until - time.monotonic() > LISTEN_S / 2:
            with contextlib.suppress(TimeoutError):  # the next look says that the link is dead
                async with asyncio.timeout(STALE_AFTER_S):
                    if await observer.hear():
                        return
            await self._wait(min(max(0.05, until - time.monotonic()), LISTEN_S))

    def _servers(self) -> dict[str, object]:
        return {s.name: s for s in self._fleet.config.servers_on(self.host.name)}

    async def _look(self, observer: Observer) -> HostView:
        """A view; says ``stale`` while it is late."""
        task = asyncio.ensure_future(observer.observe(Depth.LIGHT))
        try:
            late = STALE_AFTER_S if self.view.seen_at is not None else GIVE_UP_S
            done, _ = await asyncio.wait({task}, timeout=late)
            if not done:
                self._show(HostState.STALE, "no answer for 2 s; what is shown is older")
                await asyncio.wait({task}, timeout=GIVE_UP_S - late)
            if not task.done():
                raise HostError(f"no answer in {GIVE_UP_S:.0f} s", place=self.host.name)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, SpecopsError):
                    await task

    def _show(self, state: HostState, error: str) -> None:
        """The same values under another state: what was last known is kept."""
        self.view = replace(self.view, state=state, error=error)
        self._fleet.publish(self.view)

    def ask(self) -> None:
        """Look now, at everything; connect without waiting."""
        self._anew = True
        self.wake.set()

    async def _wait(self, seconds: float) -> None:
        """Sleep, or be woken by a refresh."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()

    async def _drop(self) -> None:
        remote, self.remote = self.remote, None
        if remote is not None:
            await asyncio.shield(remote.close())


def state_of(error: SpecopsError) -> HostState:
    """The state of a host that gave this error."""
    if isinstance(error, AuthError):
        return HostState.AUTH_FAILED
    if isinstance(error, AgentError):
        return HostState.NO_AGENT
    return HostState.UNREACHABLE


class Fleet:
    """Implements :class:`console.screens.ports.FleetPort` over real hosts."""

    def __init__(self, config: Config, prompts: Prompts, *, read_only: bool = False) -> None:
        self.config = config
        self.prompts = prompts
        self.read_only = read_only
        self._members = {name: Member(self, host) for name, host in config.hosts.items()}
        self._listeners: list[Listener] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._started = False

    @property
    def views(self) -> Mapping[str, HostView]:
        """The newest view of each host."""
        views = {name: member.view for name, member in self._members.items()}
        return joined(views, self.config.servers.values())

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """The connections that there are now, by host."""
        return {name: m.remote for name, m in self._members.items() if m.remote is not None}

    def subscribe(self, callback: Listener) -> Callable[[], None]:
        """Call back with each new view; returns what ends it."""
        self._listeners.append(callback)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(callback)

        return end

    def publish(self, view: HostView) -> None:
        """Give a view to everybody who listens, and those of hosts that share a server with it."""
        name = view.host.name
        over = [server for server in self.config.servers_on(name) if len(server.nodes) > 1]
        views = self.views if over else {}
        shared = {host for server in over for host in server.nodes if host in views} - {name}
        for one in (views.get(name, view), *(views[host] for host in sorted(shared))):
            for listener in tuple(self._listeners):
                listener(one)

    async def start(self) -> None:
        """Begin; returns at once."""
        self._started = True
        self._run_all()

    def _run_all(self) -> None:
        for name, member in self._members.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(member.run(), name=f"host {name}")

    def _leave(self, name: str) -> None:
        """End the task of a host, which closes its connection."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Close every connection; bounded."""
        self._started = False
        for name in tuple(self._tasks):
            self._leave(name)
        if self._leaving:
            await asyncio.wait(tuple(self._leaving), timeout=STOP_S)

    def refresh(self, host: str | None = None) -> None:
        """Look at one host or all now, at everything; connect to lost ones without waiting."""
        for name, member in self._members.items():
            if host is None or name == host:
                member.ask()

    def configure(self, config: Config) -> None:
        """Take over an edited hosts.yaml, at once.

        Hosts that are gone are left, new ones are connected to, changed ones both; the others keep
        their connection and take over their servers with the next look.
        """
        self.config = config
        former, self._members = self._members, {}
        for name, host in config.hosts.items():
            known = former.pop(name, None)
            if known is not None and known.host != host:
                self._leave(name)
                known = None
            self._members[name] = known or Member(self, host)
        for name in former:
            self._leave(name)
        if self._started:
            self._run_all()
        self.refresh()

    def remote(self, host: str) -> Remote:
        """The connection to a host.

        Raises:
            HostError: there is none now.
        """
        member = self._members.get(host)
        if member is None or member.remote is None:
            error = member.view.error if member else ""
            raise HostError(error or "not connected", place=host, hint="it is tried again")
        return member.remote
