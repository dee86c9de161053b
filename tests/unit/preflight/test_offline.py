"""Model folders on this machine: configs, shards, headers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from console.errors import UsageError
from console.preflight import check, offline_facts, parse_command
from console.preflight.offline import read_header
from tests.unit.preflight.cases import models

CHAIN = (
    "python3 -m sglang.launch_server --model-path /m --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path /d --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4 --max-running-requests 8"
)

DRAFT = {
    "fc.weight": [256, 768],
    "midlayer.self_attn.q_proj.weight": [256, 512],
    "midlayer.self_attn.k_proj.weight": [128, 512],
    "midlayer.self_attn.v_proj.weight": [128, 512],
    "midlayer.self_attn.o_proj.weight": [256, 256],
    "midlayer.mlp.gate_proj.weight": [512, 256],
    "midlayer.mlp.up_proj.weight": [512, 256],
    "midlayer.mlp.down_proj.weight": [256, 512],
    "midlayer.hidden_norm.weight": [256],
    "midlayer.input_layernorm.weight": [256],
    "midlayer.post_attention_layernorm.weight": [256],
    "norm.weight": [256],
    "lm_head.weight": [512, 256],
    "d2t": [512],
}


def safetensors(path: Path, shapes: dict[str, list[int]], *, cut: int = 0) -> None:
    """A file of the format, one byte an element, ``cut`` bytes short."""
    header: dict[str, object] = {}
    at = 0
    for name, shape in shapes.items():
        size = 1
        for length in shape:
            size *= length
        header[name] = {"dtype": "I8", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(raw)) + raw + b"\0" * at)[: 8 + len(raw) + at - cut])


def folder(place: Path, name: str, shapes: dict[str, list[int]] | None = None) -> Path:
    place.mkdir()
    (place / "config.json").write_text(json.dumps(models()[name]))
    if shapes is not None:
        safetensors(place / "model.safetensors", shapes)
    return place


def found(target: Path | None, draft: Path | None) -> dict[str, str]:
    facts = offline_facts(target, draft)
    return {
        finding.rule: str(finding.severity)
        for finding in check(parse_command(CHAIN), facts, "0.5.12.post1")
    }


def test_two_config_files_are_enough(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama31-8b")
    draft = folder(tmp_path / "d", "draft-llama31-short")
    assert found(target, draft) == {"draft-context": "error"}
    assert found(target / "config.json", draft / "config.json") == {"draft-context": "error"}


def test_a_folder_beside_one_with_weights_has_to_have_them_too(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4", {"lm_head.weight": [4, 4]})
    draft = folder(tmp_path / "d", "draft-tiny-ids")
    assert found(target, draft) == {"weights-missing": "error"}
    (draft / "training_args.bin").write_bytes(b"0")
    (draft / "optimizer.pt").write_bytes(b"0")
    assert found(target, draft) == {"weights-missing": "error"}


def test_a_checkpoint_whose_weights_were_not_fetched(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama31-8b")
    assert found(target, None).get("weights-missing") is None
    (target / "tokenizer.json").write_text("{}")
    assert found(target, None)["weights-missing"] == "error"
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    assert found(target, None)["weights-missing"] == "error"


def test_a_whole_pair_is_fine(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4", {"lm_head.weight": [4, 4]})
    draft = folder(tmp_path / "d", "draft-tiny-ids", DRAFT)
    assert found(target, draft) == {}


def test_a_draft_without_its_token_map(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4")
    shapes = {name: shape for name, shape in DRAFT.items() if name != "d2t"}
    assert found(target, folder(tmp_path / "d", "draft-tiny-ids", shapes)) == {
        "draft-d2t": "warning"
    }


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"d2t": [500]}, "draft-d2t"),
        ({"lm_head.weight": [500, 256]}, "draft-head-shape"),
        ({"fc.weight": [256, 700]}, "draft-fc-shape"),
    ],
)
def test_weights_that_do_not_belong_to_their_config(
    tmp_path: Path, change: dict[str, list[int]], rule: str
) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4")
    draft = folder(tmp_path / "d", "draft-tiny-ids", DRAFT | change)
    assert found(target, draft) == {rule: "error"}


def test_tensors_under_other_names_stay_random(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4")
    shapes = {name.replace("midlayer", "decoder"): shape for name, shape in DRAFT.items()}
    draft = folder(tmp_path / "d", "draft-tiny-ids", shapes)
    assert found(target, draft) == {"draft-tensors": "warning"}


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", "llama-tiny-4")
    safetensors(target / "model.safetensors", {"a": [100]}, cut=1)
    draft = folder(tmp_path / "d", "draft-tiny-ids", DRAFT)
    assert found(target, draft) == {"shard-size": "error"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "too short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (struct.pack("<Q", 2**60), "no valid header"),
        (struct.pack("<Q", 100) + b"{}", "inside its header"),
        (struct.pack("<Q", 2) + b"no", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not safetensors"),
        (struct.pack("<Q", 10) + b'{"a": {}} ', "not safetensors"),
    ],
)
def test_damaged_headers(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    size, tensors, wrong = read_header(path)
    assert why in wrong
    assert (size, tensors) == (0, {})
    (tmp_path / "config.json").write_text(json.dumps(models()["llama-tiny-4"]))
    assert found(tmp_path, None)["shard-damaged"] == "error"


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"{", "not valid JSON"), (b"[]", "no JSON object"), (b"\xff", "not valid JSON")],
)
def test_a_config_that_is_no_config(tmp_path: Path, content: bytes, why: str) -> None:
    target = tmp_path / "t"
    target.mkdir()
    (target / "config.json").write_bytes(content)
    facts = offline_facts(target)
    assert facts.target is not None
    assert why in facts.target.problem
    assert "target-config" in found(target, None)
    assert "draft-config" in found(None, target)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        offline_facts(tmp_path / "no")
    assert caught.value.place == "--target"
