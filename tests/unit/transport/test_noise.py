"""What a login prints before the agent starts, in whatever pieces it arrives."""

from __future__ import annotations

import pytest

from console.errors import AgentError
from console.transport.client import NOISE_LIMIT, Client

MARK = "sentinel-of-the-test"


class Pieces:
    """A channel that delivers these pieces, then ends."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self, limit: int) -> bytes:
        del limit
        return self._pieces.pop(0) if self._pieces else b""

    def write(self, data: bytes) -> None:
        raise AssertionError(f"nothing may be sent before the sentinel: {data[:20]!r}")

    async def drain(self) -> None: ...

    def errors(self) -> bytes:
        return b""

    async def close(self) -> None: ...


def client(*pieces: bytes) -> Client:
    return Client(Pieces(*pieces), "h")


LINE = MARK.encode() + b"\n"


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
async def test_too_much_is_too_much_in_any_pieces(size: int) -> None:
    data = b"x" * (NOISE_LIMIT + 1) + LINE
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    with pytest.raises(AgentError, match="more than 64 kB"):
        await client(*pieces)._skip_noise(MARK.encode())


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
async def test_up_to_the_limit_is_passed_over(size: int) -> None:
    data = b"x" * NOISE_LIMIT + LINE + b"rest"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    it = client(*pieces)
    await it._skip_noise(MARK.encode())
    assert b"rest".startswith(bytes(it._buffer))
