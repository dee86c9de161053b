"""A value typed on one line is the value that a preset's file would hold."""

from __future__ import annotations

from typing import Any

import pytest

from console.config.nodes import parse
from console.config.presets import dump, read_preset
from console.config.typed import read_typed, written
from console.errors import UsageError
from console.model import Preset

VALUES: list[Any] = [
    None, True, False, 0, 3, -1, 0.88, 1e-5, "EAGLE3", "2000", "true", "null", "~", "0.5", "a b",
    "'quoted'", "", "[x", "{\"a\": 1}", "007", "1e3", "./x:y", "#no comment", ("a", "b"), ("1",),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_shown_means_the_value(value: Any) -> None:
    back = read_typed(written(value))
    assert (tuple(back) if isinstance(back, list) else back) == value
    assert type(back) is type(value) or isinstance(value, tuple)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_and_survives_its_file(value: Any, tmp_path: Any) -> None:
    preset = Preset("one", "server", "for a test", {"flag": read_typed(written(value))})
    back = read_preset(parse(dump(preset), tmp_path / "one.yaml"), "one", "")
    assert back.flags["flag"] == value


@pytest.mark.parametrize(
    ("typed", "value"), [("16777216", "16777216"), ("null", None), ("''", ""), ("[a]", "[a]")]
)
def test_a_variable_is_text(typed: str, value: str | None) -> None:
    assert read_typed(typed, variable=True) == value


def test_a_list_that_does_not_end_is_refused() -> None:
    with pytest.raises(UsageError, match="ends with"):
        read_typed("[1, 2")
