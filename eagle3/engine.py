"""Decoding: prefill a request, then advance all running requests together, step by step.

Without a draft a step yields one token per request. With one, a step drafts, lets the target check
the draft in one pass and yields the accepted tokens plus the target's own next one. The tokens are
the same either way.

Numbers used throughout, for a request with ``n + 1`` tokens so far: the target's cache holds rows
``0 … n-1`` and the last token, the *root*, is not in it yet. The draft has computed rows
``0 … n-1`` too; its row ``i`` consumed token ``i + 1``.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from eagle3.cache import KVCache
from eagle3.checkpoint import Progress
from eagle3.config import ModelConfig, read_draft, read_target
from eagle3.draft import Draft
from eagle3.sampling import Race
from eagle3.sampling_params import SamplingParams
from eagle3.speculation import Chain, Proposal, Tree, branch_mask, prefix_mask
from eagle3.speculative_args import SpeculativeParams
from eagle3.target import Target
from eagle3.transformer import Span


@dataclass
class Sequence:
    """One running request.

    Attributes:
        tokens: prompt and answer so far.
        prompt_length: how many of them are the prompt.
        slot: where its keys lie; set by the engine.
        logprobs: of the chosen tokens, where asked for.
        verify_steps: passes of the target that checked a draft.
        accepted: drafted tokens that were accepted, over all those passes.
    """

    tokens: list[int]
    params: SamplingParams
    prompt_length: int = 0
    slot: int = -1
    logprobs: list[float] = field(default_factory=list)
    verify_steps: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class EngineConfig:
    """What an engine is built from.

    Attributes:
        context: longest prompt plus answer, tokens.
        slots: requests that can run at once.
        chunk: prompt tokens computed in one pass.
        dtype: "auto", "float32" or "bfloat16".
    """

    target: Path
    draft: Path | None = None
    speculative: SpeculativeParams | None = None
    context: int | None = None
    slots: int = 8
    chunk: int = 2048
    device: str = "cpu"
    dtype: str = "auto"


def _dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format to compute in.

    On a CPU "auto" is fp32, because bf16 in eager mode is slower. On CUDA it is bf16, as in SGLang,
    where passes of different shapes may round a near tie differently; fp32 does not.
    """
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


