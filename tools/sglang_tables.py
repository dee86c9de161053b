"""Write the tables of options in console/preflight/data.

    python -m tools.sglang_tables FOLDER     # FOLDER/VERSION: a wheel of sglang VERSION, unpacked
    python -m tools.sglang_tables eagle3

The first reads every version's own source (:mod:`tools.sglang_source`; facts such as names, types
and choices, no text of it) and writes ``sglang.json``: what each version knows, with the first and
last version that has it in this form. The second writes the bundled engine's table from its own
parser. SGLang is under Apache-2.0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from console.preflight.tables import order
from eagle3.server_args import build_parser
from tools import sglang_source as source

OUT = Path(__file__).parents[1] / "console" / "preflight" / "data"
NOTE = "Facts read from the source of SGLang (Apache-2.0) by tools/sglang_tables.py"


def bundled(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """The options of a parser that can be asked itself."""
    rows: list[dict[str, Any]] = []
    for action in parser._actions:
        if "--help" in action.option_strings:
            continue
        row: dict[str, Any] = {"names": list(action.option_strings)}
        row["values"] = action.nargs if action.nargs is not None else 1
        kind = getattr(action.type, "__name__", "")
        if kind:
            row["type"] = kind
        if action.choices:
            row["choices"] = sorted(map(str, action.choices))
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["names"][0]))


def bundled_table() -> str:
    """The bundled engine's table as text."""
    table = {
        "version": "0.5.12.post1",
        "architectures": ["LlamaForCausalLM", "LlamaForCausalLMEagle3"],
        "eagle3_targets": ["LlamaForCausalLM"],
        "eagle3_drafts": ["LlamaForCausalLMEagle3"],
        "own_drafts": [],
    }
    return as_text(table, {"options": bundled(build_parser())})


def as_text(table: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> str:
    """A table as JSON, the items of its lists one a line."""
    parts = [f'"{key}": {json.dumps(value)}' for key, value in table.items()]
    for key, items in lists.items():
        rows = ",\n".join("  " + json.dumps(item) for item in items)
        parts.append(f'"{key}": [\n{rows}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def spans(held: Mapping[int, Any]) -> list[tuple[int, int, Any]]:
    """Runs of neighbouring numbers that hold the same value: first, last, value."""
    out: list[tuple[int, int, Any]] = []
    for at in sorted(held):
        if out and out[-1][1] == at - 1 and out[-1][2] == held[at]:
            out[-1] = (out[-1][0], at, held[at])
        else:
            out.append((at, at, held[at]))
    return out


def history(
    versions: list[str], each: Mapping[str, Mapping[str, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """``each`` maps a version to its entries by key; one row for every form an entry had."""
    keys = sorted({key for entries in each.values() for key in entries})
    rows: list[dict[str, Any]] = []
    for key in keys:
        held = {at: each[v][key] for at, v in enumerate(versions) if key in each[v]}
        for first, last, entry in spans(held):
            rows.append({**entry, "in": [versions[first], versions[last]]})
    return rows


@cache
def marks() -> dict[str, dict[str, Any]]:
    """What to look for behind each rule (sglang_marks.yaml)."""
    text = (Path(__file__).parent / "sglang_marks.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return found


def sglang_tables(folder: Path) -> str:
    """The tables of all versions unpacked below a folder, as text."""
    versions = sorted((p.name for p in folder.iterdir() if p.is_dir()), key=order)
    options: dict[str, dict[str, dict[str, Any]]] = {}
    models: dict[str, dict[str, dict[str, Any]]] = {}
    methods: dict[str, dict[str, dict[str, Any]]] = {}
    environ: dict[str, dict[str, dict[str, Any]]] = {}
    pins: dict[str, dict[str, dict[str, Any]]] = {}
    places: dict[str, list[str]] = {rule: [] for rule in marks()}
    for version in versions:
        root = folder / version
        srt = root / "sglang" / "srt"
        names, captures, _ = source.registered(srt / "models")
        own = source.own_drafts(source.parsed(srt / "configs" / "model_config.py"))
        options[version] = {e["names"][0]: e for e in source.options(srt)}
        models[version] = {
            name: {
                "name": name,
                **({"captures": True} if name in captures else {}),
                **({"own_draft": True} if name in own else {}),
            }
            for name in sorted({*names, *own})
        }
        for name in set(own) - set(names):
            models[version][name]["unregistered"] = True
        found = source.quantisation(srt / "layers" / "quantization")
        methods[version] = {name: {"name": name, **facts} for name, facts in found.items()}
        names = source.variables(root / "sglang")
        environ[version] = {name: {"name": name} for name in names}
        package = source.pinned(root, "transformers")
        pins[version] = {"transformers": {"package": "transformers", "version": package}}
        for rule, mark in marks().items():
            given = {key: mark[key] for key in ("last",) if key in mark}
            files = mark.get("file", source.ARGUMENTS)
            places[rule].append(source.place(srt, mark["mark"], files, **given))
        print(f"{version}: {len(options[version])} options, {len(models[version])} architectures")
    lists = {
        "options": history(versions, options),
        "architectures": history(versions, models),
        "quantisation": history(versions, methods),
        "pins": history(versions, pins),
        "variables": history(versions, environ),
        "sources": [{"rule": rule, "lines": lines} for rule, lines in places.items()],
    }
    return as_text({"note": NOTE, "versions": versions}, lists)


def main() -> None:
    """Write the table that is asked for."""
    if sys.argv[1:] == ["eagle3"]:
        (OUT / "eagle3.json").write_text(bundled_table())
        return
    (OUT / "sglang.json").write_text(sglang_tables(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
