"""Writes the picture of the README from the real application over the hosts of the tests.

python -m tests.functional.console.picture docs/fleet.svg
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.functional.console import fake
from tests.functional.console.steps import settle


async def main(path: Path) -> None:
    """One fleet screen, at a size that reads well on a page."""
    shown = {name: view for name, view in fake.views().items() if name != "evil"}
    config = fake.config(theme="dark", hosts={name: view.host for name, view in shown.items()})
    app, *_ = fake.app(fleet=fake.FakeFleet(shown), config=config)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.pause(0.5)
        path.write_text(app.export_screenshot(title="specops console"), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
