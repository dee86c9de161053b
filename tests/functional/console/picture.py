"""Writes the picture of the README from the real application over the hosts of the tests.

python -m tests.functional.console.picture docs/fleet.svg
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from tests.functional.console import fake
from tests.functional.console.scenes import BY_NAME, open_desk

SIZE = (100, 30)
"""Columns and rows that read well on a page."""


async def picture() -> str:
    """One fleet screen, as SVG."""
    shown = {name: view for name, view in fake.views().items() if name != "evil"}
    config = fake.config(theme="dark", hosts={name: view.host for name, view in shown.items()})
    made = fake.app(fleet=fake.FakeFleet(shown), config=config)
    async with made[0].run_test(size=SIZE) as pilot:
        desk = await open_desk(pilot, made)
        await BY_NAME["fleet"].show(desk)
        await desk.still()
        return desk.app.export_screenshot(title="specops console")


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"  # the clock on it, wherever it is drawn
    time.tzset()
    Path(sys.argv[1]).write_text(asyncio.run(picture()), encoding="utf-8")
