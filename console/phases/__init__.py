"""Where a server is in its life, read from its log as it is written. Pure: lines in, phases out."""

from console.phases.events import STEP_PHASE
from console.phases.learned import FLOOR_S, Learned, learn, limit_s, remaining_s
from console.phases.lines import Line, parse
from console.phases.machine import PhaseMachine, Stall, Step

__all__ = [
    "FLOOR_S",
    "STEP_PHASE",
    "Learned",
    "Line",
    "PhaseMachine",
    "Stall",
    "Step",
    "learn",
    "limit_s",
    "parse",
    "remaining_s",
]
