"""Write target and draft in the files and names that SGLang and transformers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from eagle3.train.corpus import END, END_MESSAGE, PAD
from eagle3.train.nets import Draft, Shape, Target

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _bf16(module: torch.nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    return {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in state.items()}


def _common(shape: Shape) -> dict[str, Any]:
    # The keys of transformers 4, which both 4.x and 5.x read.
    return {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_scaling": None,
        "max_position_embeddings": shape.context,
        "vocab_size": shape.vocab,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }


def save_target(folder: Path, target: Target, tokenizer: Tokenizer) -> None:
    """Config, weights, tokenizer and chat template of the target."""
    shape = target.shape
    stop = tokenizer.token_to_id(END_MESSAGE)
    end = tokenizer.token_to_id(END)
    _write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        **_common(shape),
        "num_hidden_layers": shape.layers,
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": [stop, end],
        "pad_token_id": tokenizer.token_to_id(PAD),
    })  # fmt: skip
    _write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": END_MESSAGE,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.context,
        "chat_template": CHAT_TEMPLATE,
    })  # fmt: skip
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(_bf16(target), str(folder / "model.safetensors"), {"format": "pt"})


def save_draft(folder: Path, draft: Draft, hot: Tensor) -> None:
    """Config and weights of the draft; ``hot`` are the target ids of its vocabulary, ascending."""
    shape = draft.shape
    _write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_common(shape),
        "num_hidden_layers": 1,
        "draft_vocab_size": shape.draft_vocab,
        "target_hidden_size": shape.hidden,
        "tie_word_embeddings": False,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(shape.aux_ids),
        },
    })  # fmt: skip
    member = torch.zeros(shape.vocab, dtype=torch.bool)
    member[hot] = True
    tensors = _bf16(draft)
    tensors["d2t"] = hot - torch.arange(len(hot))
    tensors["t2d"] = member
    save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})
