"""Drafting: what the draft proposes for the target to check, as a chain or as a tree.

Both take the draft's state after its last pass over accepted tokens (a hidden state and the scores
it gave) and return one :class:`Proposal` for the whole batch. The race
is the one in which the target will draw (:mod:`eagle3.sampling`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from eagle3.cache import KVCache
from eagle3.draft import Draft
from eagle3.sampling import Race
from eagle3.speculative_args import SpeculativeParams
from eagle3.transformer import Span

MASKED = float("-inf")


@dataclass(frozen=True)
class Proposal:
    """Tokens to check, node 0 being the last accepted token.

    Attributes:
        tokens: [batch, nodes]; column 0 is filled by the caller.
        depths: [batch, nodes]; None for a chain, where node j has depth j.
        parents: per request, each node's parent; None for a chain.
        ancestors: [batch, nodes, nodes], who may see whom; None for a chain.
    """

    tokens: Tensor
    depths: Tensor | None = None
    parents: list[list[int]] | None = None
    ancestors: Tensor | None = None

    @property
    def ahead(self) -> list[list[int]]:
        """Per request and node, how far behind the next token stands what is chosen after it."""
        if self.depths is not None:
            return self.depths.tolist()
        batch, nodes = self.tokens.shape
        return [list(range(nodes))] * batch

    def accept(self, request: int, drafted: list[int], chosen: list[int]) -> list[int]:
        """The nodes from the root to the deepest one that the target agrees with.

        Args:
            request: its row.
            drafted: the request's row of ``tokens``.
            chosen: the token the target chose after each node.
        """
        path = [0]
        if self.parents is None:
            for node in range(1, len(drafted)):
                if drafted[node] != chosen[node - 1]:
                    break
                path.append(node)
            return path
        parents = self.parents[request]
        for node in range(1, len(drafted)):  # parents come before their children
            if parents[node] == path[-1] and drafted[node] == chosen[path[-1]]:
                path.append(node)
        return path


def prefix_mask(limits: Tensor, reach: int) -> Tensor:
    """Scores' mask [batch, 1, tokens, reach] that shows rows up to and including ``limits``."""
    rows = torch.arange(reach, device=limits.device)
    hidden = rows > limits[:, None, :, None]
    return torch.zeros(hidden.shape, device=limits.device).masked_fill_(hidden, MASKED)


def branch_mask(lengths: Tensor, visible: Tensor, reach: int) -> Tensor:
    """Scores' mask for tokens that see a prefix and, behind it, only their own branch.

    Args:
        lengths: rows of the common prefix, [batch].
        visible: [batch, tokens, rows behind the prefix], bool.
        reach: rows in all.
    """
    batch, tokens, extra = visible.shape
    mask = prefix_mask((lengths - 1)[:, None].expand(batch, tokens), reach)
    branch = torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, MASKED)
    columns = lengths[:, None, None] + torch.arange(extra, device=lengths.device)
    return mask.scatter(3, columns.expand(batch, tokens, extra)[:, None], branch[:, None])


class Chain:
    """Drafts the one best token at each step."""

    def __init__(self, draft: Draft, params: SpeculativeParams) -> None:
        self.draft, self.steps = draft, params.steps

    def propose(
        self, hidden: Tensor, scores: Tensor, lengths: list[int], cache: KVCache, race: Race
    ) -> Proposal:
        """Draft for every request.

        Args:
            hidden: the draft's last hidden states, [batch, hidden].
            scores: what it scored after them, [batch, draft vocabulary].
            lengths: rows the draft has computed so far.
            cache: the draft's.
            race: for the tokens to be guessed.
        """
        batch, draft = len(lengths), self.draft
        start = torch.tensor(lengths, device=hidden.device)[:, None]
        tokens = [torch.zeros_like(start)]
        for step in range(self.steps):
            best = race.guess(scores, step, draft.token_of).argmax(-1, keepdim=True)
            token = draft.token_of[best]
            tokens.append(token)
            if step == self.steps - 1:
                break
            rows, reach = start + step, max(lengths) + step + 1
            mask = None if batch == 1 else prefix_mask(rows, reach).to(hidden.dtype)
            span = Span(0, rows, cache.index(0, rows), reach, mask)
            hidden = draft.forward(token, hidden, span, cache)
            scores = draft.logits(hidden)
        return Proposal(torch.cat(tokens, 1))


@dataclass
class _Candidates:
    """Every node a tree may be cut from, level by level, as tensors [batch, candidates]."""

    tokens: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)  # candidate numbers; -1 is the root
    depths: list[int] = field(default_factory=list)
    count: int = 0

    def add(self, tokens: Tensor, scores: Tensor, parents: Tensor) -> int:
        """Append a level; returns the number of its first candidate."""
        first = self.count
        self.tokens.append(tokens)
        self.scores.append(scores)
        self.parents.append(parents)
        self.depths += [len(self.tokens)] * tokens.shape[1]
        self.count += tokens.shape[1]
        return first


