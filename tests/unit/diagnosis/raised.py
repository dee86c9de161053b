"""Logs built from places where the engines raise: the stack of that moment, then the exception.

A row of ``tests/data/cases/raised/*.tsv`` holds, between tabs: the moment (``args``, ``init``,
``load``, ``weights``, ``loop``), the categories that are right with the best first, file and line,
function, class, and the message; a message in ``<>`` is an assertion without text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.unit.diagnosis.cases import DATA

_LIBRARY = "/usr/local/lib/python3.12/dist-packages/"
_SGLANG = {
    "args": [("../launch_server.py", 36, "<module>", "prepare_server_args(sys.argv[1:])")],
    "init": [
        ("managers/scheduler.py", 3312, "run_scheduler_process", "scheduler = Scheduler("),
        ("managers/scheduler.py", 386, "__init__", "self.init_model_worker()"),
    ],
    "load": [
        ("managers/scheduler.py", 3312, "run_scheduler_process", "scheduler = Scheduler("),
        ("model_executor/model_runner.py", 1003, "load_model", "self.loader.load_model("),
        ("model_loader/loader.py", 272, "_initialize_model", "return model_class(**kwargs)"),
    ],
    "weights": [
        ("managers/scheduler.py", 3312, "run_scheduler_process", "scheduler = Scheduler("),
        ("model_executor/model_runner.py", 1003, "load_model", "self.loader.load_model("),
        ("model_loader/loader.py", 697, "load_model", "model.load_weights(weights)"),
    ],
    "loop": [
        ("managers/scheduler.py", 3345, "run_scheduler_process", "scheduler.event_loop_overlap()"),
        ("managers/scheduler.py", 1280, "event_loop_overlap", "self.run_batch(batch)"),
        ("managers/tp_worker.py", 466, "forward_batch_generation", "self.model_runner.forward("),
    ],
}
_VLLM = {
    "args": [("entrypoints/cli/main.py", 73, "main", "args.dispatch_function(args)")],
    "init": [
        ("v1/engine/core.py", 935, "run_engine_core", "engine_core = EngineCoreProc("),
        ("v1/engine/core.py", 105, "__init__", "self.model_executor = executor_class("),
    ],
    "load": [
        ("v1/engine/core.py", 935, "run_engine_core", "engine_core = EngineCoreProc("),
        ("v1/worker/gpu_worker.py", 289, "load_model", "self.model_runner.load_model("),
        ("model_executor/model_loader/base_loader.py", 50, "load_model", "initialize_model("),
    ],
    "weights": [
        ("v1/engine/core.py", 935, "run_engine_core", "engine_core = EngineCoreProc("),
        ("v1/worker/gpu_worker.py", 289, "load_model", "self.model_runner.load_model("),
        ("model_executor/model_loader/base_loader.py", 54, "load_model", "self.load_weights("),
    ],
    "loop": [
        ("v1/engine/core.py", 946, "run_engine_core", "engine_core.run_busy_loop()"),
        ("v1/engine/core.py", 973, "run_busy_loop", "self._process_engine_step()"),
        ("v1/worker/gpu_worker.py", 619, "execute_model", "self.model_runner.execute_model("),
    ],
}
_SGLANG_BEFORE = {
    "args": [],
    "init": ["Init torch distributed begin.", "Load weight begin. avail mem=78.31 GB"],
    "load": ["Init torch distributed begin.", "Load weight begin. avail mem=78.31 GB"],
    "weights": ["Init torch distributed begin.", "Load weight begin. avail mem=78.31 GB"],
    "loop": ["Load weight begin. avail mem=78 GB", "The server is fired up and ready to roll!"],
}


@dataclass(frozen=True)
class Place:
    """One place that raises, and the categories that are right for it."""

    engine: str
    moment: str
    categories: tuple[str, ...]
    file: str
    line: int
    function: str
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def log(self) -> bytes:
        """The log of a server that ended there."""
        sglang = self.engine == "sglang"
        root = _LIBRARY + ("sglang/srt/" if sglang else "vllm/")
        above = (_SGLANG if sglang else _VLLM)[self.moment]
        stack = ["Traceback (most recent call last):"]
        for file, line, function, code in above:
            stack += [f'  File "{root}{file}", line {line}, in {function}', f"    {code}"]
        bare = self.message.startswith("<")
        code = self.message[1:-1] if bare else f"raise {self.type}("
        place = f'  File "{_LIBRARY}{self.file}", line {self.line}, in {self.function}'
        stack += [place, f"    {code}", self.type if bare else f"{self.type}: {self.message}"]
        lines = self._sglang(stack) if sglang else self._vllm(stack)
        return "\n".join([*lines, ""]).encode()

    def _sglang(self, stack: list[str]) -> list[str]:
        if self.moment == "args":
            return stack
        before = [f"[2026-03-14 08:11:02] {text}" for text in _SGLANG_BEFORE[self.moment]]
        head = f"[2026-03-14 08:12:20] Scheduler hit an exception: {stack[0]}"
        end = "[2026-03-14 08:12:21] Received sigquit from a child process."
        return [*before, head, *stack[1:], "", end]

    def _vllm(self, stack: list[str]) -> list[str]:
        api = "(APIServer pid=1) "
        lines = [f"{api}INFO 03-14 08:11:02 [api_server.py:1272] vLLM API server version 0.15.0"]
        if self.moment == "args":
            return lines + [api + text for text in stack]
        if self.moment == "loop":
            lines.append(f"{api}INFO:     Application startup complete.")
        prefix = "(EngineCore_DP0 pid=214) ERROR 03-14 08:12:20 [core.py:944] "
        return lines + [prefix + text for text in ["EngineCore failed.", *stack]]


@cache
def places() -> tuple[Place, ...]:
    """Every row of every table, in order."""
    found = []
    for path in sorted((DATA / "raised").glob("*.tsv")):
        for row in path.read_text("utf-8").splitlines():
            moment, categories, place, function, kind, message = row.split("\t")
            file, _, line = place.rpartition(":")
            named = tuple(categories.split("/"))
            engine = Path(file).parts[0]
            found.append(Place(engine, moment, named, file, int(line), function, kind, message))
    assert found, f"no tables under {DATA}"
    return tuple(found)
