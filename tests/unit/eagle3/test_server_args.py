"""The command line: SGLang's rules, and what --check says about a command."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from eagle3 import check, sglang_engine
from eagle3.server_args import ServerArgs, parse, resolve
from eagle3.weights import paths

TARGET, DRAFT = str(paths().target), str(paths().draft)
EAGLE = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", DRAFT]
STEPS, TOPK, TOKENS = (
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
)


def resolved(*argv: str) -> tuple[ServerArgs, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        args = resolve(parse(["--model-path", TARGET, "--device", "cpu", *argv]))
    return args, [str(warning.message) for warning in caught]


def numbers(args: ServerArgs) -> tuple[int | None, int | None, int | None]:
    return (
        args.speculative_num_steps,
        args.speculative_eagle_topk,
        args.speculative_num_draft_tokens,
    )


def test_plain() -> None:
    args, said = resolved()
    assert args.speculative is None
    assert args.port == 30000
    assert not said


def test_none_of_the_three_takes_what_sglang_takes_for_a_llama() -> None:
    args, said = resolved(*EAGLE)
    assert numbers(args) == (5, 4, 8)
    assert args.max_running_requests == 48
    assert any("reset to 48" in text for text in said)


def test_topk_1_forces_the_draft_tokens_with_a_warning() -> None:
    args, said = resolved(*EAGLE, STEPS, "3", TOPK, "1", TOKENS, "9")
    assert numbers(args) == (3, 1, 4)
    assert "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when" in said[0]
    assert numbers(resolved(*EAGLE, STEPS, "2", TOPK, "1")[0]) == (2, 1, 3)


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ([*EAGLE, TOPK, "4", TOKENS, "3"], AssertionError),
        ([*EAGLE, TOKENS, "3"], AssertionError),
        ([*EAGLE, STEPS, "3"], TypeError),
        ([*EAGLE, STEPS, "3", TOKENS, "4"], TypeError),
        ([*EAGLE, STEPS, "3", TOPK, "4"], ValueError),
        ([*EAGLE, STEPS, "2", TOPK, "2", TOKENS, "8"], ValueError),
        ([*EAGLE, STEPS, "0", TOPK, "1"], ValueError),
        (["--speculative-algorithm", "EAGLE3"], ValueError),
        (["--speculative-algorithm", "NGRAM"], ValueError),
        ([*EAGLE, "--speculative-accept-threshold-acc", "0.9"], ValueError),
        (["--tp-size", "8"], ValueError),
        (["--quantization", "fp8"], ValueError),
        (["--context-length", "4096"], ValueError),
        (["--context-length", "0"], ValueError),
        (["--port", "70000"], ValueError),
        (["--served-model-name", "a:b"], ValueError),
        (["--model-path", "/nowhere"], ValueError),
    ],
)
def test_refusals(argv: list[str], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        resolved(*argv)
    assert str(caught.value), "an error says why"


@pytest.mark.parametrize(
    "argv", [["--no-such-flag"], ["--port", "x"], ["--speculative-algorithm", "eagle9"]]
)
def test_argparse_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        resolved(*argv)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_flags_that_change_nothing_here_are_accepted() -> None:
    resolved("--tp", "1", "--mem-fraction-static", "0.8", "--attention-backend", "fa3",
             "--disable-cuda-graph", "--trust-remote-code", "--cuda-graph-max-bs=8")  # fmt: skip


def test_a_lower_case_algorithm_parses_as_in_0_5_12() -> None:
    args, _ = resolved(
        "--speculative-algorithm", "eagle3", *EAGLE[2:], STEPS, "1", TOPK, "1", TOKENS, "2"
    )
    assert args.speculative_algorithm == "EAGLE3"


def test_a_longer_context_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    args, said = resolved("--context-length", "4096")
    assert args.context_length == 4096
    assert "User-specified context_length (4096) is greater than the derived" in said[0]


def test_the_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    args, _ = resolved("--api-key", "hush-hush")
    assert "hush-hush" not in args.shown()
    monkeypatch.setenv("EAGLE3_API_KEY", "quiet")
    assert resolved()[0].api_key == "quiet"


def verdict(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, object]]:
    status = check.run(parse(["--model-path", TARGET, "--check", *argv]))
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return status, document


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    full = [*EAGLE, STEPS, "3", TOPK, "1", TOKENS, "4"]
    assert verdict(capsys, *full)[0] == 0
    status, document = verdict(capsys, *EAGLE, TOPK, "4", TOKENS, "3")
    assert status == 1
    assert document["error"]["type"] == "AssertionError"  # type: ignore[index]
    config = json.loads((paths().draft / "config.json").read_text()) | {
        "max_position_embeddings": 512
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    full[3] = str(tmp_path)
    status, document = verdict(capsys, *full)
    assert status == 137
    assert document["error"]["stage"] == "scheduler"  # type: ignore[index]
    assert "(2048) is greater than the derived context_length (512)" in str(document["error"])
    assert verdict(capsys, *full, "--context-length", "512")[0] == 0


def test_translation_for_sglang() -> None:
    argv = [
        "--model-path",
        "m",
        "--engine",
        "sglang",
        "--cuda-graph-max-bs",
        "8",
        "--drain-timeout=3",
    ]
    assert sglang_engine.translate(argv, (0, 5, 12)) == [
        "--model-path",
        "m",
        "--cuda-graph-max-bs",
        "8",
    ]
    newer = sglang_engine.translate(argv, (0, 5, 23))
    assert newer == ["--model-path", "m", "--cuda-graph-max-bs-decode", "8"]
    assert sglang_engine.translate(["--enable-ep-moe"], (0, 5, 3)) == ["--enable-ep-moe"]
    with pytest.raises(ValueError, match="use --ep-size"):
        sglang_engine.translate(["--enable-ep-moe"], (0, 5, 12))


def test_sglang_is_missing_here() -> None:
    with pytest.raises(ValueError, match="not installed"):
        sglang_engine.version()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--engine sglang --flag-of-sglang-alone 1", True),
        ("--engine=sglang --device cpu", True),
        ("--engine torch", False),
        ("--engine sglang --check", False),
        ("--device cpu", False),
    ],
)
def test_what_only_sglang_knows_is_left_to_it(argv: str, expected: bool) -> None:
    assert sglang_engine.wanted(argv.split()) is expected
