"""Facts from a host that answers, that is slow, that refuses: unknown is never zero."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from console.errors import Refused
from console.model import Cpu, Gpu, GpuProcess, Host, Process, ProcessId, Severity, Snapshot
from console.planning import enginecheck, hostfacts
from console.planning.hostfacts import Replaced, gather
from console.preflight import HostFacts, LaunchCommand, ModelFacts, check, from_argv
from console.remote import Completed, FileStat, HostFileError, Remote


class HereRemote:
    """Commands and files of this machine; ``refuses`` makes it a read-only session."""

    def __init__(self, *, refuses: bool = False, answer: bytes | None = None) -> None:
        self.host = Host("here", transport="local")
        self.refuses = refuses
        self.answer = answer
        self.ran: list[tuple[str, ...]] = []

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Completed:  # fmt: skip
        self.ran.append(tuple(argv))
        if self.refuses:
            raise Refused("read-only")
        if self.answer is not None:
            return Completed(0, self.answer, b"")
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise HostFileError("not there", errno=2) from error
        out, err = await process.communicate(stdin)
        return Completed(process.returncode, out, err)

    async def stat(self, paths: Sequence[str]) -> list[FileStat]:
        return [
            FileStat(p, "dir" if Path(p).is_dir() else "missing", readable=Path(p).is_dir())
            for p in paths
        ]

    async def read_file(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise HostFileError("no", errno=error.errno) from error


def process(pid: int, *argv: str, uid: int = 0) -> Process:
    return Process(
        ProcessId(pid, pid, "b"), 1, pid, pid, uid, "root", "S", argv[0] if argv else "x", argv
    )


def snapshot(*processes: Process, **more: Any) -> Snapshot:
    cpu = Cpu(1000.0, 4000.0, 4, shm_used_mib=None, shm_total_mib=64.0)
    return Snapshot("b", 0.0, 0, processes, cpu=cpu, **more)


def command(model: Path | str) -> LaunchCommand:
    return from_argv(("python3", "-m", "sglang.launch_server", "--model-path", str(model)))


async def test_a_host_that_answers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    facts = await gather(cast("Remote", HereRemote()), command(tmp_path), snapshot())
    assert facts.target is not None
    assert facts.target.config == {"max_position_embeddings": 64}
    assert facts.paths[str(tmp_path)].exists
    assert facts.python
    assert facts.memory_free_mib == 3000.0
    assert facts.shm_free_mib is None  # used is unknown, so free is
    assert facts.gpus is None


async def test_a_session_that_may_run_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": 1}')
    facts = await gather(cast("Remote", HereRemote(refuses=True)), command(tmp_path), snapshot())
    assert facts.target is not None
    assert facts.target.config == {"a": 1}
    assert facts.paths[str(tmp_path)].exists
    assert (facts.python, facts.driver, facts.launch_env, facts.login_env) == (None,) * 4


@pytest.mark.parametrize("said", [b"", b"Welcome!\n", b"[]\n", b'{"models": null, "paths": null}'])
async def test_an_answer_that_is_none(said: bytes, tmp_path: Path) -> None:
    remote = cast("Remote", HereRemote(answer=said))
    facts = await gather(remote, command(tmp_path / "gone"), snapshot())
    assert facts.target is None
    assert not [f for f in check(command(tmp_path), facts) if f.rule.startswith("model-config")]


@pytest.mark.parametrize(("line", "cuda"), [("'13.0'", "13.0"), ("None", None)])
def test_cuda_is_torchs_own_word(tmp_path: Path, line: str, cuda: str | None) -> None:
    """As torch writes it: the word also stands in __all__, before the version."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (tmp_path / "torch" / "version.py").write_text(
        "__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = '2.13.0'\ndebug = False\ncuda: Optional[str] = {line}\nhip = '6.1'\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", hostfacts._VERSIONS],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    assert json.loads(done.stdout).get("cuda") == cuda


