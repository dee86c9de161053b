"""The own rules and the bundled engine's own checks say the same of every launch of it."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from console.model import Severity
from console.preflight import GpuFacts, HostFacts, ModelFacts, check, parse_command
from console.preflight.tables import BUNDLED, load
from eagle3 import server_args
from tests.engine.verdicts import engine_argv
from tests.unit.preflight.cases import FAULTY, VALID, Case
from tools import sglang_tables

CASES = [case for case in (*FAULTY, *VALID) if parse_command(case.command).engine == "bundled"]


def test_the_table_is_the_parsers_own() -> None:
    table = sglang_tables.OUT / "eagle3.json"
    assert table.read_text() == sglang_tables.bundled_table(), (
        "the bundled engine's flags changed: run python -m tools.sglang_tables eagle3"
    )
    assert "--check" in load(BUNDLED).options


def engine_refuses(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why the bundled engine refuses a launch; empty where it does not."""
    for facts in (case.facts.target, case.facts.draft):
        if facts is not None:
            place = folder / facts.path
            place.mkdir(exist_ok=True)
            (place / "config.json").write_text(json.dumps(facts.config))
    command = parse_command(case.command)
    monkeypatch.delenv(server_args.OVERWRITE_CONTEXT, raising=False)
    for name, value in command.env.items():
        monkeypatch.setitem(os.environ, name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args = server_args.resolve(server_args.parse(engine_argv(command, case, folder)))
            server_args.check_models(args)
        except (ValueError, TypeError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        except SystemExit as error:
            return f"exit {error.code}"
    return ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_bundled_engine_agrees(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = engine_refuses(case, tmp_path, monkeypatch)
    findings = check(parse_command(case.command), case.facts, case.version)
    own = [finding.rule for finding in findings if finding.severity is Severity.ERROR]
    assert bool(refused) == bool(own), (refused, own)


GPU_HOST = HostFacts(gpus=(GpuFacts(0, "NVIDIA H200", 143771, 143000),), sglang="0.5.12.post1")


def judged(words: str, facts: HostFacts) -> set[str]:
    line = f"python3 -m eagle3.launch_server --model-path /m {words}"
    return {finding.rule for finding in check(parse_command(line), facts)}


def test_what_sglang_computes_is_judged_as_sglangs() -> None:
    """Flags of SGLang that the bundled engine lacks are no fault where it hands over."""
    given = "--engine sglang --grammar-backend none --debug-hang-at 3 --no-parent-death-signal"
    nowhere = HostFacts(sglang="0.5.12.post1")
    assert not judged(given, nowhere) & {"flag-unknown", "flag-other-version"}
    assert not judged("--grammar-backend none", GPU_HOST)  # --engine auto, with a GPU and SGLang
    assert judged("--grammar-backend none", HostFacts(gpus=(), sglang="0.5.12.post1"))
    assert judged("--grammar-backend none --device cpu", GPU_HOST)
    assert judged("--grammar-backend none --engine=torch", GPU_HOST)
    assert "context-length" in judged("--engine=sglang --context-length 262144", replace(
        GPU_HOST, target=ModelFacts(config={"max_position_embeddings": 2048,
                                            "architectures": ["LlamaForCausalLM"]})))  # fmt: skip
