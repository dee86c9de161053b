"""The arithmetic that target and draft share: normalisation, rotary attention, SwiGLU.

Two things keep the number of operations small, which is what a step costs at this size on a CPU.
RMSNorm's weight is folded into the matrix that follows it, so normalising is one division. The
rotary table covers queries, keys and values (values by 1 and 0), so one product rotates all three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the customary name

from eagle3.cache import KVCache
from eagle3.config import ModelConfig


@dataclass(frozen=True)
class Span:
    """Where a batch of tokens lies and what each of them may see.

    Attributes:
        first: the slot of the first request; the others follow.
        positions: rotary positions, [batch, tokens].
        index: flat cache rows to write, [batch · tokens].
        reach: rows of each slot that attention looks at.
        mask: added to the scores, [batch, 1, tokens, reach]; None: everything within reach.
        causal: the tokens are a whole prompt from row 0.
    """

    first: int
    positions: Tensor
    index: Tensor
    reach: int
    mask: Tensor | None = None
    causal: bool = False


def norm_floor(config: ModelConfig, device: torch.device) -> Tensor:
    """√(n·ε), what :func:`normalise` keeps the length above; the same for every norm of a model."""
    return torch.tensor(math.sqrt(config.hidden * config.eps), device=device)


def normalise(x: Tensor, floor: Tensor) -> Tensor:
    """``x`` divided by √(Σx² + n·ε); with the weight times √n folded in, this is RMSNorm."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return (x / torch.hypot(length, floor)).to(x.dtype)


def fold(norm: Tensor, matrix: Tensor) -> Tensor:
    """A matrix [out, in] that takes what :func:`normalise` returns instead of RMSNorm's result."""
    return matrix * (norm * math.sqrt(norm.shape[0]))


class Rotary:
    """Cosines and signed sines for every position, as wide as queries, keys and values together."""

    def __init__(
        self, config: ModelConfig, positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        half = config.head_dim // 2
        inverse = config.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(positions, dtype=torch.float64)[:, None] * inverse
        turned = config.heads + config.kv_heads
        cos = torch.ones(positions, turned + config.kv_heads, config.head_dim, dtype=torch.float64)
        sin = torch.zeros_like(cos)
        cos[:, :turned] = torch.cat((angle.cos(), angle.cos()), -1)[:, None]
        sin[:, :turned] = torch.cat((-angle.sin(), angle.sin()), -1)[:, None]
        self.cos = cos.flatten(1).to(device, dtype)
        self.sin = sin.flatten(1).to(device, dtype)
        self.half, self.head_dim = half, config.head_dim

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of [batch, tokens] positions, flattened to one row a token."""
        flat = positions.flatten()
        return self.cos[flat], self.sin[flat]

    def turn(self, qkv: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate one row a token; rolling a head by half swaps its two halves."""
        cos, sin = angles
        swapped = qkv.view(len(qkv), -1, self.head_dim).roll(self.half, -1).view_as(qkv)
        return torch.addcmul(qkv * cos, swapped, sin)


class Block:
    """One decoder layer: attention and SwiGLU, each added to the residual stream.

    Args:
        config: sizes.
        layer: its number in the cache.
        norms: the RMSNorm weights in front of attention, one per part of its input.
        weights: the layer's tensors without their prefix.
    """

    def __init__(
        self, config: ModelConfig, layer: int, norms: list[Tensor], weights: Mapping[str, Tensor],
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self.config, self.layer = config, layer
        self.floor = norm_floor(config, device)
        scale = torch.cat([norm.float() * math.sqrt(norm.shape[0]) for norm in norms])
        qkv = (
            torch.cat([weights[f"self_attn.{name}_proj.weight"].float() for name in "qkv"]) * scale
        )
        gate_up = torch.cat([weights[f"mlp.{name}_proj.weight"].float() for name in ("gate", "up")])
        after = weights["post_attention_layernorm.weight"].float()

        def ready(matrix: Tensor) -> Tensor:
            return matrix.t().to(device, dtype).contiguous()

        self.qkv = ready(qkv)
        self.out = ready(weights["self_attn.o_proj.weight"].float())
        self.gate_up = ready(fold(after, gate_up))
        self.down = ready(weights["mlp.down_proj.weight"].float())

    def __call__(
        self, x: Tensor, source: Tensor, span: Span, cache: KVCache, rotary: Rotary,
        angles: tuple[Tensor, Tensor],
    ) -> Tensor:  # fmt: skip
        """The residual stream ``x`` [tokens, hidden] after this layer; ``source`` is attended."""
        config = self.config
        qkv = rotary.turn(source @ self.qkv, angles)
        cache.write(self.layer, span.index, qkv[:, config.q_size :])
        batch, tokens = span.positions.shape
        queries = qkv[:, : config.q_size].view(batch, tokens, config.heads, config.head_dim)
        slots = slice(span.first, span.first + batch)
        mixed = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            cache.keys[self.layer, slots, :, : span.reach],
            cache.values[self.layer, slots, :, : span.reach],
            attn_mask=span.mask,
            is_causal=span.causal,
            enable_gqa=config.heads != config.kv_heads,
        )
        x = torch.addmm(x, mixed.transpose(1, 2).reshape(batch * tokens, config.q_size), self.out)
        gate, up = (normalise(x, self.floor) @ self.gate_up).chunk(2, -1)
        return torch.addmm(x, F.silu(gate) * up, self.down)
