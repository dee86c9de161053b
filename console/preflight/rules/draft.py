"""Rules over the draft's config.json against the target's: what the draft worker would fail on.

Facts: SGLang models/llama_eagle3.py, configs/model_config.py, speculative/eagle_worker.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from console.model import Change, Finding
from console.preflight.context import CONTEXT_OVERRIDE, EAGLE_FAMILY, Context
from console.preflight.models import architecture, context_length, text_config, whole
from console.preflight.tables import first_with

_DRAFT = "--speculative-draft-model-path"
_EAGLE_KEYS = ("eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state")
_RISK = (
    "positions beyond the draft's training length: acceptance falls, text stays right; on the "
    "target itself it can produce wrong text or CUDA errors"
)


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the draft's config."""
    if not ctx.sglang or ctx.algorithm not in EAGLE_FAMILY:
        return
    if ctx.draft is None:
        return
    yield from draft_length(ctx)
    yield from draft_architecture(ctx)
    if ctx.algorithm == "EAGLE3" and architecture(ctx.draft) in ctx.table.eagle3_drafts:
        yield from layers(ctx)
        yield from hidden(ctx)
        yield from vocabulary(ctx)
    elif ctx.algorithm == "STANDALONE":
        yield from same_vocabulary(ctx)


def draft_length(ctx: Context) -> Iterator[Finding]:
    """The draft worker is built with the target's context length."""
    target = ctx.target_context()
    draft = context_length(ctx.draft, ctx.transformers)
    if target is None or draft is None or target.tokens <= draft.tokens:
        return
    numbers = (
        f"the draft's context is {draft.tokens} ({draft.how}), the target serves {target.tokens} "
        f"({target.how})"
    )
    if ctx.overrides_context:
        yield ctx.warning(
            "draft-context",
            f"{numbers}; {CONTEXT_OVERRIDE} lets it through and the draft runs at {target.tokens}: "
            f"{_RISK}",
            f"use --context-length {draft.tokens} where requests are shorter",
            "--context-length",
            _DRAFT,
        )
        return
    yield ctx.error(
        "draft-context",
        f"{numbers}; every rank fails with a ValueError after the target has loaded",
        f"use --context-length {draft.tokens}, or set {CONTEXT_OVERRIDE}=1 ({_RISK})",
        "--context-length",
        _DRAFT,
        change=Change(
            flags={"context-length": draft.tokens},
            why=f"serves {draft.tokens} tokens instead of {target.tokens}",
        ),
    )


def draft_architecture(ctx: Context) -> Iterator[Finding]:
    """The draft's class is one that this version has, and one for the algorithm."""
    arch = architecture(ctx.draft)
    if arch is None:
        yield ctx.error(
            "draft-architecture",
            "the draft's config.json names no architecture",
            'set "architectures": ["LlamaForCausalLMEagle3"] if its weights follow that layout',
            _DRAFT,
        )
        return
    tables = [t for t in (ctx.table, ctx.tables.above) if t]
    eagle3 = any(arch in table.eagle3_drafts for table in tables)
    if ctx.algorithm == "EAGLE" and eagle3:
        yield ctx.warning(
            "draft-algorithm",
            f"the draft is an EAGLE-3 draft ({arch}) and the algorithm is EAGLE: it would be fed "
            "the wrong hidden states and accept next to nothing",
            "use --speculative-algorithm EAGLE3",
            "--speculative-algorithm",
            _DRAFT,
            change=Change(flags={"speculative-algorithm": "EAGLE3"}),
        )
    elif not any(arch in table.architectures for table in tables):
        yield from unregistered(ctx, arch)
    elif ctx.algorithm == "EAGLE3" and not eagle3 and not arch.endswith(("NextN", "MTP")):
        if ctx.own_draft:
            return  # a target with its own draft layer; its class is replaced on load
        yield ctx.error(
            "draft-architecture",
            f"the draft's {arch} is no EAGLE-3 draft; {ctx.tables.version} has "
            f"{', '.join(sorted(ctx.table.eagle3_drafts))}",
            "name the draft's folder, not a model's; an EAGLE-1 or EAGLE-2 draft takes "
            "--speculative-algorithm EAGLE",
            _DRAFT,
            "--speculative-algorithm",
        )


