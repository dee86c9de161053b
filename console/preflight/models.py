"""What a model's config.json means to the engine: text part, context length, heads, sizes.

Facts: SGLang hf_transformers get_hf_text_config and get_context_length, configs/model_config.py;
transformers 4.57.1 and 5.6.0 for what becomes of ``rope_scaling``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_TEXT_PARTS = ("thinker_config", "llm_config", "language_config", "text_config")

# max_position_embeddings of the transformers class where config.json leaves it out.
_CLASS_DEFAULT = {
    "llama": 2048,
    "qwen2": 32768,
    "qwen3": 32768,
    "qwen2_moe": 32768,
    "qwen3_moe": 32768,
    "mistral": 131072,
    "deepseek_v3": 4096,
    "deepseek_v2": 2048,
    "gpt_oss": 131072,
    "kimi_k2": 4096,
}
_NO_CONTEXT = 2048
"""What the engine assumes where no key gives a length."""

# Rope types to which transformers 5 adds original_max_position_embeddings, so no factor applies.
_STANDARDISED = ("yarn", "longrope", "llama3")

BYTES = {
    "float32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0,
    "F32": 4.0, "F16": 2.0, "BF16": 2.0, "F8_E4M3": 1.0, "F8_E5M2": 1.0, "I8": 1.0, "U8": 1.0,
    "I16": 2.0, "I32": 4.0, "I64": 8.0, "F64": 8.0, "BOOL": 1.0,
}  # fmt: skip


# Families whose feed-forward layers are gated (three matrices) and alike in every layer.
_GATED = (
    *("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Gemma2", "Gemma3For", "Glm4", "Deepseek"),
    *("Kimi", "GptOss", "MiniMaxM", "Phi3", "Olmo", "InternLM", "Granite", "Bailing", "Exaone"),
)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the language model."""
    architectures = config.get("architectures")
    first = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if first.startswith("Llava") and first.endswith("ForCausalLM"):
        return config
    for part in _TEXT_PARTS:
        inner = config.get(part)
        if isinstance(inner, Mapping):
            deeper = inner.get("text_config")
            return deeper if isinstance(deeper, Mapping) and part == "thinker_config" else inner
    return config


def architecture(config: Mapping[str, Any] | None) -> str | None:
    """The first architecture that a config names."""
    names = (config or {}).get("architectures")
    return str(names[0]) if isinstance(names, list) and names else None


