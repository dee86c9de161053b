"""Flags as the engine's own parser would read them: argparse's rules over a version's table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from console.model import Change, Finding, Severity
from console.preflight.command import LaunchCommand, is_flag
from console.preflight.serve import is_diffusion, unwrapped
from console.preflight.tables import Option, Table, Tables, option_spans, options_anywhere
from console.preflight.values import convert
from console.text import clean, is_secret_name

# Flags that later versions dropped, and what to write instead ("" = nothing takes their place).
REPLACED: Mapping[str, str] = {
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--enable-beta-spec": "the variable SGLANG_ENABLE_SPEC_V2=1",
    "--enable-ep-moe": "--ep-size",
    "--enable-deepep-moe": "--moe-a2a-backend deepep",
    "--enable-flashinfer-cutlass-moe": "--moe-runner-backend flashinfer_cutlass",
    "--enable-flashinfer-trtllm-moe": "--moe-runner-backend flashinfer_trtllm",
    "--enable-flashinfer-cutedsl-moe": "--moe-runner-backend flashinfer_cutedsl",
    "--enable-flashinfer-mxfp4-moe": "--moe-runner-backend flashinfer_mxfp4",
    "--enable-triton-kernel-moe": "--moe-runner-backend triton_kernel",
    "--enable-piecewise-cuda-graph": "",
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill disabled",
    "--stream-output": "--incremental-streaming-output",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
}

# vLLM's names for what the rules know by SGLang's.
_VLLM = {
    "--model": "model-path",
    "--tensor-parallel-size": "tp-size",
    "-tp": "tp-size",
    "--pipeline-parallel-size": "pp-size",
    "-pp": "pp-size",
    "--data-parallel-size": "dp-size",
    "--max-model-len": "context-length",
    "--gpu-memory-utilization": "mem-fraction-static",
}


class Unknown:
    """The value of a flag whose text holds a variable that is not resolved."""


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Settings:
    """Flags by canonical name (no dashes), each with its typed value.

    A bare flag is ``True``; an option with several values is a tuple. ``findings`` is what the
    parser itself would complain about.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    foreign: bool = False
    """Whether another server's parser reads them, of which nothing is known here."""

    def __contains__(self, key: str) -> bool:
        """Whether the flag is given at all, with a known value or not."""
        return key in self.values

    def integer(self, key: str, default: int | None = None) -> int | None:
        """The flag as an integer; ``default`` where it is not given, None where it is unknown."""
        value = self.values.get(key, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The flag as a number; None where it is not given or unknown."""
        value = self.values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return None

    def text(self, key: str) -> str | None:
        """The flag as text; None where it is not given or unknown."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def on(self, key: str) -> bool:
        """Whether a bare flag is given."""
        return self.values.get(key) is True

    def unknown(self, *keys: str) -> bool:
        """Whether any of the flags is given with a value that the text does not tell."""
        return any(self.values.get(key) is UNKNOWN for key in keys)


def resolve(command: LaunchCommand, tables: Tables) -> Settings:
    """The command's flags as the version's parser reads them, with what it would refuse."""
    if command.engine == "vllm" or is_diffusion(command):
        return _resolve_foreign(command)
    own, refused = unwrapped(command, tables)
    read = _Reader(tables).read(own)
    return Settings(read.values, (*refused, *read.findings))


class _Reader:
    """One pass over the arguments, in the order argparse takes them."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.values: dict[str, Any] = {}
        self.given: dict[str, str] = {}
        self.findings: list[Finding] = []

    def read(self, command: LaunchCommand) -> Settings:
        words = list(command.args)
        while words:
            word = words.pop(0)
            if word == "--" or not is_flag(word):
                self._stray(word)
                continue
            name, eq, attached = word.partition("=")
            option = self._option(name)
            taken = _take(words, option, bool(eq))
            if option is None:
                continue
            self._store(option, name, [attached] if eq else taken, bool(eq))
        if "model-path" not in self.values and "config" not in self.values:
            self._add(
                "model-path-missing",
                "--model-path is required and not given",
                "add --model-path with the model's folder or repository",
                ("--model-path",),
            )
        return Settings(self.values, tuple(self.findings))

    def _add(
        self,
        rule: str,
        message: str,
        fix: str,
        flags: tuple[str, ...],
        severity: Severity = Severity.ERROR,
        change: Change | None = None,
    ) -> None:
        source = "server_args.py add_cli_args"
        self.findings.append(Finding(rule, severity, message, fix, flags, change, source))

    def _stray(self, word: str) -> None:
        if "$" in word:
            return  # an unresolved variable may hold flags, or nothing
        self._add(
            "argument-stray",
            f"'{clean(word, limit=60)}' belongs to no flag; the engine's parser exits on it",
            "remove it, or quote the value that it was cut from",
            (),
        )

    def _option(self, name: str) -> Option | None:
        """The option that a flag names, exactly or as the one with that prefix."""
        found: dict[tuple[str, ...], Option] = {}
        for table in filter(None, (self.tables.table, self.tables.above)):
            matches = table.matches(name)
            if len(matches) == 1:
                return self._one(name, matches[0])
            found.update({o.names: o for o in matches})
        if found and self._unsure(bool(option_spans(name))) and option_spans(name):
            return self._unknown(name)
        if found:
            names = ", ".join(sorted(o.names[0] for o in found.values())[:4])
            self._add(
                "flag-ambiguous",
                f"{name} is short for several flags of {self.tables.version}: {names}; "
                "its parser exits with code 2",
                "write the flag in full",
                (name,),
            )
        elif name not in ("-h", "--help"):
            return self._unknown(name)
        return None

    def _one(self, name: str, option: Option) -> Option:
        if name not in option.names:
            self._add(
                "flag-abbreviated",
                f"{name} is read as {option.names[0]}; it becomes an error as soon as a version "
                "adds another flag with that beginning",
                f"write --{option.key}",
                (name,),
                Severity.INFO,
                _rename(name, "--" + option.key),
            )
        if option.deprecated:
            stops = option.deprecated == "error"
            better = option.replacement or REPLACED.get(name, "")
            self._add(
                "flag-deprecated",
                f"{name} is retired in {self.tables.version}"
                + (" and stops the launch" if stops else "; it still works, with a warning"),
                f"use {better}" if better else "remove it",
                (name,),
                Severity.ERROR if stops else Severity.WARNING,
            )
        return option

    def _unknown(self, name: str) -> Option | None:
        """A flag that this version has not; the form it has elsewhere where the version is a guess.

        Where the version itself is a guess, a flag that another one has stops nothing.
        """
        version = self.tables.version
        elsewhere = [
            first if first == last else f"{first} to {last}" for first, last in option_spans(name)
        ]
        known = self.tables.table.options
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        better = REPLACED.get(name, "")
        first = better.split()[0] if better else ""
        if better and (first in known or not first.startswith("--")):
            fix = f"use {better}"
        elif near:
            fix = f"did you mean {near[0]}?"
            first = near[0]
        else:
            first = ""
            fix = "remove it"
        if elsewhere:
            where = "here" if not self.tables.note else f"in {self.tables.table.version}"
            rule, what = "flag-renamed", f"{name} exists in {', '.join(elsewhere)} but not {where}"
        else:
            rule, what = "flag-unknown", f"{name} is no flag of {version} or any version known"
        unsure = self._unsure(bool(elsewhere))
        self._add(
            rule,
            f"{what}: "
            + (
                f"{self.tables.note}, so it may work or not"
                if unsure
                else f"the parser of {version} exits with code 2 before anything is loaded"
            ),
            fix,
            (name,),
            Severity.WARNING if unsure else Severity.ERROR,
            change=_rename(name, first) if first.startswith("--") and not unsure else None,
        )
        return next(iter(options_anywhere(name)), None) if unsure else None

    def _unsure(self, elsewhere: bool) -> bool:
        """Whether a refusal would be a guess: the version is not known, or newer than the tables.

        What no version has is refused where none is named; a newer one may have it.
        """
        return bool(self.tables.note) and (elsewhere or self.tables.named)

    def _store(self, option: Option, name: str, words: list[str], attached: bool) -> None:
        if option.values == 0:
            if attached:
                self._bad_value(name, f"takes no value, '{clean(words[0], limit=40)}' is given")
            negates = name.startswith("--no-") and name != option.names[0]
            self.values[option.key] = not negates
            return
        if not words and option.values in (1, "+"):
            self._bad_value(name, "needs a value and has none")
            return
        read = [self._value(option, name, word) for word in words]
        if any(value is None for value in read):
            self.values[option.key] = UNKNOWN  # given it is: that it is missing is not said too
            return
        value: Any = read[0] if option.values in (1, "?") and read else tuple(read)
        raw = " ".join(words)
        before = self.given.get(option.key)
        if before is not None and before != raw:
            self._add(
                "flag-duplicate",
                f"--{option.key} is given twice: {_shown(option.key, before)} and then "
                f"{_shown(option.key, raw)}; the last one counts",
                "remove the first one",
                (name,),
                Severity.WARNING,
            )
        self.given[option.key] = raw
        self.values[option.key] = value

    def _value(self, option: Option, name: str, word: str) -> Any:
        """The typed value, UNKNOWN for an unresolved variable, None (and a finding) if refused."""
        if "$" in word:
            return UNKNOWN
        value, wrong = convert(word, option.type)
        if wrong:
            self._bad_value(name, f"'{clean(word, limit=40)}' is {wrong}")
            return None
        if option.choices and value not in (*option.choices, *self._later(name)):
            if self._unsure(any(value in o.choices for o in options_anywhere(name))):
                return value
            allowed = [str(c) for c in option.choices if c is not None]
            near = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.6)
            hint = near or [c for c in allowed if c.lower() == str(value).lower()]
            self._bad_value(
                name,
                f"'{clean(word, limit=40)}' is none of its choices ({_some(allowed)})",
                f"did you mean {hint[0]}?" if hint else "take one of the choices",
            )
            return None
        return value

    def _later(self, name: str) -> tuple[str | None, ...]:
        """The choices of the neighbour above, where the version lies between two tables."""
        above = self.tables.above.options.get(name) if self.tables.above else None
        return above.choices if above else ()

    def _bad_value(self, name: str, wrong: str, fix: str = "give a value that it accepts") -> None:
        self._add("flag-value", f"{name} {wrong}: the parser exits with code 2", fix, (name,))


def _take(words: list[str], option: Option | None, attached: bool) -> list[str]:
    """Removes and returns the words that belong to the flag just read."""
    if attached or (option is not None and option.values == 0):
        return []
    many = option is None or option.values in ("+", "*")
    out: list[str] = []
    while words and not is_flag(words[0]) and (many or not out):
        out.append(words.pop(0))
    return out


def _rename(old: str, new: str) -> Change:
    return Change(flags={old.lstrip("-"): None}, why=f"write {new} instead of {old}")


def _shown(key: str, value: str) -> str:
    return "***" if is_secret_name(key) else clean(value, limit=40)


def _some(items: list[str]) -> str:
    return (
        ", ".join(items) if len(items) <= 8 else ", ".join(items[:8]) + f", … {len(items)} in all"
    )


def _resolve_foreign(command: LaunchCommand) -> Settings:
    """Flags of vLLM or of a diffusion server by SGLang's names: nothing is refused here."""
    values: dict[str, Any] = {}
    for name, words in command.flags:
        key = _VLLM.get(name, name.lstrip("-"))
        if not name:
            continue
        if not words:
            values[key] = True
        elif "$" in words[0]:
            values[key] = UNKNOWN
        else:
            values[key] = _guess(words[0])
    return Settings(values, foreign=True)


def _guess(word: str) -> Any:
    for kind in ("int", "float"):
        value, wrong = convert(word, kind)
        if not wrong:
            return value
    return word


def json_value(text: str | None) -> Iterator[Mapping[str, Any]]:
    """The mapping in a JSON flag, if it is one."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return
    if isinstance(value, dict):
        yield value


__all__ = ["UNKNOWN", "Settings", "Table", "convert", "json_value", "resolve"]
