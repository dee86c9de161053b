"""A start that cannot be: one line and a status, as argparse ends, instead of a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server


def not_there(_folder: Path) -> str:
    return "no such model folder"


def empty(folder: Path) -> str:
    folder.mkdir()
    return "config.json is missing"


def no_json(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{")
    return "not JSON"


def another_model(folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["BertModel"]}')
    return "BertModel"


@pytest.mark.parametrize("make", [not_there, empty, no_json, another_model])
def test_a_model_folder_that_is_none(tmp_path: Path, make: object) -> None:
    folder = tmp_path / "model"
    assert callable(make)
    why = make(folder)
    words = [sys.executable, "-m", "eagle3.launch_server", "--model-path", str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("launch_server.py: error: argument --model-path: ")
    assert why in line
    assert str(folder) in line