def overridden(
    config: Mapping[str, Any] | None, changes: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """A config as ``--json-model-override-args`` changes it, for target and draft alike.

    A part (``text_config``) and the rope settings are merged, everything else is replaced.
    """
    if config is None or not changes:
        return config
    out = dict(config)
    for key, value in changes.items():
        old = out.get(key)
        merge = isinstance(value, Mapping) and isinstance(old, Mapping)
        out[key] = {**old, **value} if merge else value  # type: ignore[dict-item]
    return out


@dataclass(frozen=True, slots=True)
class Derived:
    """A context length and how it came about, in words."""

    tokens: int
    how: str


def context_length(config: Mapping[str, Any] | None, transformers: int) -> Derived | None:
    """The length that the engine derives from a config; ``transformers`` is the major version.

    None where the config is unknown or holds no usable number.
    """
    if config is None:
        return None
    text = text_config(config)
    key = next((k for k in CONTEXT_KEYS if text.get(k) is not None), None)
    if key is None:
        kind = str(text.get("model_type", ""))
        if kind in _CLASS_DEFAULT:
            length = _CLASS_DEFAULT[kind]
            return Derived(length, f"the default of model_type {kind}, the config names none")
        return (
            Derived(_NO_CONTEXT, "what is assumed where the config names none")
            if not kind
            else None
        )
    value = text[key]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    factor = rope_factor(text, transformers)
    if factor == 1:
        return Derived(int(value), key)
    return Derived(int(factor * value), f"{key} {int(value)} times rope factor {factor:g}")


def rope_factor(text: Mapping[str, Any], transformers: int) -> float:
    """The factor that the derived length is multiplied with."""
    rope = text.get("rope_scaling") or (text.get("rope_parameters") if transformers >= 5 else None)
    if not isinstance(rope, Mapping) or "original_max_position_embeddings" in rope:
        return 1.0
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "llama3" or (transformers >= 5 and kind in _STANDARDISED):
        return 1.0
    factor = rope.get("factor", 1)
    is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return float(factor) if is_number else 1.0


def whole(config: Mapping[str, Any] | None, *keys: str) -> int | None:
    """The first of the keys that holds a positive whole number in the text part of a config."""
    text = text_config(config) if config is not None else {}
    for key in keys:
        value = text.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def uses_mla(config: Mapping[str, Any] | None) -> bool:
    """Whether attention keeps one compressed latent per token (kv_lora_rank) for all heads."""
    return whole(config, "kv_lora_rank") is not None


def has_experts(config: Mapping[str, Any] | None) -> bool:
    """Whether the model is a mixture of experts."""
    keys = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return (whole(config, *keys) or 0) > 1


def kv_bytes_per_token(config: Mapping[str, Any] | None, tp: int, item: float) -> float | None:
    """Bytes of KV cache that one token takes on one of ``tp`` devices; None where unknown."""
    layers = whole(config, "num_hidden_layers")
    if layers is None:
        return None
    latent = whole(config, "kv_lora_rank")
    if latent is not None:
        rope = whole(config, "qk_rope_head_dim") or 64
        return layers * (latent + rope) * item
    heads = whole(config, "num_attention_heads")
    hidden = whole(config, "hidden_size")
    kv_heads = whole(config, "num_key_value_heads") or heads
    if heads is None or kv_heads is None or (hidden is None and whole(config, "head_dim") is None):
        return None
    head_dim = whole(config, "head_dim") or (hidden or 0) // heads
    return 2 * layers * max(1.0, kv_heads / tp) * head_dim * item


def parameter_bytes(config: Mapping[str, Any] | None) -> float | None:
    """Bytes of a model's weights by its config; None for shapes that it does not tell.

    Counts attention, gated feed-forward layers, experts and embeddings; norms are left out.
    """
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    if config is None or not (architecture(config) or "").startswith(_GATED):
        return None
    layers, hidden, heads, vocab = (whole(config, name) for name in names)
    inner = feed_forward(config)
    if not (layers and hidden and heads and vocab) or inner is None:
        return None
    tied = text_config(config).get("tie_word_embeddings") is True
    embeddings = vocab * hidden * (1 if tied else 2) * item_bytes(config)
    blocks = layers * attention_weights(config, hidden, heads) + 3 * hidden * inner
    return blocks * quantised_bytes(config) + embeddings


def feed_forward(config: Mapping[str, Any]) -> int | None:
    """The feed-forward widths of all layers added up, experts included; None where unknown."""
    layers, inner = whole(config, "num_hidden_layers") or 0, whole(config, "intermediate_size")
    if not has_experts(config):
        return layers * inner if inner else None
    text = text_config(config)
    experts = whole(config, "num_experts", "n_routed_experts", "num_local_experts") or 0
    width = whole(config, "moe_intermediate_size", "intermediate_size")
    first = text.get("first_k_dense_replace", 0)
    if width is None or not isinstance(first, int) or ("moe_layer_freq" in text and first == 0):
        return None
    if first >= layers:
        return None
    shared_ = text.get("n_shared_experts") or 0
    every = experts + (shared_ if isinstance(shared_, int) else 0)
    return (layers - first) * every * width + first * (inner or width)


def attention_weights(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    """Weights of one layer's attention."""
    latent = whole(config, "kv_lora_rank")
    if latent is None:
        head_dim = whole(config, "head_dim") or hidden // heads
        kv_heads = whole(config, "num_key_value_heads") or heads
        return hidden * head_dim * (2 * heads + 2 * kv_heads)
    rope = whole(config, "qk_rope_head_dim") or 64
    nope = whole(config, "qk_nope_head_dim") or 128
    value = whole(config, "v_head_dim") or 128
    low = whole(config, "q_lora_rank")
    query = low * (hidden + heads * (nope + rope)) if low else hidden * heads * (nope + rope)
    return (
        query + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    )


def quantised_bytes(config: Mapping[str, Any]) -> float:
    """Bytes of one weight as it lies in the checkpoint."""
    for part in (config, text_config(config)):
        made = part.get("quantization_config")
        if isinstance(made, Mapping):
            bits = made.get("bits")
            method = str(made.get("quant_method", "")).lower()
            algorithm = str(made.get("quant_algo", "")).upper()
            if isinstance(bits, int) and 1 < bits <= 8:
                return bits / 8
            if method == "fp8" or "FP8" in algorithm:
                return 1.0
            return 0.5  # the least that any method takes
    return item_bytes(config)


def item_bytes(config: Mapping[str, Any]) -> float:
    """Bytes of one weight by the config's dtype; 2 where it names none."""
    name = str(config.get("torch_dtype") or config.get("dtype") or text_config(config).get("dtype"))
    return BYTES.get(name.removeprefix("torch."), 2.0)