def unregistered(ctx: Context, arch: str) -> Iterator[Finding]:
    """A class that this version does not have."""
    later = first_with(arch)
    near = difflib.get_close_matches(arch, ctx.table.architectures, n=1, cutoff=0.6)
    if later:
        fix = f"SGLang {later} has it"
    elif "eagle3" in arch.lower() or "speculator" in arch.lower():
        fix = "it may be in another engine's format: convert it to LlamaForCausalLMEagle3"
    else:
        fix = f"did you mean {near[0]}?" if near else "check the draft's config.json"
    yield ctx.error(
        "draft-architecture",
        f"the draft's {arch} is not among the models of {ctx.tables.version}; the start fails "
        "after the target has loaded",
        fix,
        _DRAFT,
    )


def layers(ctx: Context) -> Iterator[Finding]:
    """One layer only in older versions; and the layers of the target that it listens to."""
    count = whole(ctx.draft, "num_hidden_layers")
    if (ctx.source("draft-layers") or ctx.bundled) and count not in (None, 1):
        yield ctx.error(
            "draft-layers",
            f"the draft has {count} layers, this engine supports 1",
            "use a one-layer draft, or SGLang 0.5.12 or later",
            _DRAFT,
        )
    eagle = (ctx.draft or {}).get("eagle_config")
    if eagle is not None and not isinstance(eagle, Mapping):
        read = ctx.since("0.5.12")
        make = ctx.error if read else ctx.warning
        yield make(
            "draft-eagle-config",
            f"eagle_config in the draft's config.json is a {type(eagle).__name__}, not a mapping: "
            + ("the draft cannot be built" if read else "default layers are used instead"),
            'write it as {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}',
            _DRAFT,
        )
        return
    yield from eagle_keys(ctx, eagle or {})
    yield from captured(ctx, eagle or {})


def eagle_keys(ctx: Context, eagle: Mapping[str, Any]) -> Iterator[Finding]:
    """Misspelt keys are swallowed; use_aux_hidden_state false starves the draft."""
    for key in eagle:
        near = difflib.get_close_matches(str(key), _EAGLE_KEYS, n=1, cutoff=0.75)
        if near and key not in _EAGLE_KEYS:
            yield ctx.warning(
                "draft-eagle-config",
                f"eagle_config has '{str(key)[:60]}', which nothing reads; default layers are used "
                "and acceptance falls",
                f"rename it to {near[0]}",
                _DRAFT,
            )
    if eagle.get("use_aux_hidden_state") is False and ctx.since("0.5.8"):
        yield ctx.warning(
            "draft-eagle-config",
            "eagle_config sets use_aux_hidden_state to false: the draft gets the last hidden state "
            "only, which this class is not made for, and accepts next to nothing",
            "set it to true",
            _DRAFT,
        )


