"""The strict loader: a wrong checkpoint does not start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagle3.config import ConfigError, read_draft, read_target
from eagle3.engine import Engine, EngineConfig
from eagle3.speculative_args import SpeculativeParams
from eagle3.weights import paths

CHAIN = SpeculativeParams(3, 1, 4)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the shipped pair to spoil."""
    target, draft = tmp_path / "target", tmp_path / "draft"
    shutil.copytree(paths().target, target)
    shutil.copytree(paths().draft, draft)
    return target, draft


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "config.json"
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def load(pair: tuple[Path, Path]) -> Engine:
    return Engine.load(EngineConfig(*pair, CHAIN, slots=1, context=64))


def test_the_shipped_pair_loads(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    assert engine.draft_config is not None
    assert engine.draft_config.aux_layers == (1, 7, 12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("model.norm.weight"), "missing tensor model.norm.weight"),
        (lambda t: t.update(extra=torch.zeros(1)), "unknown tensor extra"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(7)}), r"shape \(7,\)"),
    ],
)
def test_a_target_with_wrong_tensors(pair: tuple[Path, Path], change: Any, says: str) -> None:
    edit_tensors(pair[0], change)
    with pytest.raises(ConfigError, match=says):
        load(pair)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("midlayer.hidden_norm.weight"), "missing tensor midlayer.hidden_norm"),
        (lambda t: t.pop("d2t"), "missing tensor d2t"),
        (
            lambda t: t.update({"fc.weight": torch.zeros(128, 256)}),
            r"fc.weight has shape \(128, 256\)",
        ),
        (lambda t: t["d2t"].add_(5000), "d2t points outside"),
        (lambda t: t["d2t"].sub_(torch.arange(768)), "d2t names a token twice"),
    ],
)
def test_a_draft_with_wrong_tensors(pair: tuple[Path, Path], change: Any, says: str) -> None:
    edit_tensors(pair[1], change)
    with pytest.raises(ConfigError, match=says):
        load(pair)


def test_both_namings_of_the_draft_layer_load(pair: tuple[Path, Path]) -> None:
    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors["model." + name.replace("midlayer.", "layers.0.")] = tensors.pop(name)

    edit_tensors(pair[1], rename)
    load(pair)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("draft_vocab_size"), "draft_vocab_size is missing"),
        (lambda c: c.update(draft_vocab_size=5000), "exceeds vocab_size"),
        (lambda c: c.update(hidden_size=64), "hidden_size is 64, but the target has 128"),
        (lambda c: c.update(vocab_size=999), "vocab_size is 999"),
        (lambda c: c.update(num_hidden_layers=2), "only supports 1 layer"),
        (lambda c: c.update(norm_output=True), "norm_output is True"),
        (lambda c: c.update(architectures=["LlamaForCausalLM"]), "not supported for now"),
        (
            lambda c: c.update(rope_scaling={"rope_type": "yarn", "factor": 4}),
            "rotary scaling 'yarn'",
        ),
        (
            lambda c: c["eagle_config"].update(eagle_aux_hidden_state_layer_ids=[1, 1, 2]),
            "distinct",
        ),
        (
            lambda c: c["eagle_config"].update(eagle_aux_hidden_state_layer_ids=[1, 2, 15]),
            "distinct",
        ),
        (lambda c: c["eagle_config"].update(eagle_aux_hidden_state_layer_ids="all"), "distinct"),
    ],
)
def test_a_draft_config_that_does_not_fit(pair: tuple[Path, Path], change: Any, says: str) -> None:
    edit_config(pair[1], change)
    with pytest.raises(ConfigError, match=says):
        read_draft(pair[1], read_target(pair[0]))


def test_default_layers_are_those_of_sglang(pair: tuple[Path, Path]) -> None:
    edit_config(pair[1], lambda c: c.pop("eagle_config"))
    assert read_draft(pair[1], read_target(pair[0])).aux_layers == (1, 7, 12)


def test_damaged_files(pair: tuple[Path, Path]) -> None:
    weights = pair[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="unreadable"):
        load(pair)
    weights.unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        load(pair)
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (pair[0] / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match="missing shard model-00001"):
        load(pair)
    (pair[0] / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        load(pair)
    with pytest.raises(ConfigError, match="no such model folder"):
        read_target(pair[0] / "nowhere")


def test_a_target_config_this_engine_cannot_compute(pair: tuple[Path, Path]) -> None:
    for change in ({"hidden_act": "gelu"}, {"attention_bias": True}, {"num_key_value_heads": 3}):
        edit_config(pair[0], lambda c, change=change: c.update(change))  # type: ignore[misc]
        with pytest.raises(ConfigError):
            read_target(pair[0])
        shutil.copy(paths().target / "config.json", pair[0])


def test_rope_in_the_key_style_of_transformers_5(pair: tuple[Path, Path]) -> None:
    def change(config: dict[str, Any]) -> None:
        del config["rope_theta"], config["rope_scaling"]
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": 12345.0}

    edit_config(pair[0], change)
    assert read_target(pair[0]).theta == 12345.0
