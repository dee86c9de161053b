"""Text as it streams."""

from __future__ import annotations

import random

import pytest

from eagle3.text import TextStream

from .support import tokenizer


def stream(text: str, stop: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    out = TextStream(tokenizer(), stop)
    parts = []
    for token in tokenizer().encode(text).ids:
        parts.append(out.feed(token))
        if out.matched:
            break
    return [*parts, out.rest()], out


@pytest.mark.parametrize(
    "text", ["plain words", "naïve — 日本語 🚀 end", "def f(x):\n    return x\n", " \t\n"]
)
def test_parts_add_up_and_never_split_a_character(text: str) -> None:
    parts, _ = stream(text)
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)


def test_a_stop_string_is_found_across_tokens_and_cut_off() -> None:
    parts, out = stream("the quick brown fox jumps over", ("own fox", "never"))
    assert "".join(parts) == "the quick br"
    assert out.matched == "own fox"


def test_the_earliest_of_several_stops_wins() -> None:
    parts, out = stream("alpha beta gamma", ("gamma", "beta"))
    assert "".join(parts) == "alpha "
    assert out.matched == "beta"


def test_the_beginning_of_a_stop_is_held_back_and_released() -> None:
    parts, out = stream("one END of it", ("ENDLESS",))
    assert "".join(parts) == "one END of it"
    assert out.matched is None


def test_no_part_of_a_stop_is_ever_sent() -> None:
    rng = random.Random(1)
    for _ in range(200):
        text = "".join(rng.choice("ab\n") for _ in range(30))
        stop = "".join(rng.choice("ab\n") for _ in range(rng.randrange(1, 4)))
        sent = "".join(stream(text, (stop,))[0])
        assert sent == text.split(stop)[0]
