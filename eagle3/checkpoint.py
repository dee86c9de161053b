"""Strict reading of safetensors: every tensor wanted, none unknown, all of the right shape.

SGLang skips unknown names and leaves missing ones random, so a wrong checkpoint starts and then
accepts nothing. Here it does not start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from eagle3.config import ConfigError, ModelConfig

Shapes = dict[str, tuple[int, ...]]
Progress = Callable[[int, int], None]
"""Told (shards done, shards in all)."""


def target_shapes(config: ModelConfig) -> Shapes:
    """The tensors of a Llama target."""
    shapes: Shapes = {
        "model.embed_tokens.weight": (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab, config.hidden)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (config.hidden,)
        shapes |= _layer(config, prefix, config.hidden)
    return shapes


def draft_shapes(config: ModelConfig) -> Shapes:
    """The tensors of an EAGLE-3 draft; ``d2t`` may be left out where the vocabulary is whole."""
    assert config.draft_vocab is not None
    return {
        "fc.weight": (config.hidden, len(config.aux_layers) * config.hidden),
        "norm.weight": (config.hidden,),
        "lm_head.weight": (config.draft_vocab, config.hidden),
        "d2t": (config.draft_vocab,),
        "midlayer.hidden_norm.weight": (config.hidden,),
        "midlayer.input_layernorm.weight": (config.hidden,),
        **_layer(config, "midlayer.", 2 * config.hidden),
    }


def _layer(config: ModelConfig, prefix: str, width: int) -> Shapes:
    return {
        prefix + "self_attn.q_proj.weight": (config.q_size, width),
        prefix + "self_attn.k_proj.weight": (config.kv_size, width),
        prefix + "self_attn.v_proj.weight": (config.kv_size, width),
        prefix + "self_attn.o_proj.weight": (config.hidden, config.q_size),
        prefix + "post_attention_layernorm.weight": (config.hidden,),
        prefix + "mlp.gate_proj.weight": (config.intermediate, config.hidden),
        prefix + "mlp.up_proj.weight": (config.intermediate, config.hidden),
        prefix + "mlp.down_proj.weight": (config.hidden, config.intermediate),
    }


def shard_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, by its index where it has one.

    Raises:
        ConfigError: there are none, or the index names one that is missing.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{index}: not a safetensors index: {error!r}") from None
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ConfigError(f"{folder}: missing shard {', '.join(missing)}")
    if not files:
        raise ConfigError(f"{folder}: no *.safetensors file")
    return files


def read(
    folder: Path,
    wanted: Mapping[str, tuple[int, ...]],
    *,
    optional: frozenset[str] = frozenset(),
    rename: Callable[[str], str] = str,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Every tensor of ``wanted``, on the CPU and as stored.

    Args:
        folder: the model folder.
        wanted: names and shapes.
        optional: names that may be present or not; read if present in ``wanted``, else skipped.
        rename: applied to the names in the files before anything is compared.
        progress: called with (shards done, shards in all).

    Raises:
        ConfigError: a file is unreadable, or a tensor is missing, unknown or mis-shaped.
    """
    found: dict[str, Tensor] = {}
    files = shard_files(folder)
    for done, file in enumerate(files, 1):
        try:
            with safe_open(file, framework="pt") as handle:
                tensors = {rename(name): handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{file}: unreadable: {error}") from None
        unknown = sorted(tensors.keys() - wanted.keys() - optional)
        if unknown:
            raise ConfigError(
                f"{file}: unknown tensor {unknown[0]} ({len(unknown)} unknown in all)"
            )
        for name, tensor in tensors.items():
            shape = wanted.get(name)
            if shape is None:
                continue
            if tuple(tensor.shape) != shape:
                raise ConfigError(
                    f"{file}: {name} has shape {tuple(tensor.shape)}, the config wants {shape}"
                )
            found[name] = tensor
        if progress is not None:
            progress(done, len(files))
    missing = sorted(wanted.keys() - found.keys() - optional)
    if missing:
        raise ConfigError(f"{folder}: missing tensor {missing[0]} ({len(missing)} missing in all)")
    return found
