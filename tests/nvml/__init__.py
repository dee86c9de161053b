"""NVIDIA's management library without NVIDIA: a stub that the real ``pynvml`` loads.

``Nvml(folder)`` compiles libnvidia-ml.so.1 and a matching nvidia-smi into a folder and drives them
by a text file that both read anew on every call, so that a test changes the world under a running
monitor. Lines of the file (``scenario.c`` reads them)::

    driver 570.124.06
    gpu INDEX [uuid= total= reserved= used= util= mem_util= power= power_limit= temp= recovery=
               mig= lost= old_layout= name=…]          MiB, %, milliwatts, degrees Celsius
    mig GPU SLOT [uuid= total= used=]
    proc GPU PID MIB [lag= start= shown= graphics= instance= util=]
                                                       graphics: 1 graphics, 2 a client of MPS
    elsewhere GPU PID MIB …                            a pid of another namespace
    fail FUNCTION GPU|* CODE                           FUNCTION may be ``init`` or ``nvidia-smi``
    hang FUNCTION GPU|* SECONDS

A ``proc`` holds its memory while a thread of that very process runs (``start``: field 22 of its
stat) and ``lag`` seconds longer, as a driver that is still freeing; ``shown=N/A`` is what NVML says
in containers and MIG.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.inside import Inside

SOURCE = Path(__file__).parent
LIBRARY = "libnvidia-ml.so.1"
SCENARIO = "nvml-scenario"
IN_HOST = "/opt/nvml"
_RESETS = """#!/bin/sh
# nvidia-smi that also resets: notes each call, does what the file beside it says
here={folder}
[ "$1" = --gpu-reset ] || exec "$here/nvidia-smi.query" "$@"
echo "$$ $*" >> "$here/resets"
how=$(cat "$here/how")
while [ "$how" = wait-first ] && [ ! -e "$here/go" ]; do sleep 0.05; done
if [ "$how" = in-use ]; then
    echo "The following GPUs could not be reset:"
    echo "  GPU 00000000:31:00.0: In use by another client"
    exit 255
fi
if [ "$how" != silent ]; then
    sed 's/recovery=[0-9]*/recovery=0/' "$here/{scenario}" > "$here/reset.new"
    mv "$here/reset.new" "$here/{scenario}"
