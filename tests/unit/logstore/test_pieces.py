"""Lines out of pieces: the same ones however the bytes are cut, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.logs.pieces import MOST, Lines


def read(data: bytes, size: int) -> list[tuple[int, bytes]]:
    lines = Lines()
    out: list[tuple[int, bytes]] = []
    for at in range(0, len(data), size):
        out += lines.feed(data[at : at + size], at)
    return [*out, *lines.rest(len(data))]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"bc", b"\r\n"]), max_size=30), st.integers(1, 9)
)
def test_lines_do_not_depend_on_the_pieces(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    rows = data.split(b"\n")
    rows = rows if rows[-1] else rows[:-1]
    assert [line for _, line in read(data, size)] == [
        row.rstrip(b"\r").rpartition(b"\r")[2] for row in rows
    ]
    assert [at for at, _ in read(data, size)] == [
        sum(len(row) + 1 for row in rows[:n]) for n in range(len(rows))
    ]


def test_an_endless_line_is_cut_and_said() -> None:
    data = b"x" * (MOST * 3) + b"\nafter\n"
    assert read(data, 16384) == [
        (0, b"x" * MOST + b" [+%d bytes]" % (MOST * 2)),
        (MOST * 3 + 1, b"after"),
    ]


def test_a_bar_of_any_length_shows_its_last_state() -> None:
    data = b"".join(b"%d%%|##\r" % n for n in range(40_000)) + b"\nafter"
    assert read(data, 16384)[0][1] == b"39999%|##"
