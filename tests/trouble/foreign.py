"""What is none of our business and must never be killed without being named."""

# No pathlib: os.path and open suit forked processes and Python 3.8.
# ruff: noqa: PTH115
from __future__ import annotations

import os
import sys
from typing import NoReturn

from tests.trouble.process import (
    Order,
    Report,
    hold,
    make_ranks,
    send_and_die,
    set_title,
    sleep,
    start_ticks,
    unshare_pids,
)


def user(report: Report, order: Order) -> None:
    """Somebody else's server: worker and launcher belong to another uid (needs root)."""
    uid = 1001
    if os.getuid() != 0:
        sys.exit("trouble: foreign-user needs root")
    os.setgid(uid)
    os.setuid(uid)
    make_ranks(report, order.ranks, order.mib)
    report.add(launcher=os.getpid())
    report.say(uid=uid)
    send_and_die(report)


def _somebody(report: Report, order: Order, *argv: str) -> NoReturn:
    _memory = hold(order.mib)
    set_title(*argv)
    report.add(process=os.getpid())
    report.send()
    sleep()


def training(report: Report, order: Order) -> None:
    """A training run (RANK, WORLD_SIZE and LOCAL_RANK in its environment)."""
    _somebody(report, order, "python3", "train.py", "--config", "pretrain.yaml")


def python(report: Report, order: Order) -> None:
    """A notebook's kernel."""
    _somebody(report, order, "python3", "-m", "ipykernel_launcher", "-f", "kernel.json")


def monitor(report: Report, order: Order) -> None:
    """A monitoring agent that is always there."""
    _somebody(report, order, "/usr/bin/nv-hostengine", "-n")


def other_namespace(report: Report, order: Order) -> None:
    """An orphaned-looking worker in a pid namespace of its own (needs root)."""
    unshare_pids()
    pid = make_ranks(report, 1, order.mib)[0]
    report.add(launcher=os.getpid())
    report.say(namespace=os.readlink(f"/proc/{pid}/ns/pid"), began=start_ticks(pid))
    report.send()
    sleep()
