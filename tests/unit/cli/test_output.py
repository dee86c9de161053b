"""What the command line prints: aligned, bounded, and unknown is never zero."""

import pytest

from console.cli import output
from console.cli.output import cells, duration, fit, mib, number, pad, table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.25, "0.2 s"), (59.4, "59 s"), (61, "1 min 01 s"), (29_520, "8 h 12 min"),
     (200_000, "2 d 7 h")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_unknown_is_a_question_mark() -> None:
    assert mib(None) == number(None) == "?"
    assert mib(0.0) == "0"
    assert mib(143771.2) == "143 771"


def test_columns_line_up_with_wide_characters() -> None:
    assert cells("模型") == 4
    assert cells("é") == 1
    lines = table([["模型", "1"], ["a", "22"]], ["NAME", "N"], right=[1])
    assert len({cells(line) for line in lines}) == 1


def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fit("abcdef", 4) == "abc…"
    assert cells(fit("模型模型", 5)) <= 5
    assert pad("a", 3, right=True) == "  a"
    long = [["x" * 200, "y" * 200]]
    assert table(long) == [f"{'x' * 200}  {'y' * 200}"], "a pipe's reader wants all of it"
    monkeypatch.setattr(output, "width", lambda: 80)
    assert all(cells(line) <= 80 for line in table(long))
