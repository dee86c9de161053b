"""nvidia-smi's CSV: what it does not know is unknown, never 0."""

from __future__ import annotations

import pytest

from console.agent import smi


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0), ("81559", 81559.0), ("71.5", 71.5), ("71,5", 71.5), ("12 MiB", 12.0),
        ("[N/A]", None), ("N/A", None), ("[GPU is lost]", None), ("ERR!", None), ("", None),
        ("[Insufficient Permissions]", None), ("nan", None), ("1e999", None), ("-1", None),
    ],
)  # fmt: skip
def test_number(value: str, expected: float | None) -> None:
    assert smi.number(value) == expected


def test_rows_and_processes() -> None:
    output = (
        "0, GPU-a, NVIDIA H200, 70000, 143771, 600, 98, 650.1, 71\n"
        "1, GPU-b, NVIDIA H200, [GPU is lost], [GPU is lost], [N/A], [N/A], [N/A], [N/A]\n"
    )
    rows = smi.parse_gpus(output, smi.FIELDS)
    smi.add_processes("GPU-a, 4711, 69000\nGPU-a, 4712, [N/A]\nGPU-x, 1, 1\nrubbish\n", rows)
    assert rows[0]["memory_used_mib"] == 70000
    assert [(user["pid"], user["memory_mib"]) for user in rows[0]["processes"]] == [
        (4711, 69000.0),
        (4712, None),
    ]
    assert rows[1]["memory_used_mib"] is None
    assert rows[1]["error"] == "GPU is lost"


@pytest.mark.parametrize("line", ["0, GPU-a, x", "x, " * 8 + "y", "0, a, b, c, 1, 2, 3, 4, 5, 6"])
def test_an_unreadable_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="unreadable line"):
        smi.parse_gpus(line, smi.FIELDS)
