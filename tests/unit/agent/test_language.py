"""The agent stays in Python 3.8's language and imports the standard library and itself only."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from pathlib import Path

import pytest

from console.agent import child, loader
from console.model import Host, Via
from console.transport import bundle

SOURCES = sorted(Path(loader.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_module(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            known = name.split(".")[0] in sys.stdlib_module_names
            assert known or name == "console.agent" or name.startswith("console.agent."), name
    docstring = ast.get_docstring(tree)
    assert docstring


def names_in(data: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        return {Path(name).stem for name in found.namelist()}


def test_read_only_archive_holds_no_code_that_changes() -> None:
    whole, looking = names_in(bundle.archive()), names_in(bundle.archive(read_only=True))
    assert set(bundle.WITHHELD) <= whole
    assert not set(bundle.WITHHELD) & looking
    assert {path.stem for path in SOURCES} <= whole


@pytest.mark.parametrize("forbidden", ["'", "!", "\\", "\n", "`", "$"])
def test_start_command_means_the_same_in_every_shell(forbidden: str) -> None:
    argv = bundle.start_argv(Host("h"), "ab" * 16)
    assert all(forbidden not in word for word in argv)
    assert "ab" * 16 not in argv[-1], "an echoed command line must not look like the sentinel"
    assert child.BOOT.split("import sys;")[1] in argv[-1]


def test_wrapped() -> None:
    pct = bundle.wrapped(Host("h", via=Via("pct", "129")), ["python3"], ("sudo", "-n"))
    assert pct == ["sudo", "-n", "pct", "exec", "129", "--", "python3"]
    docker = bundle.wrapped(Host("h", via=Via("docker", "web_1")), ["python3"])
    assert docker == ["docker", "exec", "-i", "web_1", "python3"]
    with pytest.raises(Exception, match="is not a container"):
        bundle.wrapped(Host("h", via=Via("docker", "-x")), ["python3"])
