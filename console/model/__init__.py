"""The words of the house: frozen data that rules, agent client, actions, CLI and widgets share.

Nothing here does I/O and nothing here imports another room. Units are in the names: ``_mib`` is
mebibytes, ``_s`` seconds, ``_pct`` 0 to 100. ``None`` always means *unknown* and never zero.
"""

from console.model.hosts import Host, HostState, Outer, Preset, Run, Runner, Server, Via
from console.model.plans import Plan, Step, StepKind, StepResult, Target
from console.model.seen import Artefact, Cpu, Gpu, GpuProcess, Hello, Process, ProcessId, Snapshot
from console.model.state import Health, NodeState, Phase, PhaseSpan, ServerState
from console.model.verdicts import (
    Change,
    Diagnosis,
    Finding,
    Resource,
    Root,
    Severity,
    Zombie,
    ZombieKind,
    first_line,
)
from console.model.views import HostView, OpenPlan

SCHEMA = 1
"""Version of every JSON document printed by the command line."""

__all__ = [
    "SCHEMA",
    "Artefact",
    "Change",
    "Cpu",
    "Diagnosis",
    "Finding",
    "Gpu",
    "GpuProcess",
    "Health",
    "Hello",
    "Host",
    "HostState",
    "HostView",
    "NodeState",
    "OpenPlan",
    "Outer",
    "Phase",
    "PhaseSpan",
    "Plan",
    "Preset",
    "Process",
    "ProcessId",
    "Resource",
    "Root",
    "Run",
    "Runner",
    "Server",
    "ServerState",
    "Severity",
    "Snapshot",
    "Step",
    "StepKind",
    "StepResult",
    "Target",
    "Via",
    "Zombie",
    "ZombieKind",
    "first_line",
]
