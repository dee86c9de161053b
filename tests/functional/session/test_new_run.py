"""A run is known, with its log, at the first look at its process: whoever launched it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.model import Server, Snapshot
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
    name = f"r-lost-{os.getpid()}"
    asked, runs, snapshot = [], session.runs, session.snapshot

    async def counted() -> object:
        asked.append(1)
        return await runs()

    async def ours(**kw: bool) -> Snapshot:
        """Without the runs of whoever else is on this machine: each of them is asked for too."""
        seen = await snapshot(**kw)
        mine = tuple(p for p in seen.processes if p.run_id in (None, name))
        return replace(seen, processes=mine)

    monkeypatch.setattr(session, "runs", counted)
    monkeypatch.setattr(session, "snapshot", ours)
    started = await session.launch(Launch(make_run(name, SLEEPER, home / "log"), scope=False))
    assert started.launcher is not None
    try:
        (home / "state" / "runs" / f"{name}.json").unlink()
        for _ in range(3):
            assert (await observer.observe(Depth.LIGHT)).runs == ()
        assert len(asked) == 1
        observer.anew()
        await observer.observe(Depth.LIGHT)
        assert len(asked) == 2, "who asks anew gets everything anew"
    finally:
        await kill(session, started.launcher)
