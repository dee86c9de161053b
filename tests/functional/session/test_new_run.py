"""A run is known, with its log, at the first look at its process: whoever launched it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.model import Server
from console.remote import Launch
from console.session import Session
from console.watch.observe import Depth, Observer
from tests.functional.session.conftest import make_run
from tests.functional.session.test_local import SLEEPER, kill


@pytest.fixture
async def observer(session: Session) -> AsyncIterator[Observer]:
    """One that has looked once, so that the runs are not due again for seconds."""
    made = Observer(session, [Server("k25", session.host.name, port=1)])
    view = await made.observe(Depth.LIGHT)
    assert view.runs == ()
    yield made
    await made.close()


async def test_a_run_is_known_with_its_process(
    observer: Observer, session: Session, home: Path
) -> None:
    run = replace(make_run("r-new", SLEEPER, home / "log"), server="k25")
    started = await session.launch(Launch(run, scope=False))
    assert started.launcher is not None
    view = await observer.observe(Depth.LIGHT)
    assert [known.log for known in view.runs] == [str(home / "log")]
    assert view.servers[0].run_id == "r-new"
    await kill(session, started.launcher)


async def test_a_run_without_a_record_is_asked_for_once(
    observer: Observer, session: Session, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = await session.launch(Launch(make_run("r-lost", SLEEPER, home / "log"), scope=False))
    assert started.launcher is not None
    (home / "state" / "runs" / "r-lost.json").unlink()
    asked, runs = [], session.runs

    async def counted() -> object:
        asked.append(1)
        return await runs()

    monkeypatch.setattr(session, "runs", counted)
    for _ in range(3):
        assert (await observer.observe(Depth.LIGHT)).runs == ()
    assert len(asked) == 1
    observer.anew()
    await observer.observe(Depth.LIGHT)
    assert len(asked) == 2, "who asks anew gets everything anew"
    await kill(session, started.launcher)
