"""The wire format refuses what it should."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.agent import wire


@pytest.mark.parametrize(
    "data",
    [
        b"NaN", b"[Infinity]", b"-Infinity", b'{"pid":1e999}', b"{", b"", b"\xff",
        b'{"a":1,"a":2}', b"[" * 100_000, b"[" * 33 + b"]" * 33, b"1" * 30,
    ],
)  # fmt: skip
def test_bad_json(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.loads(data)


@pytest.mark.parametrize(
    "value",
    [
        [], {}, {"id": 1, "stream": "x"}, {"id": -1, "stream": "x", "len": 0},
        {"id": True, "stream": "x", "len": 0}, {"id": 1.0, "stream": "x", "len": 0},
        {"id": 1, "stream": "x", "len": -1}, {"id": 1, "stream": "x", "len": wire.MAX_PAYLOAD + 1},
        {"id": 1, "stream": 7, "len": 0}, {"id": 1, "stream": "x" * 33, "len": 0},
        {"id": 1, "stream": "x", "len": 0, "meta": []},
    ],
)  # fmt: skip
def test_bad_headers(value: object) -> None:
    with pytest.raises(wire.WireError):
        wire.parse_header(json.dumps(value).encode())


@given(st.integers(0, 1 << 53), st.binary(max_size=200), st.dictionaries(st.text(), st.integers()))
def test_a_frame_comes_back(call: int, payload: bytes, meta: dict[str, int]) -> None:
    meta = {key: value for key, value in meta.items() if abs(value) < 1 << 62}
    line, _, rest = wire.frame(call, "data", payload, meta).partition(b"\n")
    assert wire.parse_header(line) == (call, "data", len(payload), meta)
    assert rest == payload


def test_nan_is_never_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        wire.dumps(float("nan"))
