"""What ``config.json`` of a target or a draft says, checked once and frozen.

Only what this engine computes is accepted: a field that would change the result and is not
implemented (rotary scaling, biases, another activation) is refused instead of ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET_ARCHITECTURE = "LlamaForCausalLM"
DRAFT_ARCHITECTURE = "LlamaForCausalLMEagle3"


class ConfigError(ValueError):
    """A model folder cannot be served; the message names the file, the field and what is wanted."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of one model, target or draft. All lengths are in tokens.

    Attributes:
        aux_layers: the target layers whose outputs feed the draft (layer ids as the draft's file
            writes them); empty in a target's own config.
        draft_vocab: size of the draft's output vocabulary; None in a target's config.
        stop_ids: tokens that end an answer (``eos_token_id``).
    """

    path: Path
    architecture: str
    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    theta: float
    tied: bool
    stop_ids: frozenset[int]
    draft_vocab: int | None = None
    aux_layers: tuple[int, ...] = ()

    @property
    def q_size(self) -> int:
        """Width of the queries."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_dim


class _Fields:
    """Typed access to a config file, with errors that name the place."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such model folder")
        try:
            self.values: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{folder}: not a model folder, config.json is missing") from None
        except ValueError as error:
            raise ConfigError(f"{self.path}: not JSON: {error}") from None
        if not isinstance(self.values, dict):
            raise ConfigError(f"{self.path}: not a JSON object")

    def integer(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{self.path}: {name} must be a positive integer, not {value!r}")
        return value

    def number(self, name: str, default: float) -> float:
        """A positive number."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise ConfigError(f"{self.path}: {name} must be a positive number, not {value!r}")
        return float(value)

    def refuse(self, name: str, allowed: tuple[object, ...]) -> None:
        """Raise if a field holds what this engine does not compute."""
        value = self.values.get(name, allowed[0])
        if value not in allowed:
            raise ConfigError(
                f"{self.path}: {name} is {value!r}; this engine computes only "
                + " or ".join(repr(item) for item in allowed)
            )


def _rope_theta(fields: _Fields) -> float:
    """The base of the rotary embedding, from the key style of transformers 4 or 5."""
    values = fields.values
    scaling = values.get("rope_parameters") or values.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ConfigError(
            f"{fields.path}: rotary scaling {kind!r}: this engine computes only plain RoPE"
        )
    return float(scaling.get("rope_theta") or fields.number("rope_theta", 10_000.0))


def _stop_ids(fields: _Fields) -> frozenset[int]:
    value = fields.values.get("eos_token_id")
    items = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) for item in items):
        raise ConfigError(f"{fields.path}: eos_token_id must be an integer or a list of them")
    return frozenset(items)


def _read(folder: Path, architecture: str) -> tuple[_Fields, dict[str, Any]]:
    fields = _Fields(folder)
    named = fields.values.get("architectures")
    if named != [architecture]:
        raise ConfigError(
            f"Model architectures {named} are not supported for now. "
            f"Supported architectures: {{'{architecture}'}} ({fields.path})"
        )
    for name, allowed in (
        ("hidden_act", ("silu",)),
        ("attention_bias", (False,)),
        ("mlp_bias", (False,)),
        ("bias", (False,)),
        ("fc_norm", (False,)),
        ("use_aux_norm", (False,)),
        ("norm_output", (False,)),
        ("norm_before_fc", (False,)),
    ):
        fields.refuse(name, allowed)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ConfigError(f"{fields.path}: {heads} heads is not divisible by {kv_heads} kv heads")
    return fields, {
        "path": folder,
        "architecture": architecture,
        "vocab": fields.integer("vocab_size"),
        "hidden": hidden,
        "intermediate": fields.integer("intermediate_size"),
        "layers": fields.integer("num_hidden_layers"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": fields.integer("head_dim", hidden // heads),
        "context": fields.integer("max_position_embeddings", 2048),
        "eps": fields.number("rms_norm_eps", 1e-6),
        "theta": _rope_theta(fields),
        "tied": fields.values.get("tie_word_embeddings", False) is True,
        "stop_ids": _stop_ids(fields),
    }


def read_target(folder: Path) -> ModelConfig:
    """The config of a target model.

    Raises:
        ConfigError: missing, malformed, or something this engine cannot serve.
    """
    _, common = _read(folder, TARGET_ARCHITECTURE)
    return ModelConfig(**common)


def _default_aux_layers(layers: int) -> tuple[int, int, int]:
    # SGLang captures before layers 2, n//2 and n-3 unless told otherwise; ids are one less.
    return 1, layers // 2 - 1, layers - 4


def _aux_layers(fields: _Fields, target: ModelConfig) -> tuple[int, ...]:
    eagle = fields.values.get("eagle_config") or {}
    ids = eagle.get("eagle_aux_hidden_state_layer_ids")
    ids = list(_default_aux_layers(target.layers)) if ids is None else ids
    # A state is captured before layer id+1 runs, so the last layer's output is out of reach.
    possible = range(target.layers - 1)
    if not isinstance(ids, list) or len(set(ids)) != len(ids) or not set(ids) <= set(possible):
        raise ConfigError(
            f"{fields.path}: eagle_aux_hidden_state_layer_ids {ids!r} must be distinct layers of "
            f"0..{target.layers - 2} of the target's {target.layers}"
        )
    # SGLang captures while it walks up the layers, whatever order the file lists.
    return tuple(sorted(ids))


def read_draft(folder: Path, target: ModelConfig) -> ModelConfig:
    """The config of an EAGLE-3 draft, checked against its target.

    Raises:
        ConfigError: missing, malformed, or made for another target.
    """
    fields, common = _read(folder, DRAFT_ARCHITECTURE)
    if common["layers"] != 1:
        raise ConfigError(f"{fields.path}: EAGLE3 currently only supports 1 layer")
    if "draft_vocab_size" not in fields.values:
        raise ConfigError(f"{fields.path}: draft_vocab_size is missing")
    draft_vocab = fields.integer("draft_vocab_size")
    for name, mine, wanted in (
        (
            "target_hidden_size",
            fields.integer("target_hidden_size", common["hidden"]),
            target.hidden,
        ),
        ("hidden_size", common["hidden"], target.hidden),
        ("vocab_size", common["vocab"], target.vocab),
    ):
        if mine != wanted:
            raise ConfigError(f"{fields.path}: {name} is {mine}, but the target has {wanted}")
    if draft_vocab > target.vocab:
        raise ConfigError(
            f"{fields.path}: draft_vocab_size {draft_vocab} exceeds vocab_size {target.vocab}"
        )
    return ModelConfig(**common, draft_vocab=draft_vocab, aux_layers=_aux_layers(fields, target))
