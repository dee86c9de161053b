"""What the screens need from the rest of the house: live views, plans, logs, commands.

``console.watch.fleet.Fleet`` and ``console.planning.operations.Operations`` implement these;
tests hand in a fake.
Every method may raise a ``SpecopsError``, which the screens show as one line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from console.config import Config
from console.model import Finding, HostView, Plan, Preset, StepResult
from console.remote import LogChunk, LogSource

if TYPE_CHECKING:
    from console.bench import Level
    from console.planning.measuring import Load


@dataclass(frozen=True, slots=True)
class Output:
    """What a command line printed. ``code`` is its exit code."""

    code: int
    text: str


class FleetPort(Protocol):
    """All hosts, kept up to date by one task each; a slow host never delays another."""

    @property
    def views(self) -> Mapping[str, HostView]:
        """The newest view of each host, in the order of hosts.yaml."""
        ...

    def subscribe(self, callback: Callable[[HostView], None]) -> Callable[[], None]:
        """Call back on the event loop with each new view; returns what ends it."""
        ...

    async def start(self) -> None:
        """Begin to poll; returns at once, the first views say ``connecting``."""
        ...

    async def stop(self) -> None:
        """Close every connection; bounded to a few seconds."""
        ...

    def refresh(self, host: str | None = None) -> None:
        """Sample one host (or all) now, and reconnect a lost one without waiting."""
        ...

    def configure(self, config: Config) -> None:
        """Take over an edited hosts.yaml: leave hosts that are gone, connect to new ones."""
        ...


class Player(Protocol):
    """A recording that is played, where the console shows one."""

    position: float
    speed: float
    paused: bool

    def now(self) -> float:
        """The recorded time that is shown, in seconds since 1970."""
        ...

    def status(self) -> str:
        """Where it stands, for the head line."""
        ...

    def pause(self, paused: bool) -> None:
        """Hold, or go on."""
        ...

    def seek(self, position: float) -> None:
        """Go to a moment, in seconds from the start."""
        ...


class ActionsPort(Protocol):
    """Everything that can be done to a host, as plans; and the text of logs and commands."""

    async def plan(self, action: str, host: str, server: str | None = None, **options: Any) -> Plan:
        """What an action would do, without doing it.

        ``action`` and its options:

        * ``kill``: ``processes`` (tuple of ProcessId), exactly the ones the operator pointed at;
        * ``kill-zombies``: ``zombies`` (tuple of ids) or none for all that are killable;
        * ``clean``: ``artefacts`` (tuple of paths) or none for all that are stale;
        * ``reset-gpu``: ``gpu`` (index);
        * ``stop``: ``server``;
        * ``undo``, ``resume``: ``plan_id``;
        * ``launch``, ``relaunch``: ``server``, ``speculative``, ``nccl``, ``preset`` (names or
          None for what is configured), ``change`` (Change or None); ``relaunch`` also
          ``present`` (the presets that the server has now).
        """
        ...

    def execute(self, plan: Plan) -> AsyncIterator[StepResult]:
        """Do it, step by step; ends after the first step that did not succeed."""
        ...

    def preflight_stream(self, plan: Plan) -> AsyncIterator[Finding]:
        """The findings for a plan that launches, as they come; empty for other plans."""
        ...

    def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        """Follow a log; survives lost connections by resuming where it was."""
        ...

    def bench(self, server: str, load: Load) -> AsyncIterator[Level]:
        """Measure a server that serves: each level as it is done.

        What was done is kept in this operator's history, also when it is ended early.
        """
        ...

    async def check_preset(self, server: str, preset: Preset) -> tuple[Finding, ...]:
        """What preflight says of a relaunch with a preset, which need not be saved yet."""
        ...

    async def run_command(self, line: str) -> Output:
        """Run a command of the command line that only looks, as typed after ``:``."""
        ...

    async def audit(self, limit: int = 500) -> list[Mapping[str, Any]]:
        """The newest entries of the audit file, newest first."""
        ...