class Tree:
    """Keeps the best ``topk`` branches at each step, then cuts the most probable tree."""

    def __init__(self, draft: Draft, params: SpeculativeParams) -> None:
        self.draft, self.params, self.steps = draft, params, params.steps

    def propose(
        self, hidden: Tensor, scores: Tensor, lengths: list[int], cache: KVCache, race: Race
    ) -> Proposal:
        """As :meth:`Chain.propose`."""
        topk, steps, batch = self.params.topk, self.params.steps, len(lengths)
        start = torch.tensor(lengths, device=hidden.device)
        found = _Candidates()
        raced = race.guess(scores, 0, self.draft.token_of)
        best, ids = raced.log_softmax(-1).topk(topk)
        tokens = self.draft.token_of[ids]
        first = found.add(tokens, best, torch.full_like(tokens, -1))
        numbers = torch.arange(topk, device=hidden.device).expand(batch, topk) + first
        hidden = hidden[:, None].expand(batch, topk, -1)
        seen = torch.zeros(batch, topk, 0, dtype=torch.bool, device=hidden.device)
        for step in range(steps - 1):
            own = torch.eye(topk, dtype=torch.bool, device=hidden.device).expand(batch, topk, topk)
            seen = torch.cat((seen, own), 2)
            hidden, scores = self._decode(tokens, hidden, seen, start, step, cache)
            raced = race.guess(scores, step + 1, self.draft.token_of)
            gain, ids = raced.log_softmax(-1).topk(topk)
            total = (best[..., None] + gain).flatten(1)
            every = self.draft.token_of[ids].flatten(1)
            first = found.add(every, total, numbers.repeat_interleave(topk, 1))
            best, kept = total.topk(topk)
            beam, tokens, numbers = kept // topk, every.gather(1, kept), kept + first
            hidden = hidden.gather(1, beam[..., None].expand(-1, -1, hidden.shape[-1]))
            seen = seen.gather(1, beam[..., None].expand(-1, -1, seen.shape[-1]))
        return self._cut(found)

    def _decode(
        self, tokens: Tensor, hidden: Tensor, seen: Tensor, start: Tensor, step: int, cache: KVCache
    ) -> tuple[Tensor, Tensor]:
        """One draft pass over the beam; its rows lie behind those of the levels before."""
        batch, topk = tokens.shape
        beam = torch.arange(topk, device=start.device)
        rows = start[:, None] + step * topk + beam
        reach = int(start.max()) + (step + 1) * topk
        mask = branch_mask(start, seen, reach).to(hidden.dtype)
        positions = (start + step)[:, None].expand(batch, topk)
        span = Span(0, positions, cache.index(0, rows), reach, mask)
        after = self.draft.forward(tokens, hidden.reshape(batch * topk, -1), span, cache)
        return after.view(batch, topk, -1), self.draft.logits(after).view(batch, topk, -1)

    def _cut(self, found: _Candidates) -> Proposal:
        """The most probable nodes of all candidates, ancestors always included."""
        tokens, scores = torch.cat(found.tokens, 1), torch.cat(found.scores, 1)
        parents = torch.cat(found.parents, 1)
        depths = torch.tensor(found.depths, device=tokens.device)
        # A sure child ties with its parent; the parent must win.
        ranked = scores - 1e-4 * depths
        count = min(self.params.draft_tokens - 1, tokens.shape[1])
        chosen = ranked.topk(count).indices.sort().values
        batch, nodes = tokens.shape[0], count + 1
        place = torch.zeros(batch, tokens.shape[1] + 1, dtype=torch.long, device=tokens.device)
        numbers = torch.arange(1, nodes, device=tokens.device).expand(batch, count)
        place.scatter_(1, chosen + 1, numbers)
        above = place.gather(1, parents.gather(1, chosen) + 1)
        root = torch.zeros(batch, 1, dtype=torch.long, device=tokens.device)
        above = torch.cat((root, above), 1)
        ancestors = torch.eye(nodes, device=tokens.device).expand(batch, nodes, nodes)
        step = torch.zeros(batch, nodes, nodes, device=tokens.device).scatter_(
            2, above[..., None], 1.0
        )
        for _ in range(self.params.steps):
            ancestors = ancestors.maximum(step @ ancestors)
        return Proposal(
            tokens=torch.cat((root, tokens.gather(1, chosen)), 1),
            depths=torch.cat((root, depths[chosen]), 1),
            parents=above.tolist(),
            ancestors=ancestors > 0,
        )
