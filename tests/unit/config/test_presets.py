from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.config.presets import diff, load_presets
from console.errors import ConfigError, UsageError
from console.model import Preset


def test_the_shipped_presets_are_the_contract(tmp_path: Path) -> None:
    presets = load_presets(tmp_path / "hosts.yaml")
    assert presets.get("nccl", "pcie-ll-ring").env == {
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_MAX_NCHANNELS": "16",
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_NTHREADS": "512",
    }
    shape = {
        p.name: tuple(
            p.flags[f"speculative-{k}"] for k in ("num-steps", "eagle-topk", "num-draft-tokens")
        )
        for p in presets
        if p.kind == "speculative"
    }
    assert shape == {
        "autoregressive": (None, None, None),
        "eagle3-1step": (1, 1, 2),
        "eagle3-2step": (2, 1, 3),
        "eagle3-3step": (3, 1, 4),
        "eagle3-tree": (3, 4, 8),
    }
    assert {"default", "debug", "pcie-ll-ring"} == {p.name for p in presets if p.kind == "nccl"}


def test_every_shipped_setting_is_explained() -> None:
    for preset in load_presets():
        assert preset.description
        assert preset.source.startswith("https://")
        for name in preset.env:
            assert name in preset.notes, f"{preset.name}: {name} has no note"


def test_saving_reading_and_winning_over_a_shipped_one(tmp_path: Path) -> None:
    presets = load_presets(tmp_path / "hosts.yaml")
    own = replace(presets.get("nccl", "default"), env={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": None})
    path = presets.save(own)
    assert path == tmp_path / "presets/nccl/default.yaml"
    again = load_presets(tmp_path / "hosts.yaml").get("nccl", "default")
    assert again.env == own.env
    assert again.origin == str(path)
    assert not list(path.parent.glob(".*"))


def test_names_that_are_none(tmp_path: Path) -> None:
    presets = load_presets(tmp_path / "hosts.yaml")
    for name in ("../evil", "", "a b", ".hidden", "x" * 80):
        with pytest.raises(UsageError, match="not a preset name"):
            presets.save(Preset(name, "nccl", "d"))
    assert not (tmp_path / "evil.yaml").exists()


def test_unknown_presets_suggest_the_nearest(tmp_path: Path) -> None:
    presets = load_presets(tmp_path / "hosts.yaml")
    with pytest.raises(UsageError, match="did you mean 'eagle3-3step'"):
        presets.get("speculative", "eagle3-3steps")
    with pytest.raises(UsageError, match="did you mean"):
        presets.find("pcie-ll-rng")
    presets.save(Preset("debug", "server", "d", flags={"tp-size": 8}))
    presets = load_presets(tmp_path / "hosts.yaml")
    with pytest.raises(UsageError, match="nccl/debug or server/debug"):
        presets.find("debug")
    assert presets.find("server/debug").flags == {"tp-size": 8}


def test_a_broken_preset_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "presets/nccl/x.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("kind: nccl\ndescription: d\nenvv: {A: b}\n")
    with pytest.raises(ConfigError, match="did you mean 'env'") as caught:
        load_presets(tmp_path / "hosts.yaml").get("nccl", "x")
    assert caught.value.place == f"{path}:3:1"
    path.write_text("kind: speculative\ndescription: d\n")
    with pytest.raises(ConfigError, match="presets/speculative"):
        load_presets(tmp_path / "hosts.yaml").find("x")


@pytest.mark.parametrize("content", [b"kind: nccl\n", b"", b"{", b"- a", b"kind: \xff\n"])
def test_a_broken_preset_costs_itself_alone_and_hides_the_shipped_one(
    content: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "presets/nccl"
    folder.mkdir(parents=True)
    for name in ("half", "default"):
        (folder / f"{name}.yaml").write_bytes(content)
    presets = load_presets(tmp_path / "hosts.yaml")
    assert set(presets.broken) == {("nccl", "half"), ("nccl", "default")}
    for name in ("half", "default"):
        with pytest.raises(ConfigError, match=f"{name}.yaml"):
            presets.get("nccl", name)
    assert presets.get("nccl", "debug").origin == "shipped"


def test_difference_of_two(tmp_path: Path) -> None:
    presets = load_presets(tmp_path / "hosts.yaml")
    changes = diff(presets.find("eagle3-1step"), presets.find("eagle3-3step"))
    assert [(c.name, c.before, c.after) for c in changes] == [
        ("speculative-num-draft-tokens", 2, 4),
        ("speculative-num-steps", 1, 3),
    ]
    assert diff(presets.find("debug"), presets.find("debug")) == ()


def test_an_edit_counts_at_once_even_one_of_the_same_length(tmp_path: Path) -> None:
    folder = tmp_path / "presets" / "nccl"
    folder.mkdir(parents=True)
    file = folder / "mine.yaml"
    for value in ("Ring", "Tree", "Ring"):
        file.write_text(f"kind: nccl\ndescription: mine\nenv: {{NCCL_ALGO: {value}}}\n")
        presets = load_presets(tmp_path / "hosts.yaml")
        assert presets.get("nccl", "mine").env == {"NCCL_ALGO": value}
    file.unlink()
    assert "mine" not in {preset.name for preset in load_presets(tmp_path / "hosts.yaml")}
    file.write_text("kind: speculative\ndescription: mine\n")
    for _ in range(2):
        assert set(load_presets(tmp_path / "hosts.yaml").broken) == {("nccl", "mine")}
