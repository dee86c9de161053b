"""The two networks as PyTorch modules to be trained; parameter names are those of the files."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the customary name


@dataclass(frozen=True)
class Shape:
    """Sizes of target and draft."""

    vocab: int = 1024
    hidden: int = 128
    intermediate: int = 384
    layers: int = 16
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 64
    context: int = 2048
    eps: float = 1e-6
    theta: float = 10_000.0
    draft_vocab: int = 768
    aux_ids: tuple[int, ...] = (1, 7, 12)
    """``eagle_aux_hidden_state_layer_ids``: the outputs of these layers feed the draft."""


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding in the half-split layout; ``x`` is [batch, heads, length, head_dim]."""
    half = x.shape[-1] // 2
    inverse = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions.float()[:, None] * inverse
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    left, right = x.float().chunk(2, -1)
    return (x.float() * cos + torch.cat((-right, left), -1) * sin).to(x.dtype)


class Attention(nn.Module):
    """Projections of grouped-query attention; the caller combines them."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, each [batch, heads, length, head_dim]."""
        size = self.shape.head_dim
        q, k, v = (
            proj(x).unflatten(-1, (-1, size)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        theta = self.shape.theta
        return rotate(q, positions, theta), rotate(k, positions, theta), v

    def merge(self, mixed: Tensor) -> Tensor:
        """The output projection of [batch, heads, length, head_dim]."""
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gate, multiply, project back."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


Cache = list[tuple[Tensor, Tensor]]


class Layer(nn.Module):
    """One decoder layer of the target."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape, shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape)

    def forward(
        self, x: Tensor, positions: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The residual stream after this layer, and all keys and values so far."""
        q, k, v = self.self_attn.project(self.input_layernorm(x), positions)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + self.self_attn.merge(mixed)
        return x + self.mlp(self.post_attention_layernorm(x)), (k, v)


class Body(nn.Module):
    """The part of the target that files call ``model.``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.eps)


class Target(nn.Module):
    """A Llama with tied embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(
                    parameter, std=0.02 if "embed" in name else parameter.shape[1] ** -0.5
                )
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.data *= (2 * shape.layers) ** -0.5

    def forward(
        self, ids: Tensor, past: Cache | None = None, offset: int = 0
    ) -> tuple[Tensor, Tensor, Cache]:
        """Logits, the concatenated auxiliary states, and the cache."""
        positions = torch.arange(offset, offset + ids.shape[1], device=ids.device)
        x = self.model.embed_tokens(ids)
        cache: Cache = []
        aux = []
        for index, layer in enumerate(self.model.layers):
            x, entry = layer(x, positions, past[index] if past else None)
            cache.append(entry)
            if index in self.shape.aux_ids:
                aux.append(x)
        logits = F.linear(self.model.norm(x), self.model.embed_tokens.weight)
        return logits, torch.cat(aux, -1), cache

    @torch.no_grad()
    def continue_(self, ids: Tensor, count: int, temperature: Tensor) -> Tensor:
        """``count`` more tokens per row; temperature 0 in a row means greedy."""
        logits, _, cache = self(ids)
        out = [ids]
        for step in range(count):
            last = logits[:, -1].float()
            noise = -torch.empty_like(last).exponential_().log()
            token = (last + temperature[:, None] * noise).argmax(-1, keepdim=True)
            out.append(token)
            logits, _, cache = self(token, cache, ids.shape[1] + step)
        return torch.cat(out, 1)


class DraftLayer(nn.Module):
    """The one decoder layer of an EAGLE-3 draft: twice as wide at its attention input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape)


class Draft(nn.Module):
    """An EAGLE-3 draft model, unrolled over its own predictions for training."""

    def __init__(self, shape: Shape, target: Target, hot: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.aux_ids) * shape.hidden, shape.hidden, bias=False)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)
        self.lm_head.weight.data.copy_(target.model.embed_tokens.weight.data[hot])
        self.norm.weight.data.copy_(target.model.norm.weight.data)

    def unroll(self, embedded: Tensor, aux: Tensor, passes: int) -> list[Tensor]:
        """Logits of each pass; pass ``k`` at index ``i`` predicts token ``i + 2 + k``.

        Pass 0 sees the target's states. Each later pass sees the hidden state of the pass before it
        at the same index and attends to the keys of pass 0 up to its index plus its own branch,
        which is what drafting sees after ``k`` drafted tokens.
        """
        layer, length = self.midlayer, aux.shape[1]
        index = torch.arange(length, device=aux.device)
        future = torch.ones(length, length, dtype=torch.bool, device=aux.device).triu(1)
        hidden, logits = self.fc(aux), []
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for k in range(passes):
            # What falls off the end has no target and is masked from the loss.
            shifted = torch.roll(embedded, -k, 1)
            both = torch.cat((layer.input_layernorm(shifted), layer.hidden_norm(hidden)), -1)
            q, key, value = layer.self_attn.project(both, index + k)
            keys.append(key)
            values.append(value)
            scale = q.shape[-1] ** -0.5
            scores = (q @ keys[0].transpose(-1, -2) * scale).masked_fill(future, float("-inf"))
            own = [(q * branch).sum(-1, keepdim=True) * scale for branch in keys[1:]]
            weights = torch.cat((scores, *own), -1).float().softmax(-1).to(q.dtype)
            mixed = weights[..., :length] @ values[0]
            for j, branch in enumerate(values[1:]):
                mixed = mixed + weights[..., length + j, None] * branch
            hidden = hidden + layer.self_attn.merge(mixed)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            logits.append(self.lm_head(self.norm(hidden)))
        return logits
