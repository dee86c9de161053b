"""Flags read as each version's argparse reads them."""

from __future__ import annotations

import pytest

from console.model import Severity
from console.preflight import from_argv
from console.preflight.settings import UNKNOWN, Settings, convert, resolve
from console.preflight.tables import load, parse_version, select


def settings(*args: str, version: str = "0.5.12.post1") -> Settings:
    argv = ["sglang", "serve", "--model-path", "m", *args]
    return resolve(from_argv(argv), select(version))


def rules(found: Settings) -> set[tuple[str, str]]:
    return {(finding.rule, str(finding.severity)) for finding in found.findings}


def test_aliases_lists_and_bare_flags() -> None:
    found = settings(
        "--tensor-parallel-size", "8", "--cuda-graph-bs", "1", "2", "4", "--disable-radix-cache"
    )
    assert found.integer("tp-size") == 8
    assert found.values["cuda-graph-bs"] == (1, 2, 4)
    assert found.on("disable-radix-cache")
    assert found.findings == ()


def test_a_negative_number_is_a_value() -> None:
    assert settings("--chunked-prefill-size", "-1").integer("chunked-prefill-size") == -1


def test_an_unresolved_variable_is_unknown_and_refused_by_nobody() -> None:
    found = settings("--tp-size", "$TP", "--attention-backend", "${B}", "$MORE")
    assert found.values["tp-size"] is UNKNOWN
    assert found.unknown("tp-size")
    assert found.integer("tp-size", 1) is None
    assert found.findings == ()


def test_a_prefix_is_read_as_the_one_flag_it_begins() -> None:
    found = settings("--mem-frac", "0.8")
    assert found.number("mem-fraction-static") == 0.8
    assert rules(found) == {("flag-abbreviated", "info")}


def test_a_renamed_flag_names_its_successor_and_the_versions_that_had_it() -> None:
    (finding,) = settings("--torchao-config", "int4wo-128", version="0.5.23").findings
    assert finding.rule == "flag-renamed"
    assert finding.severity is Severity.ERROR
    assert "0.5.3 to " in finding.message


def test_a_misspelt_flag_gets_the_nearest() -> None:
    (finding,) = settings("--max-runing-requests", "8").findings
    assert finding.rule == "flag-unknown"
    assert "--max-running-requests" in finding.fix


def test_a_version_between_two_tables_takes_what_either_knows() -> None:
    between = "0.5.13.post7"
    assert select(between).above is not None
    assert settings("--cuda-graph-max-bs-decode", "9", version=between).findings == ()
    assert rules(settings("--nonsense-flag", "9", version=between)) == {("flag-unknown", "error")}


@pytest.mark.parametrize(
    ("version", "table", "note"),
    [
        ("0.5.12", "0.5.12", False),
        ("v0.5.12.post1-cu129", "0.5.12.post1", False),
        ("v0.5.9.post2", "0.5.9", False),
        ("0.6.0", "0.5.23", True),
        ("0.4.1", "0.5.3", True),
        ("", "0.5.23", True),
        ("main", "0.5.23", True),
    ],
)
def test_the_nearest_table_is_taken(version: str, table: str, note: bool) -> None:
    chosen = select(version)
    assert chosen.table.version == table
    assert bool(chosen.note) is note


def test_the_tables_hold_what_the_sources_declare() -> None:
    asked = ("0.5.3.post3", "0.5.9", "0.5.12.post1", "0.5.23")
    assert [len(load(version).options) for version in asked] == [271, 341, 402, 559]
    assert parse_version("0.5.12.post1") == (0, 5, 12)
    assert "LlamaForCausalLM" in load("0.5.9").eagle3_targets
    assert "KimiK25ForConditionalGeneration" not in load("0.5.9").eagle3_targets
    assert "KimiK25ForConditionalGeneration" in load("0.5.12.post1").eagle3_targets


@pytest.mark.parametrize(
    ("word", "kind", "value"),
    [
        ("128Ki", "human_readable_int", 131072),
        ("128k", "human_readable_int", 128000),
        ("25.6k", "human_readable_int", 25600),
        ("-1", "human_readable_int", -1),
        ("0.88", "float", 0.88),
        ("eagle3", "upper", "EAGLE3"),
    ],
)
def test_values(word: str, kind: str, value: object) -> None:
    assert convert(word, kind) == (value, "")


@pytest.mark.parametrize(
    ("word", "kind"),
    [("1.5Ki", "human_readable_int"), ("128K", "human_readable_int"), ("x", "int"), ("a", "float")],
)
def test_bad_values(word: str, kind: str) -> None:
    value, wrong = convert(word, kind)
    assert value is None
    assert wrong
