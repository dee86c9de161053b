"""The target model: a Llama that also hands out the hidden states an EAGLE-3 draft reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3 import checkpoint
from eagle3.cache import KVCache
from eagle3.checkpoint import Progress
from eagle3.config import ModelConfig
from eagle3.transformer import Block, Rotary, Span, fold, normalise


class Target:
    """Weights of a Llama, ready to run.

    Args:
        config: of the target.
        aux_layers: layers whose outputs to hand out, ascending.
        positions: length of the rotary table.
        progress: called with (shards read, shards in all).

    Raises:
        ConfigError: the checkpoint does not fit the config.
    """

    def __init__(
        self, config: ModelConfig, *, aux_layers: Sequence[int], positions: int,
        device: torch.device, dtype: torch.dtype, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.config, self.aux_layers = config, frozenset(aux_layers)
        tensors = checkpoint.read(
            config.path, checkpoint.target_shapes(config), progress=progress,
            optional=frozenset({"lm_head.weight"}) if config.tied else frozenset(),
        )  # fmt: skip
        embed = tensors["model.embed_tokens.weight"].float()
        head = embed if config.tied else tensors["lm_head.weight"].float()
        self.embed = embed.to(device, dtype)
        self.head = (
            fold(tensors["model.norm.weight"].float(), head).t().to(device, dtype).contiguous()
        )
        self.rotary = Rotary(config, positions, device, dtype)
        self.blocks = []
        for layer in range(config.layers):
            prefix = f"model.layers.{layer}."
            own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            norms = [own["input_layernorm.weight"]]
            self.blocks.append(Block(config, layer, norms, own, device, dtype))

    def forward(self, ids: Tensor, span: Span, cache: KVCache) -> tuple[Tensor, Tensor | None]:
        """The last layer's hidden states and the auxiliary ones side by side, a row a token."""
        x = self.embed[ids.flatten()]
        angles = self.rotary.at(span.positions)
        aux = []
        for block in self.blocks:
            x = block(x, normalise(x, block.floor), span, cache, self.rotary, angles)
            if block.layer in self.aux_layers:
                aux.append(x)
        return x, torch.cat(aux, -1) if aux else None

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, fp32."""
        return (normalise(hidden, self.blocks[-1].floor) @ self.head).float()
