"""Rules over model folders: config and weight files as they lie on the disk.

Facts: the safetensors format (header length, header, data); sharded index files of transformers;
SGLang's EAGLE-3 loader takes over names it knows and passes silently over all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from console.model import Finding
from console.preflight.context import Context
from console.preflight.facts import ModelFacts
from console.preflight.models import architecture, text_config, whole

_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.(safetensors|bin)$")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_OF_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""Files that look like weights and are left out when a model is loaded."""
_TOKENIZER = re.compile(
    r"^tokenizer\.|^(?:vocab|tekken|spiece|sentencepiece)|\.(?:model|tiktoken)$|^tokenization_\w+\.py$"
)
"""Files any one of which makes a tokenizer; tokenizer_config.json alone makes none."""
_NO_FILES = ("dummy", "remote", "remote_instance", "private")
"""Values of --load-format with which the weights come from elsewhere."""
_FLAG = {"target": "--model-path", "draft": "--speculative-draft-model-path"}

# What a LlamaForCausalLMEagle3 checkpoint has to hold, without "model." in front.
_DRAFT_NEEDS = (
    "fc.weight",
    "midlayer.self_attn.q_proj.weight",
    "midlayer.self_attn.k_proj.weight",
    "midlayer.self_attn.v_proj.weight",
    "midlayer.self_attn.o_proj.weight",
    "midlayer.mlp.gate_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
    "midlayer.hidden_norm.weight",
    "midlayer.input_layernorm.weight",
    "midlayer.post_attention_layernorm.weight",
    "norm.weight",
)


def rules(ctx: Context) -> Iterator[Finding]:
    """Every finding over the two folders."""
    formats = {
        "target": ctx.settings.text("load-format"),
        "draft": ctx.settings.text("speculative-draft-load-format")
        or ctx.settings.text("load-format"),
    }
    for which, facts in (("target", ctx.facts.target), ("draft", ctx.facts.draft)):
        if facts is not None and formats[which] not in _NO_FILES and not ctx.settings.foreign:
            yield from folder(ctx, which, facts)
    yield from draft_tensors(ctx)


def folder(ctx: Context, which: str, facts: ModelFacts) -> Iterator[Finding]:
    """Config readable, weights there, shards complete and whole."""
    flag = _FLAG[which]
    if facts.problem:
        yield ctx.error(f"{which}-config", f"the {which}'s config.json {facts.problem}",
                        f"check {flag}", flag)  # fmt: skip
    for name, why in sorted(facts.damaged.items())[:3]:
        yield ctx.error("shard-damaged", f"the {which}'s {name} {why}", "fetch it again", flag)
    if facts.files is None:
        return
    weights = {n for n in facts.files if n.endswith(_WEIGHTS) and n not in _OF_TRAINING}
    if not weights:
        yield ctx.error(
            "weights-missing",
            f"the {which}'s folder holds no weight files",
            "finish the download, or correct the path",
            flag,
        )
        return
    if which == "target" and ctx.facts.ports is not None:
        # Only where it was looked at on its host: a folder to be judged elsewhere may be a part.
        yield from tokenizer(ctx, facts.files, flag)
    missing = sorted(set((facts.index or {}).values()) - set(facts.files)) or unfinished(weights)
    if missing:
        total = len(set((facts.index or {}).values()) | weights)
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        yield ctx.error(
            "shards-missing",
            f"{len(missing)} of the {which}'s {total} weight files are missing: {shown}",
            "finish the download",
            flag,
        )
    for name, size in sorted((facts.expected or {}).items()):
        have = facts.files.get(name)
        if have is not None and have != size:
            yield ctx.error(
                "shard-size",
                f"the {which}'s {name} is {have} bytes, its header promises {size}"
                + (": it was cut short" if have < size else ""),
                "fetch it again",
                flag,
            )


