"""The program behind test_soak.py: the console, which tells what it holds in the file of $SOAK."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from console.app import SpecopsApp
from console.cli import main

if TYPE_CHECKING:
    from console.screens.opening import Opener

EVERY_S = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


def held(app: SpecopsApp) -> dict[str, object]:
    """Memory in MB, open files, tasks, threads, screens, and the state of every host."""
    return {
        "rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6,
        "fds": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "screens": len(app.screen_stack),
        "states": {name: view.state.value for name, view in app.views.items()},
    }


connect = SpecopsApp.connect


def connect_and_tell(app: SpecopsApp, opener: Opener) -> None:
    """Tell from the first connection on."""
    file = Path(os.environ["SOAK"])
    new = file.with_suffix(".new")

    def tell() -> None:
        new.write_text(json.dumps(held(app)))
        new.replace(file)

    app.set_interval(EVERY_S, tell)
    connect(app, opener)


if __name__ == "__main__":
    SpecopsApp.connect = connect_and_tell  # type: ignore[method-assign, assignment]
    main()
