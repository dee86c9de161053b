"""Flags and variables put together: who wins, what goes away, what each version calls it."""

import pytest

from console.config.presets import Presets, load_presets
from console.errors import UsageError
from console.model import Change, Server
from console.runners.settings import Choice, choose, merge, override, renamed, words


@pytest.fixture(scope="module")
def presets() -> Presets:
    return load_presets()


SERVER = Server(
    name="k25",
    host="h",
    speculative="eagle3-3step",
    nccl="pcie-ll-ring",
    args={"tp": 8, "trust-remote-code": True, "speculative-num-steps": 9, "skip": False},
    env={"NCCL_PROTO": "Simple", "OWN": "1"},
)


def test_presets_win_over_the_entry_and_a_change_over_presets(presets: Presets) -> None:
    change = Change(flags={"speculative_num_draft_tokens": 7}, env={"NCCL_ALGO": None})
    made = merge(SERVER, presets, Choice(change=change))
    assert made.flags["speculative-num-steps"] == 3
    assert made.flags["speculative-num-draft-tokens"] == 7
    assert made.flags["tp-size"] == 8
    assert "skip" not in made.flags
    assert made.env["NCCL_PROTO"] == "LL"
    assert made.env["OWN"] == "1"
    assert made.unset == {"NCCL_ALGO"}
    assert made.label == "eagle3-3step+pcie-ll-ring"


def test_autoregressive_takes_every_speculative_flag_away(presets: Presets) -> None:
    made = merge(SERVER, presets, choose(presets, "autoregressive", None))
    assert not [name for name in made.flags if name.startswith("speculative")]
    assert "speculative-draft-model-path" in made.removed


def test_an_unknown_preset_is_refused_with_the_nearest(presets: Presets) -> None:
    with pytest.raises(UsageError) as caught:
        choose(presets, "eagle3-3stpe", None)
    assert "eagle3-3step" in caught.value.hint
    with pytest.raises(UsageError):
        choose(presets, "debug", "pcie-ll-ring")


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.5.12.post1", "cuda-graph-max-bs"), ("0.5.23", "cuda-graph-max-bs-decode")],
)
def test_a_flag_is_called_what_the_version_calls_it(version: str, name: str) -> None:
    for spelt in ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"):
        assert renamed({spelt: 16}, version) == {name: 16}
    assert renamed({"cuda-graph-max-bs": 16}, None) == {"cuda-graph-max-bs": 16}


def test_words_keep_lists_and_bare_flags() -> None:
    flags = {"a": True, "b": False, "c": None, "d": (1, 2), "e": 0.5, "f": 0}
    assert words(flags) == ("--a", "--d", "1", "2", "--e", "0.5", "--f", "0")


def test_override_replaces_in_place_and_drops_aliases(presets: Presets) -> None:
    args = ["pos", "--tp", "4", "--speculative-algo=EAGLE", "--nan", "-1", "--keep", "x", "y"]
    made = override(args, merge(SERVER, presets, Choice(change=Change(flags={"nan": None}))))
    assert made[:4] == ("pos", "--tp-size", "8", "--speculative-algorithm")
    assert made[4] == "EAGLE3"
    assert "--nan" not in made
    assert "-1" not in made
    at = made.index("--keep")
    assert made[at : at + 3] == ("--keep", "x", "y")
    assert made.count("--tp-size") == 1
