"""A single setting in the form: what every version would refuse is doubted, no more."""

from __future__ import annotations

from typing import Any

import pytest

from console.config.presets import read_folder
from console.preflight.fields import about, doubt, names


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("speculative-num-steps", 3, ""),
        ("speculative-num-steps", "many", "'many' is not a whole number"),
        ("speculative-num-steps", True, "it needs a value"),
        ("speculative-num-steps", None, ""),
        ("speculative-num-stpes", 3, "no known version has this flag: speculative-num-steps?"),
        ("trust-remote-code", True, ""),
        ("trust-remote-code", False, ""),
        ("trust-remote-code", "yes", "a switch: true, or empty"),
        ("attention-backend", "$BACKEND", ""),
        ("mem-fraction-static", 0.88, ""),
        ("mem-fraction-static", "lots", "'lots' is not a number"),
        ("api-key", "hunter2", "a secret: write secret:NAME, it is read at launch and never shown"),
        ("api-key", "secret:KEY", ""),
    ],
)
def test_flags(name: str, value: Any, said: str) -> None:
    assert doubt(name, value, variable=False) == said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NCCL_PROTO", "LL", ""),
        ("NCCL_PROTO", "LLL", "'LLL' is none of"),
        ("NCCL_PROTI", "LL", "NCCL reads no such variable: NCCL_PROTO?"),
        ("NCCL_NTHREADS", "lots", "'lots' is none of 64"),
        ("NCCL_BUFFSIZE", "lots", "not a whole number"),
        ("SGLANG_NO_SUCH_THING", "1", "SGLang reads no such variable"),
        ("MY_OWN", "anything", ""),
        ("HF_TOKEN", "hf_x", "a secret"),
    ],
)
def test_variables(name: str, value: str, said: str) -> None:
    assert doubt(name, value, variable=True).startswith(said)
    assert said or not doubt(name, value, variable=True)


def test_nothing_shipped_is_doubted(tmp_path: Any) -> None:
    for preset in read_folder(tmp_path):
        for variable, settings in ((False, preset.flags), (True, preset.env)):
            for name, value in settings.items():
                assert not doubt(name, value, variable=variable), (preset.name, name)


def test_what_it_takes() -> None:
    assert about("speculative-num-steps", variable=False) == "a whole number"
    assert about("trust-remote-code", variable=False) == "a switch: true"
    assert "triton" in about("attention-backend", variable=False)
    assert about("NCCL_P2P_LEVEL", variable=True)
    assert about("no-such-flag", variable=False) == ""
    assert "tp-size" in names(variable=False)
    assert "NCCL_ALGO" in names(variable=True)