def captured(ctx: Context, eagle: Mapping[str, Any]) -> Iterator[Finding]:
    """The layers whose states are captured exist, differ, and are as many as the draft takes."""
    ids = eagle.get("eagle_aux_hidden_state_layer_ids")
    depth = whole(ctx.target, "num_hidden_layers")
    wanted = whole(ctx.draft, "num_aux_hidden_states") if ctx.since("0.5.12") else 3
    if ids is None:
        if depth is not None and depth < 7 and architecture(ctx.target) == "LlamaForCausalLM":
            default = [2, depth // 2, depth - 3]
            yield ctx.error(
                "draft-aux-layers",
                f"the draft names no layers and the defaults for {depth} layers, {default}, are "
                "not three different ones",
                "write eagle_aux_hidden_state_layer_ids into the draft's config.json",
                _DRAFT,
            )
        return
    if not isinstance(ids, list) or not all(
        isinstance(i, int) and not isinstance(i, bool) for i in ids
    ):
        yield ctx.error(
            "draft-aux-layers",
            f"eagle_aux_hidden_state_layer_ids is {str(ids)[:60]}, not a list of whole numbers",
            "write it as [1, 15, 28]",
            _DRAFT,
        )
        return
    beyond = [i for i in ids if i < 0 or (depth is not None and i + 1 >= depth)]
    if beyond:
        yield ctx.error(
            "draft-aux-layers",
            f"the draft listens to layers {beyond}, of which the target's {depth} layers hand out "
            f"none (0 to {depth - 2 if depth else '?'} can be captured)",
            "this draft is for another target",
            _DRAFT,
        )
    elif len(set(ids)) != len(ids) or (wanted is not None and len(ids) != wanted):
        yield ctx.error(
            "draft-aux-layers",
            f"the draft listens to layers {ids}, its input takes {wanted or len(ids)} different "
            "ones",
            "name as many different layers as the draft was trained with",
            _DRAFT,
        )


def hidden(ctx: Context) -> Iterator[Finding]:
    """The draft's input is as wide as the target's hidden state."""
    draft = text_config(ctx.draft or {})
    key = "target_hidden_size" if draft.get("target_hidden_size") is not None else "hidden_size"
    takes, gives = whole(ctx.draft, key), whole(ctx.target, "hidden_size")
    if takes is None or gives is None or takes == gives:
        return
    yield ctx.error(
        "draft-hidden-size",
        f"the draft takes hidden states of width {takes} ({key}), the target's are {gives} wide; "
        "the start fails after the target has loaded",
        "use the draft that was trained for this target",
        _DRAFT,
    )


def vocabulary(ctx: Context) -> Iterator[Finding]:
    """Vocabulary sizes: the key that must be there, and which sizes fit together."""
    draft = text_config(ctx.draft or {})
    vocab, target = whole(ctx.draft, "vocab_size"), whole(ctx.target, "vocab_size")
    tied = draft.get("tie_word_embeddings") is True
    if "draft_vocab_size" not in draft and not tied:
        yield ctx.error(
            "draft-vocab-key",
            "the draft's config.json has no draft_vocab_size: reading it raises AttributeError",
            'add "draft_vocab_size": the rows of its lm_head, or null to share the target\'s head',
            _DRAFT,
        )
    small = whole(ctx.draft, "draft_vocab_size")
    if small is not None and vocab is not None and small > vocab:
        yield ctx.error(
            "draft-vocab-size",
            f"draft_vocab_size {small} is more than the draft's vocab_size {vocab}",
            "check the draft's config.json",
            _DRAFT,
        )
    if tied and small is not None and vocab is not None and small != vocab:
        yield ctx.error(
            "draft-vocab-tied",
            f"the draft ties its head to the embeddings ({vocab} rows) and wants {small} rows",
            "set tie_word_embeddings to false",
            _DRAFT,
        )
    yield from vocabulary_pair(ctx, vocab, target)


def same_vocabulary(ctx: Context) -> Iterator[Finding]:
    """A model used as draft speaks the target's tokens."""
    vocab, target = whole(ctx.draft, "vocab_size"), whole(ctx.target, "vocab_size")
    yield from vocabulary_pair(ctx, vocab, target)


def vocabulary_pair(ctx: Context, vocab: int | None, target: int | None) -> Iterator[Finding]:
    """The draft's embedding is replaced by the target's: both have to mean the same tokens."""
    if vocab is None or target is None or vocab == target:
        return
    message = f"the draft's vocab_size {vocab} is not the target's {target}"
    padded = ctx.algorithm == "STANDALONE" and abs(vocab - target) * 100 < target
    if (vocab > target and not padded) or ctx.bundled:
        yield ctx.error(
            "draft-vocab-target",
            f"{message}: it drafts tokens that mean something else to the target, or nothing",
            "use the draft that was trained for this target",
            _DRAFT,
        )
    else:
        yield ctx.warning(
            "draft-vocab-target",
            f"{message}; nothing checks it, and acceptance is next to nothing if the draft was "
            "trained with another tokenizer",
            "use the draft that was trained for this target",
            _DRAFT,
        )
