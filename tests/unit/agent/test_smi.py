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


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("None", "none"), ("Reset", "gpu reset"), ("Reboot", "node reboot"),
        ("Drain P2P", "drain p2p"), ("Drain and Reset", "drain and reset"), ("[N/A]", None),
        ("N/A", None), ("[Unknown Error]", None), ("Unknown", None),
    ],
)  # fmt: skip
def test_what_the_driver_asks_for_has_one_name(said: str, expected: str | None) -> None:
    fields = smi.QUERIES[0]
    line = ", ".join(said if name == "gpu_recovery_action" else "0" for name in fields)
    assert smi.parse_gpus(line, fields)[0]["recovery_action"] == expected
    older = ", ".join("0" for _ in smi.FIELDS)
    assert smi.parse_gpus(older, smi.FIELDS)[0]["recovery_action"] is None


@pytest.mark.parametrize("line", ["0, GPU-a, x", "x, " * 8 + "y", "0, a, b, c, 1, 2, 3, 4, 5, 6"])
def test_an_unreadable_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="unreadable line"):
        smi.parse_gpus(line, smi.FIELDS)
