"""Facts from folders on this machine: configs, weight files and their headers. Reads, never runs.

A safetensors file begins with 8 bytes (little-endian length) and a JSON header whose largest
``data_offsets`` end gives the file's full size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.errors import UsageError
from console.preflight.facts import HostFacts, ModelFacts, Tensor

_MAX_HEADER = 100 * 2**20
"""Bytes; the format's own limit for a header."""

_MAX_JSON = 64 * 2**20
"""Bytes of config.json or an index that are read."""

_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
"""Files of a checkpoint, as against a folder into which a config.json was copied."""
_LFS = b"version https://git-lfs"


def offline_facts(target: Path | None, draft: Path | None = None) -> HostFacts:
    """What two model folders (or their config.json) tell; everything else stays unknown.

    A draft beside a target with weights has to have weights as well; two configs need none.

    Raises ``UsageError`` where a folder that was named is not there.
    """
    found = model_facts(target, "--target") if target else None
    whole = found is not None and bool(found.files)
    return HostFacts(
        target=found, draft=model_facts(draft, "--draft", whole=whole) if draft else None
    )


def model_facts(path: Path, place: str = "model", *, whole: bool = False) -> ModelFacts:
    """One model folder. One of configs alone is not judged by its weights, unless it is ``whole``.

    Raises ``UsageError`` where the path does not exist or cannot be read.
    """
    folder = path.parent if path.is_file() else path
    if not path.exists():
        raise UsageError(f"{path} does not exist", place=place, hint="name the model's folder")
    config, problem = _read_json(path if path.is_file() else folder / "config.json")
    if path.is_file():
        return ModelFacts(path=str(path), config=config, problem=problem)
    try:
        files = {item.name: item.stat().st_size for item in folder.iterdir() if item.is_file()}
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}", place=place, hint="check its mode"
        ) from error
    weights = {name for name in files if name.endswith(_WEIGHTS)}
    if not weights and not whole and not (set(_INDEX) | set(_TOKENIZERS)) & set(files):
        return ModelFacts(path=str(path), config=config, problem=problem)
    expected: dict[str, int] = {}
    tensors: dict[str, Tensor] = {}
    damaged: dict[str, str] = {}
    for name in sorted(weights):
        if name.endswith(".safetensors"):
            size, found, wrong = read_header(folder / name)
            if wrong:
                damaged[name] = wrong
            else:
                expected[name] = size
                tensors.update(found)
    index = next((i for n in _INDEX if (i := _weight_map(folder / n)) is not None), None)
    return ModelFacts(
        path=str(path),
        config=config,
        problem=problem,
        files=files,
        expected=expected,
        index=index,
        tensors=tensors if expected else None,
        damaged=damaged,
    )


def read_header(path: Path) -> tuple[int, dict[str, Tensor], str]:
    """Bytes a safetensors file should have, its tensors, and what is wrong with its header."""
    try:
        with path.open("rb") as file:
            first = file.read(8)
            if len(first) < 8:
                return 0, {}, "is too short to be a safetensors file"
            (length,) = struct.unpack("<Q", first)
            if length > _MAX_HEADER:
                pointer = (first + file.read(32)).startswith(_LFS)
                why = "is a Git LFS pointer, not the file" if pointer else "has no valid header"
                return 0, {}, why
            raw = file.read(length)
        if len(raw) < length:
            return 0, {}, "ends inside its header"
        header = json.loads(raw)
    except OSError as error:
        return 0, {}, f"cannot be read: {error.strerror}"
    except ValueError:
        return 0, {}, "has a header that is not JSON"
    return _tensors(header, 8 + length)


def _tensors(header: Any, start: int) -> tuple[int, dict[str, Tensor], str]:
    tensors: dict[str, Tensor] = {}
    end = 0
    try:
        for name, entry in header.items():
            if name != "__metadata__":
                tensors[name] = Tensor(tuple(map(int, entry["shape"])), str(entry["dtype"]))
                end = max(end, int(entry["data_offsets"][1]))
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return 0, {}, "has a header that is not safetensors"
    return start + end, tensors, ""


def _read_json(path: Path) -> tuple[Mapping[str, Any] | None, str]:
    """A JSON mapping, or why there is none."""
    try:
        if path.stat().st_size > _MAX_JSON:
            return None, "is larger than any config"
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, "is missing"
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"is not valid JSON: {str(error)[:80]}"
    return (value, "") if isinstance(value, dict) else (None, "holds no JSON object")


def _weight_map(path: Path) -> Mapping[str, str] | None:
    value, _ = _read_json(path)
    found = (value or {}).get("weight_map")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else None
