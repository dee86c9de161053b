from __future__ import annotations

import time

import pytest

from console.errors import UsageError
from console.history.moments import moment

AT = time.mktime((2026, 11, 29, 23, 50, 0, 0, 0, -1))
"""What the console shows at the position 600."""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("90", 90), ("1:30", 90), ("2:01:30", 7290), ("0", 0), ("+90", 690), ("-10:00", 0),
        ("+1:00:00", 4200), ("@23:50:00", 600), ("@23:49:30", 570), ("@23:55", 900),
        ("@00:10", 1800), ("@13:00", 600 - 39_000),
    ],
)  # fmt: skip
def test_moments(text: str, wanted: float) -> None:
    assert moment(text, now=AT, position=600.0) == pytest.approx(wanted)


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "+", "@5", "1:", "1.5", "--5", "@-3:00"])
def test_what_is_no_moment_says_what_one_is(text: str) -> None:
    with pytest.raises(UsageError, match="is no moment") as caught:
        moment(text, now=AT, position=600.0)
    assert "1:30:00" in caught.value.hint
