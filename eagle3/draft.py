"""The EAGLE-3 draft model: one decoder layer over a token's embedding and the target's states.

Index ``i`` of the draft consumes the embedding of token ``i + 1`` and the feature of token ``i``
and predicts token ``i + 2``. The feature is the target's (fused by ``fc``) where the target has
seen the token, else the draft's own hidden state of the step before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from eagle3 import checkpoint
from eagle3.cache import KVCache
from eagle3.checkpoint import Progress
from eagle3.config import ConfigError, ModelConfig
from eagle3.transformer import Block, Rotary, Span, fold, normalise


def _current_name(name: str) -> str:
    # SGLang accepts a leading "model." and, in later versions, writes the layer as layers.0.
    return name.removeprefix("model.").replace("layers.0.", "midlayer.", 1)


class Draft:
    """Weights of an EAGLE-3 draft, ready to run.

    Args:
        config: of the draft.
        embed: the target's embedding, shared.
        positions: length of the rotary table.
        progress: called with (shards read, shards in all).

    Raises:
        ConfigError: the checkpoint does not fit the config, or ``d2t`` the vocabulary.
    """

    def __init__(
        self, config: ModelConfig, *, embed: Tensor, positions: int,
        device: torch.device, dtype: torch.dtype, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.config, self.embed = config, embed
        whole = config.draft_vocab == config.vocab
        tensors = checkpoint.read(
            config.path, checkpoint.draft_shapes(config), progress=progress, rename=_current_name,
            # t2d is a training aid; the embedding is the target's.
            optional=frozenset({"t2d", "embed_tokens.weight"} | ({"d2t"} if whole else set())),
        )  # fmt: skip
        self.token_of = self._vocabulary(tensors.get("d2t")).to(device)
        self.fc = tensors["fc.weight"].t().to(device, dtype).contiguous()
        head = fold(tensors["norm.weight"].float(), tensors["lm_head.weight"].float())
        self.head = head.t().to(device, dtype).contiguous()
        prefix = "midlayer."
        own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        norms = [own["input_layernorm.weight"], own["hidden_norm.weight"]]
        self.block = Block(config, 0, norms, own, device, dtype)
        self.rotary = Rotary(config, positions, device, dtype)

    def _vocabulary(self, d2t: Tensor | None) -> Tensor:
        """The target's token id of each draft id; ``d2t`` holds the differences."""
        assert self.config.draft_vocab is not None
        own = torch.arange(self.config.draft_vocab)
        if d2t is None:
            return own
        tokens = own + d2t.long()
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.config.vocab:
            raise ConfigError(f"{self.config.path}: d2t points outside the vocabulary")
        if len(set(tokens.tolist())) != len(tokens):
            raise ConfigError(f"{self.config.path}: d2t names a token twice")
        return tokens

    def fuse(self, aux: Tensor) -> Tensor:
        """The feature of the target's auxiliary states."""
        return aux @ self.fc

    def forward(self, ids: Tensor, feature: Tensor, span: Span, cache: KVCache) -> Tensor:
        """The draft's hidden states, one row a token."""
        embedded = self.embed[ids.flatten()]
        source = torch.cat(
            (normalise(embedded, self.block.floor), normalise(feature, self.block.floor)), -1
        )
        return self.block(feature, source, span, cache, self.rotary, self.rotary.at(span.positions))

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the draft's vocabulary, fp32."""
        return (normalise(hidden, self.block.floor) @ self.head).float()
