"""The table of step kinds that killing and cleaning need; other rooms bring theirs."""

from __future__ import annotations

from console.actions.clean import clean_step
from console.actions.commands import run_step, stop_unit_step
from console.actions.dump import dump_step
from console.actions.reset import reset_step
from console.actions.signals import signal_step, wait_gone_step
from console.actions.steps import Handler
from console.actions.verify import verify_step
from console.model import StepKind


def default_handlers() -> dict[StepKind, Handler]:
    """What does a step of each kind."""
    return {
        StepKind.SIGNAL: signal_step,
        StepKind.WAIT_GONE: wait_gone_step,
        StepKind.STOP_UNIT: stop_unit_step,
        StepKind.CLEAN: clean_step,
        StepKind.VERIFY: verify_step,
        StepKind.RUN: run_step,
        StepKind.RESET_GPU: reset_step,
        StepKind.DUMP: dump_step,
    }
