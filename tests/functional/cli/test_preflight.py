"""``specops preflight`` as a whole command, with and without a host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command

INCIDENT = (
    "NCCL_PROTO=LL nohup python3 -m sglang.launch_server --model-path {target} "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path {draft} "
    "{flags} > /tmp/server.log 2>&1 &"
)
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A target of 262144 positions and a draft of 131072, as configs alone."""
    common = {"hidden_size": 7168, "vocab_size": 163840, "num_attention_heads": 64}
    made = []
    for name, more in (
        ("target", {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 262144}),
        (
            "draft",
            {
                "architectures": ["LlamaForCausalLMEagle3"],
                "max_position_embeddings": 131072,
                "num_hidden_layers": 1,
                "draft_vocab_size": 32000,
            },
        ),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**common, **more}))
        made.append(folder)
    return made[0], made[1]


def judge(specops: Command, folders: tuple[Path, Path], flags: str) -> tuple[int, dict[str, str]]:
    target, draft = folders
    line = specops.folder / "launch.sh"
    line.write_text(INCIDENT.format(target=target, draft=draft, flags=flags))
    ran = specops(
        "preflight", "--command", str(line), "--target", str(target), "--draft", str(draft),
        "--sglang", "0.5.12.post1", "--json",
    )  # fmt: skip
    assert ran.json["sglang_version"] == "0.5.12.post1"
    assert ran.json["ok"] is (ran.code == 0)
    keys = {"rule", "severity", "message", "fix", "flags"}
    assert all(keys <= set(finding) for finding in ran.json["findings"])
    return ran.code, {f["rule"]: f["severity"] for f in ran.json["findings"]}


def test_a_draft_that_is_too_short_is_refused(specops: Command, folders: tuple[Path, Path]) -> None:
    code, found = judge(specops, folders, CHAIN)
    assert code == 5
    assert "error" in found.values()
    code, found = judge(specops, folders, f"{CHAIN} --context-length 131072")
    assert code == 0, found  # warnings stop nothing


def test_steps_that_are_missing_are_refused(specops: Command, folders: tuple[Path, Path]) -> None:
    flags = "--context-length 131072 --speculative-eagle-topk 4"
    code, found = judge(specops, folders, flags)
    assert code == 5
    assert found["spec-partial"] == "error"


def test_a_configured_server_is_judged_on_its_host(specops: Command) -> None:
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n"
        "  big: {host: here, engine: sglang, model: /not/there, speculative: eagle3-3step,\n"
        "        draft: /not/there/either}\n"
    )
    ran = specops("preflight", "big", "--json")
    assert ran.code == 5, ran.err
    rules = {f["rule"]: f for f in ran.json["findings"]}
    assert rules["path-missing"]["severity"] == "error"
    assert rules["engine-missing"]["severity"] == "error"  # its own interpreter has no SGLang
    (specops.folder / "sglang").mkdir()  # what the launch would find first, whatever it holds
    text = specops.hosts.read_text()
    specops.write(text.replace("{host: here,", f"{{host: here, cwd: {specops.folder},"))
    rules = {f["rule"]: f for f in specops("preflight", "big", "--json").json["findings"]}
    assert rules["engine-check-absent"]["severity"] == "warning"
    unknown = specops("preflight", "big", "--preset", "eagle3-3stp", "--json")
    assert unknown.code == 2
    assert "eagle3-3step" in unknown.json["error"]["hint"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a server"),
        (("one", "--command", "-"), "name a server"),
        (("--command", "/not/there"), "No such file"),
        (("--command", "-"), "empty"),
        (("one", "--target", "/x"), "--command"),
        (("one",), "no server"),
    ],
)
def test_bad_input_is_one_clear_line(specops: Command, words: tuple[str, ...], said: str) -> None:
    ran = specops("preflight", *words)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
