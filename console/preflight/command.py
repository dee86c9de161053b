"""A launch line as data: what would be started, with which variables, and where its output goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Engine = Literal["sglang", "vllm", "bundled"]
Form = Literal["shell", "systemd", "docker", "compose", "kubernetes", "argv"]


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where a stream goes: ``fd`` is ``1``, ``2``, ``&`` (both) or ``0`` (input)."""

    fd: str
    path: str
    append: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """What a container is given. Sizes in MiB; ``None`` is docker's default, not zero.

    ``ports`` maps published ports to the container's. ``gpus`` is the text of ``--gpus``.
    """

    image: str = ""
    name: str | None = None
    shm_mib: float | None = None
    ipc_host: bool = False
    host_network: bool = False
    gpus: str | None = None
    ports: Mapping[int, int] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()
    ulimits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """One launch of a model server, as an operator wrote it.

    ``args`` are the engine's own arguments after its entry point. ``wrapper`` is what stands before
    the interpreter (``sudo``, ``nohup``, ``numactl --cpunodebind=0``). ``unresolved`` names the
    variables whose value the text does not give; an argument that holds one cannot be judged.
    ``version`` is the engine's version where the text names it (an image tag). ``lost`` are lines
    of flags after it that are commands of their own, for want of a backslash.
    """

    engine: Engine
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    entry: str = ""
    cwd: str | None = None
    wrapper: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    background: bool = False
    form: Form = "shell"
    container: Container | None = None
    unresolved: tuple[str, ...] = ()
    version: str | None = None
    env_files: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The flags in order, each with the words up to the next flag.

        ``--a=b`` counts as flag ``--a`` with one word. Words before the first flag stand under
        an empty name.
        """
        out: list[tuple[str, tuple[str, ...]]] = []
        for word in self.args:
            if is_flag(word):
                name, eq, value = word.partition("=")
                out.append((name, (value,) if eq else ()))
            elif out:
                out[-1] = (out[-1][0], (*out[-1][1], word))
            else:
                out.append(("", (word,)))
        return tuple(out)

    @property
    def log(self) -> str | None:
        """The file that standard error goes to, where the server writes its log."""
        for item in reversed(self.redirections):
            if item.fd in ("2", "&"):
                return item.path
        return None


def is_flag(word: str) -> bool:
    """Whether argparse would take the word for an option: ``-x`` or ``--long``, no number."""
    if len(word) < 2 or not word.startswith("-"):
        return False
    return not word[1:].replace(".", "", 1).isdigit() and " " not in word.partition("=")[0]
