"""The TCP fault proxy, in front of a server that echoes or streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.proxy import Proxy

DATA = bytes(range(256)) * 64


@pytest.fixture
async def echo() -> AsyncIterator[tuple[str, int]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield host, port
    server.close()


@pytest.fixture
async def proxy(echo: tuple[str, int]) -> AsyncIterator[Proxy]:
    async with Proxy(*echo) as running:
        yield running


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, count: int) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def silent(self) -> bool:
        """Whether nothing comes, no end either."""
        try:
            async with asyncio.timeout(0.1):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    connected = await connect(proxy)
    yield connected
    connected.writer.close()


async def connect(proxy: Proxy) -> Client:
    return Client(*await asyncio.open_connection(proxy.address, proxy.port))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_without_faults_nothing_is_changed_and_all_is_counted(
    proxy: Proxy, client: Client
) -> None:
    await client.send(DATA)
    assert await client.receive(len(DATA)) == DATA
    client.writer.write_eof()
    assert await client.rest() == b""
    await until(lambda: proxy.alive == 0)
    for direction in (proxy.up, proxy.down):
        assert (direction.taken, direction.given, direction.thrown) == (len(DATA), len(DATA), 0)
    assert proxy.connections == 1


async def test_latency_and_jitter_delay_but_keep_order(proxy: Proxy, client: Client) -> None:
    loop = asyncio.get_running_loop()
    proxy.both(latency_s=0.05, jitter_s=0.02)
    began = loop.time()
    for part in range(0, len(DATA), 1024):
        await client.send(DATA[part : part + 1024])
    assert await client.receive(len(DATA)) == DATA
    assert loop.time() - began >= 0.1  # a lower bound holds on any machine: both ways, no less


async def test_bandwidth_is_capped(proxy: Proxy, client: Client) -> None:
    loop = asyncio.get_running_loop()
    proxy.down.bytes_per_s = 100_000
    began = loop.time()
    await client.send(DATA)
    assert await client.receive(len(DATA)) == DATA
    assert loop.time() - began >= (len(DATA) - 2000) / 100_000


async def test_a_stall_holds_back_and_loses_nothing(proxy: Proxy, client: Client) -> None:
    proxy.both(stalled=True)
    await client.send(DATA)
    assert await client.silent()
    assert proxy.up.given == 0
    proxy.both(stalled=False)
    assert await client.receive(len(DATA)) == DATA


async def test_a_stall_holds_the_sender_back_in_the_end(proxy: Proxy, client: Client) -> None:
    proxy.up.stalled = True
    big = bytes(64 * 1024 * 1024)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.send(big)
    assert proxy.up.taken < len(big)


async def test_one_direction_can_be_black(proxy: Proxy, client: Client) -> None:
    proxy.down.dropped = True
    await client.send(DATA)
    await until(lambda: proxy.down.thrown == len(DATA))
    assert proxy.up.given == len(DATA)
    assert await client.silent()
    proxy.down.dropped = False
    await client.send(b"again")
    assert await client.receive(5) == b"again"


async def test_a_reset_in_the_middle_of_a_message(proxy: Proxy, client: Client) -> None:
    proxy.down.reset_after = 100
    await client.send(DATA)
    with pytest.raises(ConnectionResetError):
        await client.rest()
    assert proxy.down.given == 100
    assert proxy.down.until_cut() is None
    again = await connect(proxy)
    await again.send(b"ok")
    assert await again.receive(2) == b"ok"
    again.writer.close()


async def test_an_orderly_end_in_the_middle_of_a_message(proxy: Proxy, client: Client) -> None:
    proxy.down.close_after = 1000
    await client.send(DATA)
    assert await client.rest() == DATA[:1000]


async def test_bits_are_flipped_where_promised_across_chunks(proxy: Proxy, client: Client) -> None:
    proxy.up.corrupt_every = 1000
    for part in range(0, len(DATA), 700):
        await client.send(DATA[part : part + 700])
        await asyncio.sleep(0)
    seen = await client.receive(len(DATA))
    wrong = [at for at in range(len(DATA)) if seen[at] != DATA[at]]
    assert wrong == list(range(999, len(DATA), 1000))


async def test_half_open_tells_the_client_nothing(proxy: Proxy, client: Client) -> None:
    await client.send(b"x")
    assert await client.receive(1) == b"x"
    proxy.half_open()
    await client.send(DATA)
    await until(lambda: proxy.up.thrown == len(DATA))
    assert await client.silent()
    assert proxy.alive == 1
    client.writer.close()
    await until(lambda: proxy.alive == 0)


async def test_every_connection_can_be_ended(proxy: Proxy) -> None:
    for end, error in ((proxy.reset_all, ConnectionResetError), (proxy.close_all, None)):
        several = [await connect(proxy) for _ in range(3)]
        for one in several:
            await one.send(b"x")
            assert await one.receive(1) == b"x"
        end()
        for one in several:
            if error is None:
                assert await one.rest() == b""
            else:
                with pytest.raises(error):
                    await one.rest()
            one.writer.close()
        await until(lambda: proxy.alive == 0)


async def test_the_port_can_be_closed_and_opened_again(proxy: Proxy, client: Client) -> None:
    await client.send(b"x")
    assert await client.receive(1) == b"x"
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)
    await client.send(b"still")
    assert await client.receive(5) == b"still"
    await proxy.listen()
    again = await connect(proxy)
    await again.send(b"y")
    assert await again.receive(1) == b"y"
    again.writer.close()


async def test_a_server_that_is_not_there_resets_the_client() -> None:
    async with Proxy("127.0.0.1", 1) as proxy:
        client = await connect(proxy)
        with pytest.raises(ConnectionResetError):
            await client.rest()
        client.writer.close()


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(AttributeError, match="no fault 'latency'"):
        Proxy("127.0.0.1", 1).both(latency=1.0)