async def test_what_is_replaced_counts_as_gone() -> None:
    server = process(10, "python3", "-m", "sglang.launch_server", "--model-path", "/m")
    other = process(20, "python3", "-m", "sglang.launch_server", "--model-path", "/m")
    shown = (GpuProcess(10, 700.0), GpuProcess(20, 100.0))
    seen = snapshot(
        server,
        other,
        gpus=(Gpu(0, "GPU-0", "H200", 850.0, 1000.0, processes=shown),),
        gpu_source="nvml",
        listening={30000: 10, 30001: 20, 22: None},
    )
    gone = Replaced(frozenset({10}), "one")
    facts = await gather(cast("Remote", HereRemote(answer=b"")), command("/m"), seen, replaced=gone)
    assert facts.gpus is not None
    assert facts.gpus[0].free_mib == 150.0 + 700.0
    assert [h.split()[1] for h in facts.gpus[0].holders] == ["20"]
    assert set(facts.ports or {}) == {30001, 22}
    assert {s.pid: s.replaced for s in facts.served or ()} == {10: True, 20: False}


async def test_memory_that_the_driver_hides_is_unknown() -> None:
    gpu = Gpu(0, "GPU-0", "H200", 850.0, 1000.0, processes=(GpuProcess(10, None),))
    seen = snapshot(process(10, "x"), gpus=(gpu,), gpu_source="nvml")
    gone = Replaced(frozenset({10}))
    facts = await gather(cast("Remote", HereRemote(answer=b"")), command("/m"), seen, replaced=gone)
    assert facts.gpus is not None
    assert facts.gpus[0].free_mib is None


GONE = "import sglang: ModuleNotFoundError: No module named 'sglang'"


@pytest.mark.parametrize(
    ("change", "said", "sure", "rule"),
    [
        ({}, GONE, True, "engine-missing"),
        ({}, GONE, False, "engine-check-absent"),  # a unit's user and environment are its own
        ({}, "import sglang: ModuleNotFoundError: No module named 'torch'", True, "absent"),
        ({}, "import sglang: ImportError: libcuda.so.1", True, "absent"),
        ({"wrapper": ("conda", "run")}, GONE, True, "absent"),
        ({"env_files": ("/etc/e",)}, GONE, True, "absent"),
        ({"entry": "/opt/bin/sglang"}, GONE, True, "absent"),
        ({"cwd": None}, GONE, True, "absent"),
        ({"cwd": "/src"}, GONE, True, "absent"),  # -m would find /src/sglang
    ],
)
async def test_an_engine_that_is_certainly_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any], said: str, sure: bool, rule: str,
) -> None:  # fmt: skip
    from console.preflight.engine_check import SENTINEL

    monkeypatch.setattr(enginecheck, "state_dir", lambda: tmp_path)
    (tmp_path / "src" / "sglang").mkdir(parents=True)
    if change.get("cwd"):
        change = {"cwd": str(tmp_path / "src")}
    asked = replace(command("/m"), **{"cwd": str(tmp_path), **change})
    remote = cast("Remote", HereRemote(answer=(SENTINEL + json.dumps({"absent": said})).encode()))
    (found,) = await enginecheck.engine_findings(remote, asked, HostFacts(), sure=sure)
    assert found.rule.endswith(rule)
    assert (found.severity is Severity.ERROR) == (rule == "engine-missing")
    assert "sglang" in found.message


async def test_the_engines_answer_is_kept_its_absence_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.preflight.engine_check import SENTINEL

    monkeypatch.setattr(enginecheck, "state_dir", lambda: tmp_path)
    facts = HostFacts(target=ModelFacts("/m", {"a": 1}), sglang="0.5.12")
    absent = HereRemote(answer=b"no such module")
    found = await enginecheck.engine_findings(cast("Remote", absent), command("/m"), facts)
    assert [f.rule for f in found] == ["engine-check-absent"]
    said = SENTINEL + '{"version": "0.5.12", "errors": [{"type": "ValueError", "message": "no"}]}\n'
    remote = HereRemote(answer=said.encode())
    first = await enginecheck.engine_findings(cast("Remote", remote), command("/m"), facts)
    again = await enginecheck.engine_findings(cast("Remote", remote), command("/m"), facts)
    assert [f.rule for f in first] == ["engine-refuses"]
    assert again == first
    assert len(remote.ran) == 1
    changed = HostFacts(target=ModelFacts("/m", {"a": 2}), sglang="0.5.12")
    await enginecheck.engine_findings(cast("Remote", remote), command("/m"), changed)
    assert len(remote.ran) == 2
