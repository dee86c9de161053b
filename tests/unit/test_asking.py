"""What was answered by a closed port, a starting server or another process alarms nobody later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

import httpx
import pytest

from console.logs.follower import LogFollower
from console.model import Health, Phase, Server, ServerState, Snapshot
from console.remote import LogSource
from console.watch.attribution import Found
from console.watch.eye import Eye
from tests.functional.console import fake
from widgets.words import Word, server_word

READY = "[2026-11-29 05:49:40] The server is fired up and ready to roll!"
STARTING = "[2026-11-29 05:49:12 TP0] Load weight begin. avail mem=78.90 GB"
PORT = 8000


@dataclass
class Watched:
    """A server that is looked at without waiting, as the console does, over a scripted network."""

    status: int | None = 200
    """What its /health answers; ``None``: nothing, for as long as it is asked."""
    eye: Eye = field(default_factory=lambda: Eye(Server("kimi-k25", "ct129", port=PORT)))
    asked: int = 0

    def __post_init__(self) -> None:
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.eye.follower = LogFollower(LogSource(path="/log"), "sglang")
        self.is_process(4711)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != "/health":
            return httpx.Response(404)
        self.asked += 1
        if self.status is None:
            await asyncio.Event().wait()
        return httpx.Response(self.status or 200)

    def is_process(self, pid: int) -> None:
        process = fake.process(pid, "python3 -m sglang.launch_server")
        self.eye.found = Found("run", None, process, (process,))

    def writes(self, line: str) -> None:
        assert self.eye.follower is not None
        self.eye.follower.machine.feed(line, 1000.0)

    async def look(self, *, listens: bool) -> Word:
        """One look; the state as the fleet says it."""
        assert self.eye.follower is not None
        seen = Snapshot("boot", 1000.0, 0, (), listening={PORT: 4711} if listens else {})
        await self.eye.ask(self.client, seen, self.eye.follower.phase, 0.0, 0.0, deep=False)
        return self.word()

    def word(self) -> Word:
        state = self.state()
        return server_word(replace(fake.views()["ct129"], servers=(state,), zombies=()), state)

    def state(self) -> ServerState:
        return self.eye._state(self.eye._phase(), 1000.0)

    async def answered(self) -> Word:
        """The state once all open questions have their answers."""
        while self.eye._asking:
            await asyncio.wait(self.eye._asking.values())
        return self.word()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    one = Watched()
    yield one
    one.eye.close()
    await one.client.aclose()


async def _its_port_was_closed(one: Watched) -> None:
    one.writes(STARTING)
    assert (await one.look(listens=False)).text == "load_target"
    assert one.eye.health is Health.REFUSED


async def _it_answered_503_while_it_warmed_up(one: Watched) -> None:
    one.writes(STARTING)
    one.status = 503
    await one.look(listens=True)
    await one.answered()
    assert one.eye.health is Health.UNAVAILABLE


async def _it_was_asked_while_it_warmed_up_and_has_not_answered_yet(one: Watched) -> None:
    one.writes(STARTING)
    one.status = None
    await one.look(listens=True)
    assert one.eye._asking


async def _the_process_before_it_did_not_answer(one: Watched) -> None:
    one.writes(READY)
    one.status = 503
    await one.look(listens=True)
    assert (await one.answered()).text == "UNHEALTHY 503"
    one.is_process(4712)


BEFORE = (
    _its_port_was_closed,
    _it_answered_503_while_it_warmed_up,
    _it_was_asked_while_it_warmed_up_and_has_not_answered_yet,
    _the_process_before_it_did_not_answer,
)


@pytest.mark.parametrize("before", BEFORE)
async def test_what_was_before_alarms_nobody(
    before: Callable[[Watched], Awaitable[None]], watched: Watched
) -> None:
    await before(watched)
    watched.status = 200
    watched.writes(READY)
    assert await watched.look(listens=True) == Word("ready ?", "warn", 2)
    assert (await watched.answered()).text.startswith("ready")
    assert watched.eye.health is Health.OK, "it was asked at once, not at the next turn"


async def test_the_port_table_is_older_than_the_log(watched: Watched) -> None:
    await _its_port_was_closed(watched)
    watched.writes(READY)  # after the ports of this look were read
    assert await watched.look(listens=False) == Word("ready ?", "warn", 2)
    assert (await watched.look(listens=False)).text == "PORT REFUSED", "now it is a fact"


async def test_a_closed_port_of_one_that_says_ready_is_said_at_the_first_look(
    watched: Watched,
) -> None:
    watched.writes(READY)
    assert (await watched.look(listens=False)).text == "PORT REFUSED"


async def test_bad_answers_stay_until_there_are_better_ones(watched: Watched) -> None:
    watched.writes(READY)
    watched.status = 503
    await watched.look(listens=True)
    await watched.answered()
    for _ in range(3):
        assert (await watched.look(listens=True)).text == "UNHEALTHY 503"
    assert watched.asked == 1, "not more often than its turn"


async def test_a_good_answer_outlives_the_line_that_says_ready(watched: Watched) -> None:
    watched.writes(STARTING)
    await watched.look(listens=True)
    await watched.answered()
    watched.writes(READY)
    assert (await watched.look(listens=True)).text.startswith("ready")
    assert watched.eye.health is Health.OK
    assert watched.state().phase is Phase.READY
