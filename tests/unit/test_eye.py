"""A start that takes longer than it may is called stalled, with what it took and what it may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from console.logs.follower import LogFollower
from console.model import Health, HostView, Phase, Runner, Server, ServerState
from console.phases import FLOOR_S, Learned
from console.remote import Cursor, LogChunk, LogSource
from console.watch.attribution import Found
from console.watch.eye import Eye
from console.watch.observe import Observer
from tests.functional.console import fake
from widgets.paint import text_of
from widgets.phases import phase_lines
from widgets.words import server_word, usual_s, why

LOG = (
    "[2026-11-29 05:49:02] server_args=ServerArgs(model_path='/shared/kimi')",
    "[2026-11-29 05:49:08 TP0] Init torch distributed begin.",
    "[2026-11-29 05:49:12 TP0] Init torch distributed ends. mem usage=1.00 GB",
    "[2026-11-29 05:49:13 TP0] Load weight begin. avail mem=78.90 GB",
)
AT = 1000.0
"""The host's clock when the last line was read."""


def eye(lines: tuple[str, ...] = LOG) -> Eye:
    """An eye whose server is alive and has written these lines."""
    made = Eye(Server("kimi-k25", "ct129"))
    run = replace(fake.run_of("kimi-k25", "ct129", "3f2c", ""), launched_at=AT - 20.0)
    process = fake.process(4711, "python3 -m sglang.launch_server")
    made.found = Found("run", run, process, (process,))
    made.follower = LogFollower(LogSource(path="/log"), "sglang")
    for text in lines:
        made.follower.machine.feed(text, AT)
    made.health = Health.REFUSED
    return made


def state(made: Eye, now: float) -> ServerState:
    return made._state(made._phase(), now)


def shown(one: ServerState) -> HostView:
    runs = (fake.run_of("kimi-k25", "ct129", "old", "ready"),)
    return replace(fake.views()["ct129"], servers=(one,), zombies=(), runs=runs)


def test_a_phase_in_its_time_says_how_long_it_has_been() -> None:
    one = state(eye(), AT + 41.0)
    assert one.phase is Phase.LOAD_TARGET
    assert one.stalled is None
    assert one.elapsed_s == pytest.approx(41.0)
    assert server_word(shown(one), one).text == "load_target"
    lines = [text_of(spans) for spans in phase_lines(shown(one), one, 100)]
    assert any("running 41 s (usual 1:48)" in text for text in lines), lines
    assert ("load_target", "41 s so far · usual 1:48 · health refused (inside)") in why(
        shown(one), one, 0.0
    )


KNOWN = {Phase.LOAD_TARGET: Learned(100, 110, 3)}


@pytest.mark.parametrize(
    ("learned", "waited", "bound"),
    [({}, FLOOR_S[Phase.LOAD_TARGET] + 1, 1800), (KNOWN, 331, 330)],
)
def test_beyond_it_it_is_stalled(
    learned: dict[Phase, Learned], waited: float, bound: float
) -> None:
    made = eye()
    made.learned = learned
    assert state(made, AT + waited - 2).stalled is None
    one = state(made, AT + waited)
    assert one.stalled == f"load_target takes {waited:.0f} s, at most {bound:.0f}"
    assert server_word(shown(one), one).text == "STALLED load_target"
    assert server_word(shown(one), one).severity == 0
    assert why(shown(one), one, 0.0)[0][0] == "STALLED"
    lines = "\n".join(text_of(spans) for spans in phase_lines(shown(one), one, 100))
    assert "load_target" in lines
    assert "STALLED" in lines


def test_without_a_word_in_the_log_it_is_stalled_too() -> None:
    made = eye(())
    assert state(made, AT).phase is Phase.SPAWN
    assert state(made, AT).stalled is None
    one = state(made, AT + FLOOR_S[Phase.SPAWN])
    assert one.stalled == "no word from it in 80 s, at most 60"
    made.follower = None  # and where nobody knows its log
    assert state(made, AT + FLOOR_S[Phase.SPAWN]).stalled is not None
    made.health = Health.OK
    assert state(made, AT + FLOOR_S[Phase.SPAWN]).stalled is None, "one that answers is well"


def test_one_that_has_ended_is_not_stalled() -> None:
    made = eye()
    assert made.found.run is not None
    made.found = Found("nothing", replace(made.found.run, outcome="exit 1"))
    one = state(made, AT + 10_000)
    assert (one.phase, one.stalled, one.elapsed_s) == (Phase.FAILED, None, None)


def test_a_run_that_served_and_was_stopped_still_says_what_is_usual() -> None:
    view = fake.views()["dflash"]
    served = replace(view.runs[0], outcome="stopped", phases=(*view.runs[0].phases, ("ready", 0.0)))
    assert usual_s(replace(view, runs=(served,)), "k26", "load_target") == 108.0


class Journal:
    """A host whose unit writes its journal on; counts how often it is asked."""

    degraded = None

    def __init__(self) -> None:
        view = fake.views()["ct129"]
        self.host, self.hello = view.host, SimpleNamespace(boot_id="boot")
        self.written = b""
        self.asked = 0

    def http(self) -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(lambda _: httpx.Response(503))

    async def tail(self, source: LogSource, **_options: object) -> AsyncIterator[LogChunk]:
        self.asked += 1
        data, self.written = self.written, b""
        yield LogChunk(data, Cursor(offset=len(data), journal="c"))


async def test_a_journal_is_asked_between_two_looks_while_its_server_starts() -> None:
    made, remote = eye(), Journal()
    made.server = replace(made.server, runner=Runner(kind="systemd", unit="k25.service"))
    made.follower = LogFollower(LogSource(unit="k25.service"), "sglang")
    observer = Observer(remote, [made.server])  # type: ignore[arg-type]
    observer.eyes = {"kimi-k25": made}
    observer._last, observer._at["look"] = fake.views()["ct129"].snapshot, 0.0
    remote.written = "\n".join([*LOG, ""]).encode()
    await made.follower.update(remote, AT)  # type: ignore[arg-type]
    assert not await observer.hear()
    remote.written = b"[2026-11-29 05:49:20] Received sigquit from a child process.\n"
    assert await observer.hear()
    ready = "[2026-11-29 05:55:12] The server is fired up and ready to roll!"
    remote.written = "\n".join([*LOG, ready, ""]).encode()
    await observer.hear()
    asked = remote.asked
    assert not await observer.hear()
    assert remote.asked == asked  # one that serves is looked at once a second
    await observer.close()
