"""Long counts: a twentieth of them in an ordinary run, all of them with ``make test-long``.

    for _ in range(scale.count(1000)):
    rng = random.Random(scale.seed())

``SPECOPS_SCALE`` is the share (0.05 unless set), ``SPECOPS_SEED`` the seed (random unless set; it
is printed in the header of every run, so that a failure can be repeated).
"""

from __future__ import annotations

import math
import os
import secrets

SHARE = float(os.environ.get("SPECOPS_SCALE", "0.05"))
_SEED = int(os.environ.setdefault("SPECOPS_SEED", str(secrets.randbelow(2**31))))


def count(full: int) -> int:
    """How many of ``full`` to do in this run, at least one."""
    return max(1, math.ceil(full * SHARE))


def seed() -> int:
    """The seed of this run; the same in every worker process, because they inherit it."""
    return _SEED


def header() -> str:
    """The line for pytest's header."""
    return f"specops: scale {SHARE:g}, SPECOPS_SEED={_SEED}"
