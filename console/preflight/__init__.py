"""Rules over a launch command and the facts of its host, before anything is stopped."""

from console.preflight.beside import Reader, reader
from console.preflight.check import check, wanted_paths
from console.preflight.command import Container, LaunchCommand, Redirection
from console.preflight.facts import (
    GpuFacts,
    HostFacts,
    ModelFacts,
    PathFacts,
    ServedFacts,
    Tensor,
)
from console.preflight.offline import model_facts, offline_facts
from console.preflight.parse import from_argv
from console.preflight.recognise import parse_command

__all__ = [
    "Container",
    "GpuFacts",
    "HostFacts",
    "LaunchCommand",
    "ModelFacts",
    "PathFacts",
    "Reader",
    "Redirection",
    "ServedFacts",
    "Tensor",
    "check",
    "from_argv",
    "model_facts",
    "offline_facts",
    "parse_command",
    "reader",
    "wanted_paths",
]
