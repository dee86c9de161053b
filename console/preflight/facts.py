"""What is known of the host and of the model files. ``None`` is unknown, and no rule judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One device. Memory in MiB; ``capability`` is the compute capability, (9, 0) for Hopper."""

    index: int
    name: str = ""
    total_mib: float | None = None
    free_mib: float | None = None
    uuid: str = ""
    capability: tuple[int, int] | None = None
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PathFacts:
    """A path on the host. ``free_mib`` is the space left on its file system, in MiB."""

    exists: bool | None = None
    readable: bool | None = None
    writable: bool | None = None
    directory: bool | None = None
    free_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a safetensors header declares it."""

    shape: tuple[int, ...]
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model folder: its config and its weight files.

    ``files`` maps file names to bytes on disk; ``expected`` maps a safetensors file to the bytes
    its own header promises; ``index`` maps a tensor to the file that
    ``model.safetensors.index.json`` puts it in. ``problem`` says why ``config`` is unknown where
    the folder is there but its config.json is not usable; ``damaged`` says of a weight file why its
    header cannot be read.
    """

    path: str = ""
    config: Mapping[str, Any] | None = None
    problem: str = ""
    files: Mapping[str, int] | None = None
    expected: Mapping[str, int] | None = None
    index: Mapping[str, str] | None = None
    tensors: Mapping[str, Tensor] | None = None
    damaged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServedFacts:
    """A model server that is there already. ``replaced`` is true for the one to be stopped."""

    name: str
    model: str
    port: int | None = None
    pid: int | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything that was found out before the launch.

    ``ports`` maps a port in use to who has it; a port of the server that is to be replaced is left
    out by the caller. ``driver`` is the NVIDIA driver's version, ``torch_cuda`` the CUDA version
    that the host's torch was built for. ``launch_env`` and ``login_env`` are the two environments
    of a host that are known to differ: the one a launch gets, the one an operator sees.
    """

    gpus: tuple[GpuFacts, ...] | None = None
    target: ModelFacts | None = None
    draft: ModelFacts | None = None
    paths: Mapping[str, PathFacts] = field(default_factory=dict)
    shm_free_mib: float | None = None
    shm_total_mib: float | None = None
    memory_free_mib: float | None = None
    ports: Mapping[int, str] | None = None
    driver: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    python: str | None = None
    sglang: str | None = None
    launch_env: Mapping[str, str] | None = None
    login_env: Mapping[str, str] | None = None
    served: tuple[ServedFacts, ...] | None = None
