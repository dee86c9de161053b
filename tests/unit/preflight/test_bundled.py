"""The own rules and the bundled engine's own checks say the same of every launch of it."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from console.model import Severity
from console.preflight import check, parse_command
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
