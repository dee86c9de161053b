"""The program behind test_terminal.py: the console over the fake fleet, in a real terminal."""

from __future__ import annotations

import sys
import time
from typing import Never

from console.app import SpecopsApp
from console.screens.opening import Beginning, Prepared
from tests.functional.console import fake


def _crash(app: SpecopsApp) -> None:
    def boom(view: object) -> Never:
        raise RuntimeError("a bug")

    app.view_changed = boom  # type: ignore[method-assign]

    def tick() -> Never:
        raise RuntimeError("a bug in drawing")

    app.set_timer(0.3, tick)


def _never() -> Prepared:
    """A hosts.yaml on a disk that takes its time."""
    time.sleep(3)
    return Prepared(fake.config(), None)  # type: ignore[arg-type]


if __name__ == "__main__":
    app, *_ = fake.app()
    if "slow" in sys.argv:
        app.beginning = Beginning(app, _never)
    if "crash" in sys.argv:
        app.call_later(_crash, app)
    app.run()
    sys.exit(app.return_code or 0)