fi
touch "$here/was-reset"
while [ "$how" = wait-after ] && [ ! -e "$here/go" ]; do sleep 0.05; done
echo "GPU 00000000:31:00.0 was successfully reset."
"""
_WARNINGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")


@functools.cache
def _compiled() -> tuple[bytes, bytes]:
    """The library and nvidia-smi, compiled once per test process."""
    with tempfile.TemporaryDirectory() as name:
        library, smi = Path(name, LIBRARY), Path(name, "nvidia-smi")
        _compile("-shared", "-fPIC", "-o", str(library), "nvml.c")
        _compile("-DPROGRAM", "-o", str(smi), "smi.c")
        return library.read_bytes(), smi.read_bytes()


def _compile(*argv: str) -> None:
    subprocess.run(
        ["gcc", *_WARNINGS, *argv, "scenario.c", "-ldl"], cwd=SOURCE, check=True, timeout=60
    )


def missing() -> str | None:
    """Why the stub cannot be compiled here, or None."""
    return None if shutil.which("gcc") else "test needs gcc for the NVML stub"


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def install(host: Inside, gpus: int = 8) -> Nvml:
    """The stub in a container, where the driver's files would be; driven from here.

    Give ``set_process`` pids of the container and their ``start`` (``host.seen(pid).start_ticks``).
    It is gone after the host's reset.
    """
    stub = Nvml(host.path(IN_HOST), gpus)
    for source, target in (
        (stub.library.name, f"/usr/lib/{os.uname().machine}-linux-gnu/{LIBRARY}"),
        (stub.smi.name, "/usr/bin/nvidia-smi"),
    ):
        link = host.path(target)
        link.unlink(missing_ok=True)
        link.symlink_to(f"{IN_HOST}/{source}")
    return stub


def _options(values: dict[str, object]) -> str:
    """``key=value`` words; a name comes last, because it may hold spaces."""
    return " ".join(
        f"{key}={int(value) if isinstance(value, bool) else value}"
        for key, value in sorted(values.items(), key=lambda item: item[0] == "name")
    )


@dataclass
class Nvml:
    """The stub in ``folder``, with ``gpus`` idle GPUs to begin with. Every method acts at once.

    ``library`` and ``smi`` are the files; ``env`` is what a program needs to find them.
    """

    folder: Path
    gpus: int = 8
    _lines: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        library, smi = _compiled()
        self.library = self.folder / LIBRARY
        self.smi = self.folder / "nvidia-smi"
        self.scenario = self.folder / SCENARIO
        self.library.write_bytes(library)
        self.smi.write_bytes(smi)
        self.smi.chmod(0o755)
        for index in range(self.gpus):
            self._lines["gpu", str(index)] = f"gpu {index}"
        self._save()

    @property
    def env(self) -> dict[str, str]:
        """Variables by which a program here loads the stub and finds nvidia-smi."""
        found = (str(self.folder), os.environ.get("LD_LIBRARY_PATH", ""))
        return {
            "LD_LIBRARY_PATH": ":".join(part for part in found if part),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }

    def load(self, scenario: str) -> None:
        """Replace everything by the lines of ``scenario`` (see the module's docstring)."""
        self._lines = {("raw", str(i)): line for i, line in enumerate(scenario.splitlines())}
        self._save()

    def set_gpu(self, index: int, **options: object) -> None:
        """Describe a GPU, new or there already (``lost=True``, ``util=100``, ``used=4``…)."""
        self._set(("gpu", str(index)), f"gpu {index} {_options(options)}")

    def set_mig(self, gpu: int, slot: int, **options: object) -> None:
        """Describe a MIG slice; its GPU wants ``mig=True``."""
        self._set(("mig", str(gpu), str(slot)), f"mig {gpu} {slot} {_options(options)}")

    def set_process(self, gpu: int, pid: int, mib: int, **options: object) -> None:
        """A process of this machine (of the stub's pid namespace) holds memory while it lives."""
        if "start" not in options:
            options["start"] = start_ticks(pid)
        self._set(("proc", str(gpu), str(pid)), f"proc {gpu} {pid} {mib} {_options(options)}")

    def set_elsewhere(self, gpu: int, pid: int, mib: int, **options: object) -> None:
        """A pid of another namespace holds memory, until ``drop_process``."""
        self._set(("proc", str(gpu), str(pid)), f"elsewhere {gpu} {pid} {mib} {_options(options)}")

    def drop_process(self, gpu: int, pid: int) -> None:
        """Forget a process and its memory."""
        del self._lines["proc", str(gpu), str(pid)]
        self._save()

    def fail(self, function: str, code: int, gpu: int | None = None) -> None:
        """Let an NVML function (or ``init``, or ``nvidia-smi``) return an error; 0: no more."""
        where = "*" if gpu is None else str(gpu)
        self._set(("fail", function, where), f"fail {function} {where} {code}")

    def hang(self, function: str, seconds: float, gpu: int | None = None) -> None:
        """Let an NVML function (or ``init``, or ``nvidia-smi``) sleep first; 0: no more."""
        where = "*" if gpu is None else str(gpu)
        self._set(("hang", function, where), f"hang {function} {where} {seconds}")

    def resets(self, how: str = "well") -> None:
        """Let nvidia-smi reset: every device then asks for nothing.

        ``how``: ``well``, ``in-use`` (refused), ``silent`` (said to be done and is not),
        ``wait-first`` and ``wait-after`` (until a file ``go`` is there).
        """
        query = self.folder / "nvidia-smi.query"
        if not query.exists():
            self.smi.rename(query)
        self.smi.write_text(_RESETS.format(folder=self.folder, scenario=SCENARIO))
        self.smi.chmod(0o755)
        (self.folder / "how").write_text(how)

    @property
    def reset_calls(self) -> list[list[str]]:
        """Each call that was to reset: its pid and its words."""
        path = self.folder / "resets"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def used_mib(self, gpu: int) -> int:
        """What nvidia-smi says is in use."""
        rows = self.query("memory.used")
        return int(rows[gpu])

    def query(self, fields: str) -> Sequence[str]:
        """The lines of ``nvidia-smi --query-gpu=FIELDS``."""
        argv = [str(self.smi), f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        return subprocess.run(
            argv, capture_output=True, text=True, check=True, timeout=60
        ).stdout.splitlines()

    def _set(self, key: tuple[str, ...], line: str) -> None:
        self._lines[key] = line.strip()
        self._save()

    def _save(self) -> None:
        """In one step, so that no reader sees half a scenario."""
        fresh = self.scenario.with_suffix(".new")
        fresh.write_text("\n".join(self._lines.values()) + "\n")
        fresh.replace(self.scenario)