class Engine:
    """Target, optional draft, their caches and the running requests.

    The parts are loaded by :meth:`load_target` and :meth:`load_draft`, so that a server can report
    each; a plain user calls :meth:`load`.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.device = torch.device(config.device)
        self.dtype = _dtype(config.dtype, self.device)
        self.target_config: ModelConfig = read_target(config.target)
        self.context = config.context or self.target_config.context
        self.draft_config: ModelConfig | None = None
        if config.draft is not None:
            self.draft_config = read_draft(config.draft, self.target_config)
        self.running: list[Sequence] = []

    @classmethod
    def load(cls, config: EngineConfig) -> Engine:
        """An engine ready to use.

        Raises:
            ConfigError: a model folder does not fit.
        """
        engine = cls(config)
        engine.load_target()
        engine.allocate_target()
        if config.draft is not None:
            engine.load_draft()
            engine.allocate_draft()
        return engine

    @property
    def _margin(self) -> int:
        """Rows behind the context: drafted tokens may lie past it for one step."""
        params = self.config.speculative
        return max(params.draft_tokens, params.steps * params.topk) + 1 if params else 1

    def load_target(self, progress: Progress | None = None) -> None:
        """Read the target's weights."""
        aux = self.draft_config.aux_layers if self.draft_config else ()
        self.target = Target(
            self.target_config, aux_layers=aux, positions=self.context + self._margin,
            device=self.device, dtype=self.dtype, progress=progress,
        )  # fmt: skip

    def _pool(self, config: ModelConfig) -> KVCache:
        return KVCache(
            layers=config.layers, slots=self.config.slots, rows=self.context + self._margin,
            heads=config.kv_heads, head_dim=config.head_dim, device=self.device, dtype=self.dtype,
        )  # fmt: skip

    def allocate_target(self) -> KVCache:
        """Make room for the target's keys and values."""
        self.cache = self._pool(self.target_config)
        return self.cache

    def load_draft(self, progress: Progress | None = None) -> None:
        """Read the draft's weights; the embedding is the target's."""
        assert self.draft_config is not None
        assert self.config.speculative is not None
        self.draft = Draft(
            self.draft_config, embed=self.target.embed, positions=self.context + self._margin,
            device=self.device, dtype=self.dtype, progress=progress,
        )  # fmt: skip
        make = Chain if self.config.speculative.topk == 1 else Tree
        self.drafter = make(self.draft, self.config.speculative)

    def allocate_draft(self) -> KVCache:
        """Make room for the draft's keys and values and for its state per request."""
        assert self.draft_config is not None
        self.draft_cache = self._pool(self.draft_config)
        slots, size = self.config.slots, self.draft_config
        self.hidden = torch.zeros(slots, size.hidden, device=self.device, dtype=self.dtype)
        self.scores = torch.zeros(slots, size.draft_vocab or 0, device=self.device)
        return self.draft_cache

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self.running) >= self.config.slots

    @torch.inference_mode()
    def admit(self, sequence: Sequence) -> int:
        """Prefill a request and choose its first token, which is returned and appended."""
        sequence.slot, sequence.prompt_length = len(self.running), len(sequence.tokens)
        length = sequence.prompt_length
        ids = torch.tensor([sequence.tokens], device=self.device)
        features = []
        for begin in range(0, length, self.config.chunk):
            end = min(begin + self.config.chunk, length)
            span = self._prompt_span(sequence.slot, begin, end, self.cache)
            hidden, aux = self.target.forward(ids[:, begin:end], span, self.cache)
            if aux is not None:
                features.append(self.draft.fuse(aux))
        logits = self.target.logits(hidden[-1:])
        token = int(self._race([sequence], 1).choose(logits[None], [[0]])[0, 0])
        self._keep_logprobs(sequence, logits, [token])
        sequence.tokens.append(token)
        self.running.append(sequence)
        if features:
            self._draft_prompt(sequence, torch.cat(features))
        return token

    def _prompt_span(self, slot: int, begin: int, end: int, cache: KVCache) -> Span:
        rows = torch.arange(begin, end, device=self.device)[None]
        mask = None if begin == 0 else prefix_mask(rows, end).to(self.dtype)
        return Span(slot, rows, cache.index(slot, rows), end, mask, causal=begin == 0)

    def _draft_prompt(self, sequence: Sequence, features: Tensor) -> None:
        """Run the draft over the prompt, shifted by one, with the target's features."""
        ids = torch.tensor([sequence.tokens[1:]], device=self.device)
        length = ids.shape[1]
        for begin in range(0, length, self.config.chunk):
            end = min(begin + self.config.chunk, length)
            span = self._prompt_span(sequence.slot, begin, end, self.draft_cache)
            part = features[begin:end]
            hidden = self.draft.forward(ids[:, begin:end], part, span, self.draft_cache)
        self.hidden[sequence.slot] = hidden[-1]
        self.scores[sequence.slot] = self.draft.logits(hidden[-1:])[0]

    @torch.inference_mode()
    def step(self) -> list[list[int]]:
        """Advance every running request; the new tokens of each, in the order of ``running``."""
        if self.config.speculative is None:
            return self._decode()
        return self._speculate()

    def _decode(self) -> list[list[int]]:
        """One token for every request."""
        rows = torch.tensor([[len(s.tokens) - 1] for s in self.running], device=self.device)
        ids = torch.tensor([[s.tokens[-1]] for s in self.running], device=self.device)
        reach = max(len(s.tokens) for s in self.running)
        mask = prefix_mask(rows, reach).to(self.dtype) if len(self.running) > 1 else None
        span = Span(0, rows, self.cache.index(0, rows), reach, mask)
        hidden, _ = self.target.forward(ids, span, self.cache)
        logits = self.target.logits(hidden)[:, None]
        race = self._race(self.running, 1)
        chosen = race.choose(logits, [[0]] * len(self.running)).tolist()
        for sequence, tokens, row in zip(self.running, chosen, logits, strict=True):
            self._keep_logprobs(sequence, row, tokens)
            sequence.tokens += tokens
        return chosen

    def _speculate(self) -> list[list[int]]:
        """Draft, verify, keep what the target agrees with, and catch the draft up."""
        batch = len(self.running)
        lengths = [len(s.tokens) - 1 for s in self.running]
        race = self._race(self.running, self.drafter.steps + 1)
        proposal = self.drafter.propose(
            self.hidden[:batch], self.scores[:batch], lengths, self.draft_cache, race
        )
        roots = torch.tensor([s.tokens[-1] for s in self.running], device=self.device)
        proposal.tokens[:, 0] = roots
        logits, features = self._verify(proposal, lengths)
        chosen = race.choose(logits, proposal.ahead)
        drafted, picked = proposal.tokens.tolist(), chosen.tolist()
        paths, accepted = [], []
        for request, sequence in enumerate(self.running):
            path = proposal.accept(request, drafted[request], picked[request])
            tokens = [picked[request][node] for node in path]
            self.cache.compact(request, lengths[request], path)
            self._keep_logprobs(sequence, logits[request, path], tokens)
            sequence.tokens += tokens
            sequence.verify_steps += 1
            sequence.accepted += len(path) - 1
            paths.append(path)
            accepted.append(tokens)
        self._catch_up(paths, accepted, features, lengths)
        return accepted

    def _race(self, running: Seq[Sequence], ahead: int) -> Race:
        """The race for the next ``ahead`` tokens of each."""
        params, positions = [s.params for s in running], [len(s.tokens) for s in running]
        return Race(params, positions, ahead, self.target_config.vocab, self.device)

    def _verify(self, proposal: Proposal, lengths: list[int]) -> tuple[Tensor, Tensor]:
        """The target's scores after every proposed node, and the features of those nodes."""
        batch, nodes = proposal.tokens.shape
        start = torch.tensor(lengths, device=self.device)
        rows = start[:, None] + torch.arange(nodes, device=self.device)
        reach = max(lengths) + nodes
        if proposal.depths is None or proposal.ancestors is None:
            positions, mask = rows, prefix_mask(rows, reach)
        else:
            positions = start[:, None] + proposal.depths
            mask = branch_mask(start, proposal.ancestors, reach)
        span = Span(0, positions, self.cache.index(0, rows), reach, mask.to(self.dtype))
        hidden, aux = self.target.forward(proposal.tokens, span, self.cache)
        assert aux is not None
        logits = self.target.logits(hidden).view(batch, nodes, -1)
        return logits, self.draft.fuse(aux).view(batch, nodes, -1)

    def _catch_up(
        self,
        paths: list[list[int]],
        accepted: list[list[int]],
        features: Tensor,
        lengths: list[int],
    ) -> None:
        """Run the draft over the accepted tokens with the target's true features.

        Shorter paths are padded; their padding lies behind what is read and is overwritten later.
        """
        longest = max(map(len, paths))
        nodes = torch.tensor([p + [0] * (longest - len(p)) for p in paths], device=self.device)
        ids = torch.tensor([t + [0] * (longest - len(t)) for t in accepted], device=self.device)
        index = nodes[..., None].expand(-1, -1, features.shape[-1])
        part = features.gather(1, index).flatten(0, 1)
        start = torch.tensor(lengths, device=self.device)[:, None]
        rows = start + torch.arange(longest, device=self.device)
        reach = max(lengths) + longest
        mask = None
        if len(paths) > 1 or longest > 1:
            mask = prefix_mask(rows, reach).to(self.dtype)
        span = Span(0, rows, self.draft_cache.index(0, rows), reach, mask)
        hidden = self.draft.forward(ids, part, span, self.draft_cache)
        last = hidden.view(len(paths), longest, -1)[
            torch.arange(len(paths), device=self.device), [len(path) - 1 for path in paths]
        ]
        self.hidden[: len(paths)] = last
        self.scores[: len(paths)] = self.draft.logits(last)

    def _keep_logprobs(self, sequence: Sequence, logits: Tensor, tokens: list[int]) -> None:
        if sequence.params.logprobs:
            chosen = torch.tensor(tokens, device=logits.device)[:, None]
            sequence.logprobs += logits.log_softmax(-1).gather(1, chosen)[:, 0].tolist()

    @torch.inference_mode()
    def release(self, sequence: Sequence) -> None:
        """Take a request out; the last one moves into its slot."""
        slot, last = sequence.slot, self.running.pop()
        if last is sequence:
            return
        rows = len(last.tokens)
        self.cache.move(last.slot, slot, rows)
        if self.config.speculative is not None:
            self.draft_cache.move(last.slot, slot, rows)
            self.hidden[slot] = self.hidden[last.slot]
            self.scores[slot] = self.scores[last.slot]
        last.slot = slot
        self.running[slot] = last
