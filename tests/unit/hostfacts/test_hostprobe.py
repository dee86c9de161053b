"""The program that looks at a host's files: run as it is sent, and its parts."""

from __future__ import annotations

import ast
import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from console.planning import hostprobe

SOURCE = Path(hostprobe.__file__)


def weights(path: Path, *, shape: tuple[int, ...] = (4, 2), cut: int = 0) -> int:
    size = 2
    for side in shape:
        size *= side
    header = json.dumps(
        {"__metadata__": {}, "w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}
    ).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(size)
    path.write_bytes(data[: len(data) - cut])
    return len(data)


def ask(request: dict[str, Any], **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SOURCE.read_text()],
        input=json.dumps(request).encode(),
        env=env,
        capture_output=True,
        check=True,
        timeout=30,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_as_it_is_sent(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 8}')
    size = weights(model / "model.safetensors")
    answer = ask(
        {
            "models": {"target": str(model), "draft": str(model)},
            "paths": [str(model), str(tmp_path / "no" / "where")],
            "keep": ["PATH", "HF_TOKEN", "NOT_SET"],
        },
        PATH="/bin",
        HF_TOKEN="hf_not_to_be_seen",
    )
    assert answer["models"]["target"]["config"] == {"hidden_size": 8}
    assert answer["models"]["target"]["expected"] == {"model.safetensors": size}
    assert answer["models"]["target"]["tensors"] == {}  # a target has thousands, nobody asks
    assert answer["models"]["draft"]["tensors"] == {"w": [[4, 2], "BF16"]}
    there, missing = (answer["paths"][p] for p in (str(model), str(tmp_path / "no" / "where")))
    assert there["exists"]
    assert there["directory"]
    assert there["readable"]
    assert missing["exists"] is False
    assert missing["readable"] is None
    assert missing["free_mib"] > 0  # of the file system it would be on
    assert answer["launch_env"] == {"PATH": "/bin", "HF_TOKEN": "***"}


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    weights(tmp_path / "a.safetensors", cut=3)  # its header still tells the size
    (tmp_path / "b.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "c.safetensors").write_bytes(b"abc")
    (tmp_path / "d.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]")
    found = hostprobe.model(str(tmp_path), time.monotonic() + 60, names=False)
    assert found is not None
    assert found["config"] is None
    assert "not valid JSON" in found["problem"]
    assert found["expected"]["a.safetensors"] == found["files"]["a.safetensors"] + 3
    assert "LFS" in found["damaged"]["b.safetensors"]
    assert "too short" in found["damaged"]["c.safetensors"]
    assert "not safetensors" in found["damaged"]["d.safetensors"]


def test_a_folder_that_was_named_has_its_files_told_even_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = hostprobe.model(str(tmp_path), time.monotonic() + 9, names=True)
    assert found is not None
    assert found["files"] == {"config.json": 2}


def test_headers_are_left_out_when_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "a.safetensors")
    found = hostprobe.model(str(tmp_path), time.monotonic() - 1, names=True)
    assert found is not None
    assert found["files"]
    assert found["expected"] == {}
    assert found["damaged"] == {}


def test_a_name_is_looked_up_in_the_cache(tmp_path: Path, monkeypatch: Any) -> None:
    root = tmp_path / "models--org--name"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0123abcdef")
    (root / "snapshots" / "0123abcdef").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert hostprobe.cached("org/name") == root / "snapshots" / "0123abcdef"
    (root / "refs" / "main").write_text("../../../etc")
    assert hostprobe.cached("org/name") is None
    assert hostprobe.cached("org/other") is None


def test_it_stays_in_the_language_of_python_3_8() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, 8))
