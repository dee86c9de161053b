"""The log screen on what logs do: grow, roll over, pour in, hold junk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from console.errors import HostError, UsageError
from console.logs.localtail import tail
from console.remote import Cursor, LogChunk, LogSource
from console.screens.help import Help
from console.screens.log import LogScreen
from tests.functional.console import fake
from tests.functional.console.steps import seen, settle, text, wait_for
from tests.unit.logstore.test_groups import START, report
from widgets.log_view import LogView


class Scripted(fake.FakeActions):
    """Chunks that a test puts in."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[LogChunk | Exception] = asyncio.Queue()

    async def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        if last_lines is not None:  # the peek of the fleet screen
            return
        while True:
            given = await self.queue.get()
            if isinstance(given, Exception):
                raise given
            yield given


async def test_gaps_events_and_a_lost_host_are_visible_lines() -> None:
    actions = Scripted()
    app, *_ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("g", "l")
        await actions.queue.put(LogChunk(b"first\n", Cursor()))
        await actions.queue.put(
            LogChunk(b"second\n", Cursor(), gap_bytes=5_000_000, lag_bytes=2048)
        )
        await actions.queue.put(LogChunk(b"third\n", Cursor(), event="rotated"))
        await wait_for(pilot, lambda: "third" in text(app), "chunks")
        await wait_for(pilot, lambda: "dropped 5 MiB" in text(app), "the status line")
        shown = text(app)
        assert "5,000,000 bytes left out: the link is slower than the log" in shown
        assert "log rotated" in shown
        await actions.queue.put(HostError("no answer in 5 s", place="ct129"))
        await wait_for(pilot, lambda: "log lost: ct129: no answer in 5 s" in text(app), "loss")


