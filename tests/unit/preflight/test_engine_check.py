"""The host's own engine: its script, its answers, and the verdicts it gave on the cases."""

from __future__ import annotations

import ast
import json

import pytest

from console.model import Severity
from console.preflight.engine_check import SENTINEL, cache_key, parse_result, request, script
from tests.engine.verdicts import VERDICTS, agrees, judged, own
from tests.unit.preflight.cases import Case

KEPT = json.loads(VERDICTS.read_text())["verdicts"]


def answer(**body: object) -> bytes:
    return f"noise\n{SENTINEL}{json.dumps(body)}\nmore noise".encode()


def test_the_script_stands_alone() -> None:
    tree = ast.parse(script())
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert imported == {"contextlib", "io", "json", "os", "sys", "traceback", "sglang"}
    assert "@SENTINEL@" not in script()


def test_what_is_sent_is_one_line() -> None:
    line = request(["--model-path", "a\nb"], draft="/d")
    assert line.count(b"\n") == 1
    assert json.loads(line)["argv"] == ["--model-path", "a\nb"]


def test_no_complaint_is_no_finding() -> None:
    assert parse_result(answer(version="0.5.12.post1", errors=[])) == ()


def test_an_empty_assertion_gets_words() -> None:
    error = {
        "stage": "arguments",
        "type": "AssertionError",
        "message": "",
        "code": "assert (",
        "context": "if self.speculative_num_steps is None: assert (",
        "where": "server_args.py:3809",
    }
    (finding,) = parse_result(answer(version="0.5.12.post1", errors=[error]))
    assert finding.rule == "engine-refuses"
    assert finding.severity is Severity.ERROR
    assert "without --speculative-num-steps" in finding.message
    assert finding.source == "0.5.12.post1 server_args.py:3809"
    assert "--speculative-eagle-topk" in finding.flags


@pytest.mark.parametrize(
    "message",
    [
        "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100).",
        "Quantization method specified in the model config (awq) does not match",
        "speculative_eagle_topk > 1 with page_size > 1 is unstable",
        "Unknown quantization method: mxfp4. Must be one of ['fp8', 'awq'].",
        "Mamba extra_buffer is only supported on CUDA and MUSA and NPU devices with FLA backend",
        "No CUDA GPUs are available",
    ],
)
def test_what_depends_on_the_gpu_is_a_warning(message: str) -> None:
    error = {"stage": "arguments", "type": "ValueError", "message": message}
    (finding,) = parse_result(answer(version="1", errors=[error]))
    assert finding.severity is Severity.WARNING
    assert "without a GPU" in finding.message


def test_what_asks_for_the_device_and_gets_none_says_nothing_of_the_flags() -> None:
    error = {
        "stage": "arguments",
        "type": "RuntimeError",
        "message": "Found no NVIDIA driver on your system.",
        "code": "major, _ = torch.cuda.get_device_capability()",
    }
    (finding,) = parse_result(answer(version="1", errors=[error]))
    assert finding.severity is Severity.WARNING


def test_a_drafts_refusal_has_its_own_rule() -> None:
    error = {"stage": "draft", "type": "ValueError", "message": "Warning: Target model's x"}
    (finding,) = parse_result(answer(version="1", errors=[error]))
    assert finding.rule == "engine-draft"


@pytest.mark.parametrize(
    ("output", "timed_out", "says"),
    [
        (b"", False, "no answer"),
        (b"", True, "in 20 s"),
        (b"bash: python3: command not found", False, "command not found"),
        (f"{SENTINEL}not json".encode(), False, "no answer"),
        (f"{SENTINEL}[]".encode(), False, "no answer"),
        (answer(absent="import sglang: No module named 'sglang'"), False, "No module named"),
        (b"\x1b]52;c;evil\x07\xff" * 9, False, "no answer"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_a_warning(
    output: bytes, timed_out: bool, says: str
) -> None:
    (finding,) = parse_result(output, timed_out=timed_out)
    assert finding.rule == "engine-check-absent"
    assert finding.severity is Severity.WARNING
    assert says in finding.message
    assert finding.message.isprintable()


def test_an_answer_of_the_wrong_shape_is_no_finding() -> None:
    assert parse_result(answer(errors="x")) == ()
    assert parse_result(answer(errors=[1, None])) == ()


def test_the_key_of_an_answer() -> None:
    key = cache_key(["--a"], ["h1", "h2"], "1")
    assert key == cache_key(["--a"], ["h1", "h2"], "1")
    others = [(["--b"], ["h1", "h2"], "1"), (["--a"], ["h1"], "1"), (["--a"], ["h1", "h2"], "2")]
    assert key not in [cache_key(*other) for other in others]


def test_every_case_that_can_be_judged_was() -> None:
    assert {case.id for case in judged()} == set(KEPT), "run make test-engine with --write"
    assert sum(not verdict["unsure"] for verdict in KEPT.values()) >= 500
    assert not [name for name, verdict in KEPT.items() if verdict["absent"]]


@pytest.mark.parametrize("case", judged(), ids=lambda case: case.id)
def test_the_real_engine_agrees(case: Case) -> None:
    assert agrees(case, KEPT[case.id]), (own(case), KEPT[case.id])
