"""Loads the agent from a zip archive held in memory; its source is sent before the archive.

Runs as plain text through ``exec`` with ``ARCHIVE`` (bytes) and ``ENTRY`` (a module name) in its
globals, before any other module of the agent exists, so it imports the standard library only.
"""

from __future__ import annotations

import io
import sys
import zipfile
from importlib.machinery import ModuleSpec
from typing import Any


class MemoryFinder:
    """A module finder and loader over ``{path in the archive: source}``."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
            self.files = {name: bundle.read(name) for name in bundle.namelist()}

    def add(self, path: str, source: bytes) -> None:
        """Make one more module importable."""
        self.files[path] = source

    def _path(self, name: str) -> str | None:
        stem = name.replace(".", "/")
        for path in (stem + ".py", stem + "/__init__.py"):
            if path in self.files:
                return path
        return None

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """The spec of a module of the archive, or ``None`` for everybody else's."""
        path = self._path(name)
        if path is None:
            return None
        package = path.endswith("/__init__.py")
        return ModuleSpec(name, self, origin="specops:" + path, is_package=package)  # type: ignore[arg-type]

    def create_module(self, _spec: ModuleSpec) -> None:
        """Python's default module object will do."""

    def exec_module(self, module: Any) -> None:
        """Run a module's source in its namespace."""
        path = self._path(module.__name__)
        assert path is not None
        code = compile(self.files[path], "specops:" + path, "exec")
        exec(code, module.__dict__)  # noqa: S102 - this is what a loader does

    def get_source(self, name: str) -> str | None:
        """The source of a module, so that tracebacks show it."""
        path = self._path(name)
        return None if path is None else self.files[path].decode("utf-8")


def install(archive: bytes) -> MemoryFinder:
    """Put the archive's modules on Python's import path."""
    finder = MemoryFinder(archive)
    sys.meta_path.insert(0, finder)
    return finder


if "ARCHIVE" in globals():
    import importlib

    _finder = install(globals()["ARCHIVE"])
    importlib.import_module(globals()["ENTRY"]).main(_finder)
