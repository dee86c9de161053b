"""SGLang's operations by PyTorch instead of by its own kernels, which do not take float32.

A folder for PYTHONPATH of one server: Python imports ``sitecustomize`` before anything else, and
this one changes SGLang's choice of a kernel once that module is loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

CHOICE = "sglang.srt.layers.utils.multi_platform"
NATIVE = ("RMSNorm", "SiluAndMul", "RotaryEmbedding", "Llama3RotaryEmbedding")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the one module, once, and hands it on changed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec with a loader that changes the class after it ran."""
        if name != CHOICE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = changed(spec.loader.exec_module)  # type: ignore[method-assign, assignment]
        return spec


def changed(load: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """``load``, then the operations of ``NATIVE`` choose their PyTorch form."""

    def run(module: ModuleType) -> None:
        load(module)
        base: Any = module.MultiPlatformOp
        choose = base.dispatch_forward

        def dispatch_forward(self: Any) -> Any:
            native = type(self).__name__ in NATIVE
            return self.forward_native if native else choose(self)

        base.dispatch_forward = dispatch_forward

    return run


sys.meta_path.insert(0, Finder())
