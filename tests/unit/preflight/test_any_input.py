"""Whatever is pasted or found in a config.json: findings or one clear error, never a traceback."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from console.errors import UsageError
from console.preflight import HostFacts, ModelFacts, check, from_argv, parse_command
from console.preflight.tables import BUNDLED, load, versions
from console.text import clean
from tests.unit.preflight.cases import models

KEYS = sorted({key for config in models().values() for key in config})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300000) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=6,
)
FLAGS = sorted(set(load("0.5.12.post1").options) | set(load(BUNDLED).options))
WORDS = st.sampled_from(FLAGS) | st.sampled_from(
    [
        "1",
        "-1",
        "0",
        "eagle3",
        "EAGLE3",
        "0.5",
        "",
        "$X",
        "x" * 99,
        "{}",
        "\x1b[2J",
        "--",
        "-",
        "[]",
    ]
)
WHOLE = (
    "sglang serve ",
    "--model-path m ",
    "docker run ",
    "[Service]\n",
    "ExecStart=",
    "services:\n",
)
PARTS = ("  a: ", "export A=", "bash -c ", "python -m sglang.launch_server ", "2>&1 ", "&&", "||")
MARKS = ("'", '"', "$(", "${A", "<<", *"}\\\n|&>#`;()=\t\ré\x00")
PIECES = st.sampled_from((*WHOLE, *PARTS, *MARKS))


@settings(max_examples=120, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_any_text_is_a_launch_or_one_error(text: str) -> None:
    try:
        command = parse_command(text)
    except UsageError as error:
        assert error.place and error.hint, text  # noqa: PT017, PT018 - either outcome is right
    else:
        check(command, HostFacts(), "0.5.12.post1")


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
    st.sampled_from([("llama31-8b", "draft-llama31-ids"), ("kimi-k25", "draft-kimi")]),
    st.sampled_from(versions()),
    st.sampled_from(["sglang.launch_server", "eagle3.launch_server"]),
)
def test_any_config_is_judged(
    target: dict[str, Any],
    draft: dict[str, Any],
    base: tuple[str, str],
    version: str,
    module: str,
) -> None:
    facts = HostFacts(
        target=ModelFacts(config={**models()[base[0]], **target}),
        draft=ModelFacts(config={**models()[base[1]], **draft}),
        gpus=(),
    )
    line = (
        f"python -m {module} --model-path /m --speculative-algorithm EAGLE3 --tp-size 2 "
        "--speculative-draft-model-path /d --device cuda"
    )
    for finding in check(parse_command(line), facts, version):
        assert finding.message == clean(finding.message), finding


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=10), st.sampled_from(versions()))
def test_any_flags_are_judged(words: list[str], version: str) -> None:
    for program in (["sglang", "serve"], ["specops", "serve"], ["vllm", "serve"]):
        command = from_argv([*program, "--model-path", "m", *words])
        for finding in check(command, HostFacts(), version):
            assert finding.message == clean(finding.message), finding
