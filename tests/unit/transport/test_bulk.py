"""Bulk on the link: it stands aside for a key, its receipts travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from console import turns
from console.agent import wire
from console.transport import client as client_module
from console.transport.client import Client
from console.turns import TURNS, Turns

MARK = "sentinel-of-the-test"
BEGINNING = MARK.encode() + b"\n" + wire.frame(0, "hello", b"{}")


class Channel:
    """The agent's end is the test's: what it sends is read, what it gets is kept."""

    def __init__(self) -> None:
        self.to_read: asyncio.Queue[bytes] = asyncio.Queue()
        self.written: list[bytes] = []

    async def read(self, limit: int) -> bytes:
        del limit
        return await self.to_read.get()

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def drain(self) -> None: ...

    def errors(self) -> bytes:
        return b""

    async def close(self) -> None: ...


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    fresh = Turns()
    monkeypatch.setattr(client_module, "TURNS", fresh)
    monkeypatch.setattr(turns, "KEY_S", 3600.0)
    yield fresh
    assert TURNS is not fresh


async def started(channel: Channel) -> Client:
    channel.to_read.put_nowait(BEGINNING)
    client = Client(channel, "h")
    await client.start(MARK, b"agent")
    return client


async def test_a_log_stands_aside_for_a_key_and_an_answer_does_not(shared: Turns) -> None:
    channel = Channel()
    client = await started(channel)
    try:
        stream = await client.stream("tail", {})
        call = asyncio.create_task(client.call("snapshot", {}))
        while len(client._replies) < 1:
            await asyncio.sleep(0)
        shared.key()
        channel.to_read.put_nowait(wire.frame(2, "reply", b'"seen"'))
        assert await asyncio.wait_for(call, 60) == "seen"
        words = b"x" * client_module.BULK
        for data in (b"one", b"two", words, b"three"):
            channel.to_read.put_nowait(wire.frame(stream.id, "data", data))
        for data in (b"one", b"two", words):
            assert await asyncio.wait_for(stream.next(), 60) == ({}, data)
        more = asyncio.create_task(stream.next())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not more.done()
        more.cancel()
    finally:
        await client.close()


async def test_the_receipts_of_a_burst_are_one_write(
    shared: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    del shared
    monkeypatch.setattr(client_module, "PAY_S", 3600.0)
    channel = Channel()
    client = await started(channel)
    try:
        stream = await client.stream("tail", {})
        for _ in range(20):
            channel.to_read.put_nowait(wire.frame(stream.id, "data", b"x" * 100))
        for _ in range(20):
            await asyncio.wait_for(stream.next(), 60)
        client._pay()
        (paid,) = (data for data in channel.written if b'"received"' in data)
        headers = [wire.parse_header(line) for line in paid.split(b"\n")[:-1]]
        counts = {(header.stream, header.id): header.meta["n"] for header in headers}
        assert counts == {("received", 0): 2000, ("credit", stream.id): 2000}
    finally:
        await client.close()