class Counting(fake.FakeActions):
    """Counts who reads a log now."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: list[int | None] = []

    async def tail(
        self, host: str, source: LogSource, *, last_lines: int | None = None
    ) -> AsyncIterator[LogChunk]:
        self.reading.append(last_lines)
        try:
            yield LogChunk(b"the newest line\n", Cursor())
            await asyncio.Event().wait()
        finally:
            self.reading.remove(last_lines)


async def test_a_log_out_of_sight_is_not_read() -> None:
    actions = Counting()
    app, *_ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await wait_for(pilot, lambda: "the newest line" in text(app), "the peek")
        (peek,) = actions.reading
        await pilot.press("question_mark")
        await seen(pilot, Help)
        assert actions.reading == [peek]  # a dialog leaves it in sight
        await pilot.press("escape", "g", "l")
        await wait_for(pilot, lambda: actions.reading == [None], "only the log screen reads")
        await pilot.press("escape")
        assert "the newest line" in text(app)  # what it showed is there at once
        await wait_for(pilot, lambda: actions.reading == [peek], "the peek reads again")
        await wait_for(pilot, lambda: text(app).count("the newest line") == 1, "once")


async def test_a_bar_redraws_one_line_and_paused_stays_where_it_is() -> None:
    actions = Scripted()
    app, *_ = fake.app(actions=actions)
    async with app.run_test(size=(100, 24)) as pilot:
        await settle(pilot)
        await pilot.press("g", "l")
        for done in (1, 2, 3):
            bar = b"\r%d%%|#   | %d/4 [00:01<00:01,  1.0it/s]" % (done * 25, done)
            await actions.queue.put(LogChunk(bar, Cursor()))
        await wait_for(pilot, lambda: "3/4" in text(app), "bar")
        assert "1/4" not in text(app)
        await actions.queue.put(LogChunk(b"\n" + b"line\n" * 100, Cursor()))
        await wait_for(pilot, lambda: "101 of 101" in text(app), "lines")
        view = app.screen.query_one(LogView)
        await pilot.press("k")
        at = view.cursor
        await actions.queue.put(LogChunk(b"more\n" * 50, Cursor()))
        await wait_for(pilot, lambda: len(view.store) == 151, "more")
        assert view.cursor == at
        assert "PAUSED" in text(app)
        await pilot.press("G")
        await wait_for(pilot, lambda: "FOLLOW · 151 of 151" in text(app), "the end")


async def test_wrapped_lines_keep_the_cursor_and_the_end_in_sight() -> None:
    long = b"".join(b"%03d %s\n" % (n, b"word " * 60) for n in range(80))
    app, *_ = fake.app(actions=fake.FakeActions(log=long))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("g", "l", "w")
        await wait_for(pilot, lambda: "079 word" in text(app), "the end, whole")
        view = app.screen.query_one(LogView)
        await pilot.press("g")
        for _ in range(6):
            await pilot.press("j")
        await pilot.pause()
        assert f"{view.cursor:03} word" in text(app)
        await pilot.press("pagedown", "pageup", "G")
        await wait_for(pilot, lambda: "079 word" in text(app), "the end again")


async def test_a_million_bytes_at_once_are_taken_in_pieces() -> None:
    some = b"some line of a hundred bytes, as long as those of servers are".ljust(99) + b"\n"
    app, *_ = fake.app(actions=fake.FakeActions(log=b"x" * 99 + b"\n" + some * 10_000))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("g", "l")
        await wait_for(pilot, lambda: "10 001 of 10 001" in text(app), "all lines")
        await pilot.press("slash", *"xx", "enter")
        await wait_for(pilot, lambda: "/xx hit 1/1" in text(app), "the hit")
        assert app.screen.query_one(LogView).cursor == 0


async def test_a_file_of_this_machine_is_a_log_too(tmp_path: Path) -> None:
    path = tmp_path / "old run.log"
    path.write_bytes(fake.LOG)
    app, *_ = fake.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("colon")
        prompt: Any = app.screen.query_one("Prompt")
        prompt.value = f"open '{path}'"
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(app.screen, LogScreen), "log screen")
        await wait_for(pilot, lambda: "ValueError" in text(app), "content")
        with path.open("ab") as file:
            file.write(b"added later\n")
        await wait_for(pilot, lambda: "added later" in text(app), "growth")
        await pilot.press("R")
        await wait_for(pilot, lambda: "no host here" in text(app), "no host to change")


async def test_local_tail_follows_truncation_and_replacement(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\n")
    chunks = tail("", LogSource(path=str(path)))
    assert (await anext(chunks)).data == b"one\n"
    path.write_bytes(b"2\n")
    again = await anext(chunks)
    assert (again.data, again.event) == (b"2\n", "truncated")
    other = tmp_path / "y.log"
    other.write_bytes(b"three, and longer\n")
    other.rename(path)
    again = await anext(chunks)
    assert (again.data, again.event) == (b"three, and longer\n", "rotated")
    path.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        await anext(chunks)


async def test_the_root_its_ranks_and_its_victims_are_named_where_they_are() -> None:
    error = "ValueError: User-specified context_length (262144) is greater than the derived one"
    gloo = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:1"
    log = START + b"".join(report(f"TP{rank}", error) for rank in range(7)) + report("TP7", gloo)
    app, *_ = fake.app(actions=fake.FakeActions(log=log))
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await pilot.press("g", "l")
        await wait_for(pilot, lambda: "root cause · 7 ranks, same error" in text(app), "verdict")
        await wait_for(pilot, lambda: "✖ TP0 ValueError m2.py:7" in text(app), "cause")
        shown = text(app)
        assert "⋯ same error from TP1-TP6" in shown
        assert "victim of TP0 ValueError" in shown
        assert "✖ 1 error " in shown
        view = app.screen.query_one(LogView)
        await pilot.press("g", "e")
        assert view.judged is not None
        assert view.cursor == view.judged.root
        await pilot.press("e")
        assert view.cursor in view.judged.victims
        await pilot.press("o")
        assert "⋯ same error" not in text(app)


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (100, 30)])
async def test_the_message_of_the_root_is_whole_though_its_line_is_cut(
    size: tuple[int, int],
) -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await wait_for(pilot, lambda: " Fix " in text(app), "the verdict")
        shown = " ".join(text(app).split(" Fix ")[0].split("✖")[-1].split())
        message = "Target model's context_length (262144) is greater than the derived"
        assert message in shown
        assert ("Means" in shown) is (size[1] >= 20)
        assert "--context-length" in text(app)