def tokenizer(ctx: Context, files: Mapping[str, int], flag: str) -> Iterator[Finding]:
    """The target's folder holds its tokenizer, unless another path or none is asked for."""
    elsewhere = "tokenizer-path" in ctx.settings or ctx.settings.on("skip-tokenizer-init")
    if elsewhere or any(_TOKENIZER.search(name) for name in files):
        return
    if any(name.endswith(".gguf") for name in files):
        return  # which holds its own
    yield ctx.error(
        "tokenizer-missing",
        "the target's folder holds no tokenizer (tokenizer.json, tokenizer.model, vocab.json, …): "
        "the start ends before anything is loaded",
        "finish the download, or give --tokenizer-path",
        flag,
        "--tokenizer-path",
    )


def unfinished(weights: set[str]) -> list[str]:
    """Files missing from a numbered set (``model-00001-of-00004``) that has no index."""
    missing: set[str] = set()
    for name in weights:
        match = _SHARD.fullmatch(name)
        if match:
            width, total = len(match[2]), int(match[3])
            missing |= {
                f"{match[1]}-{number:0{width}}-of-{match[3]}.{match[4]}"
                for number in range(1, min(total, 2000) + 1)
            }
    return sorted(missing - weights)


def draft_tensors(ctx: Context) -> Iterator[Finding]:
    """The draft's tensors: names that the loader needs, and the token map of a small vocabulary."""
    facts = ctx.facts.draft
    if (
        facts is None
        or facts.tensors is None
        or ctx.algorithm != "EAGLE3"
        or architecture(ctx.draft) != "LlamaForCausalLMEagle3"
    ):
        return
    shapes = {
        name.removeprefix("model.").replace("layers.0.", "midlayer."): tensor.shape
        for name, tensor in facts.tensors.items()
    }
    flag = _FLAG["draft"]
    absent = [name for name in _DRAFT_NEEDS if name not in shapes]
    fused = any("qkv_proj" in name or "gate_up_proj" in name for name in shapes)
    if absent and not fused:
        yield ctx.warning(
            "draft-tensors",
            f"{len(absent)} tensors of an EAGLE-3 draft are not in its files ({absent[0]}, …): "
            "they stay random without a word, and nothing is accepted",
            "check that the folder holds the whole draft in this layout",
            flag,
        )
    yield from draft_head(ctx, shapes)
    takes = whole(ctx.draft, "target_hidden_size", "hidden_size")
    width = shapes.get("fc.weight")
    if width and len(width) == 2 and takes and width[1] % takes:
        yield ctx.error(
            "draft-fc-shape",
            f"the draft's fc.weight is {list(width)}, which takes no whole number of hidden states "
            f"of width {takes}",
            "config.json and weights of the draft do not belong together",
            flag,
        )


def draft_head(ctx: Context, shapes: dict[str, tuple[int, ...]]) -> Iterator[Finding]:
    """lm_head and d2t against draft_vocab_size."""
    flag = _FLAG["draft"]
    small, vocab = whole(ctx.draft, "draft_vocab_size"), whole(ctx.draft, "vocab_size")
    head, mapped = shapes.get("lm_head.weight"), shapes.get("d2t")
    tied = text_config(ctx.draft or {}).get("tie_word_embeddings") is True
    if small is None or tied:
        return
    if head and head[0] != small:
        yield ctx.error(
            "draft-head-shape",
            f"the draft's lm_head has {head[0]} rows, draft_vocab_size is {small}",
            "config.json and weights of the draft do not belong together",
            flag,
        )
    if vocab is not None and small < vocab and mapped is None:
        yield ctx.warning(
            "draft-d2t",
            f"the draft's vocabulary is {small} of {vocab} tokens and its files hold no d2t: "
            "drafted ids mean other tokens and nothing is accepted",
            "use a draft whose files hold d2t",
            flag,
        )
    elif mapped is not None and mapped[0] != small:
        yield ctx.error(
            "draft-d2t",
            f"the draft's d2t maps {mapped[0]} tokens, draft_vocab_size is {small}",
            "config.json and weights of the draft do not belong together",
            flag,
        )
