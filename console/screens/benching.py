"""Measurements under way: they go on while other screens are looked at, and their end is said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from console.errors import SpecopsError
from widgets.words import safe

if TYPE_CHECKING:
    from textual.worker import Worker

    from console.app import SpecopsApp
    from console.bench import Level
    from console.planning.measuring import Bench, Load


@dataclass
class Progress:
    """One measurement under way: what is asked, which levels are done."""

    load: Load
    begun_at: float
    levels: list[Level] = field(default_factory=list)
    worker: Worker[None] | None = None

    def text(self) -> str:
        """How far it is."""
        counts = self.load.concurrency
        if len(self.levels) == len(counts):
            return "being kept"
        return f"level {len(self.levels) + 1} of {len(counts)}"


class Benching:
    """Starts, ends and remembers measurements, one a server."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self.running: dict[tuple[str, str], Progress] = {}

    def start(self, host: str, server: str, load: Load) -> None:
        """Begin; the screen of the server shows how it goes."""
        progress = Progress(load, self._app.now())
        self.running[host, server] = progress
        progress.worker = self._app.run_worker(
            self._run(host, server, progress), group=f"bench {server}", exit_on_error=False
        )

    def stop(self, host: str, server: str) -> None:
        """End it; the levels that are done are kept."""
        progress = self.running.get((host, server))
        if progress is not None and progress.worker is not None:
            progress.worker.cancel()

    async def _run(self, host: str, server: str, progress: Progress) -> None:
        app = self._app
        began = time.monotonic()
        what = f"bench {safe(server)}"
        text, role = f"{what}: ended before its end", "warn"
        try:
            assert app.actions is not None  # the dialog came from a connected console
            async for level in app.actions.bench(server, progress.load):
                progress.levels.append(level)
            failed = sum(level.failed for level in progress.levels)
            best = max((level.tokens_per_s for level in progress.levels), default=0.0)
            text, role = f"{what}: up to {best:.0f} tokens/s", "ok"
            if failed:
                text, role = f"{text}, {failed} requests failed", "bad"
        except SpecopsError as error:
            text, role = f"{what}: {error}", "bad"
        finally:
            del self.running[host, server]
            app.say(f"{text} ({time.monotonic() - began:.0f} s)", role)

    def shown(self, host: str, server: str, kept: Sequence[Bench]) -> list[Bench]:
        """The history with what is being measured on top."""
        from console.planning.measuring import Bench  # noqa: PLC0415 - after the first paint

        progress = self.running.get((host, server))
        if progress is None:
            return list(kept)
        now = Bench(host, server, progress.begun_at, "", progress.text(), "", progress.load.tokens,
                    tuple(progress.levels), running=True)  # fmt: skip
        return [now, *kept]
