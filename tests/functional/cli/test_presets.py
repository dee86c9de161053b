"""``specops presets``: what is saved is what is read again."""

from __future__ import annotations

from tests.functional.cli.conftest import Command


def test_save_show_diff_and_list(specops: Command) -> None:
    saved = specops(
        "presets", "save", "mine", "--kind", "speculative", "--from", "eagle3-3step",
        "--set", "speculative-num-steps=5", "--set", "speculative-num-draft-tokens=6", "--json",
    )  # fmt: skip
    assert saved.code == 0, saved.err
    assert saved.json["saved"].startswith(str(specops.folder / "config"))
    shown = specops("presets", "show", "mine", "--json").json["preset"]
    assert shown["flags"]["speculative-num-steps"] == 5
    assert shown == {**saved.json["preset"], "origin": saved.json["saved"]}
    different = specops("presets", "diff", "eagle3-3step", "mine", "--json")
    assert different.code == 1
    assert {c["name"]: (c["before"], c["after"]) for c in different.json["changes"]} == {
        "speculative-num-steps": (3, 5),
        "speculative-num-draft-tokens": (4, 6),
    }
    assert specops("presets", "diff", "mine", "mine").code == 0
    names = {(p["kind"], p["name"]) for p in specops("presets", "list", "--json").json["presets"]}
    assert {("speculative", "mine"), ("nccl", "pcie-ll-ring")} <= names


def test_a_slip_is_named_and_nothing_is_saved(specops: Command) -> None:
    unknown = specops("presets", "show", "eagle3-3stp", "--json")
    assert unknown.code == 2
    assert "eagle3-3step" in unknown.json["error"]["hint"]
    for words in (("../x", "--description", "d"), ("ok",)):
        assert specops("presets", "save", *words, "--kind", "nccl").code == 2
    assert not (specops.folder / "config").exists()
