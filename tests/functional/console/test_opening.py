"""The first frame comes before anything is read, and nothing typed at it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.app import SpecopsApp
from console.errors import ConfigError
from console.screens.opening import Prepared
from console.screens.ports import ActionsPort, FleetPort
from console.screens.presets import PresetsScreen
from console.screens.prompts import ScreenPrompts
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for
from tests.functional.console.terminal import terminal

NOT_BEFORE = (
    "yaml", "asyncssh", "httpx", "click", "console.config", "console.model", "console.session",
    "console.screens.fleet", "textual.widgets._text_area",
)  # fmt: skip


@contextmanager
def unread() -> Iterator[tuple[SpecopsApp, fake.FakeActions, threading.Event]]:
    """A console whose hosts.yaml is read when the event is set, and not before."""
    actions, go = fake.FakeActions(), threading.Event()

    async def opener(prompts: ScreenPrompts) -> tuple[FleetPort, ActionsPort]:
        return fake.FakeFleet(), actions

    def prepare() -> Prepared:
        assert go.wait(60)
        return Prepared(fake.config(), opener)

    try:
        yield SpecopsApp(prepare, label="DEMO", clock=lambda: fake.NOW), actions, go
    finally:
        go.set()


async def test_the_frame_is_there_before_hosts_yaml_is_read() -> None:
    with unread() as (app, _, go):
        async with app.run_test(size=(80, 24)) as pilot:
            await wait_for(pilot, lambda: "reading hosts.yaml" in text(app), "first frame")
            shown = text(app).splitlines()
            assert shown[0].strip().startswith("specops")
            assert "DEMO" in shown[0]
            assert shown[-1].strip().startswith("? help  : command")
            assert "kimi-k25" not in text(app)
            go.set()
            await settle(pilot)
            assert "kimi-k25" in text(app)
            assert "reading hosts.yaml" not in text(app)


async def test_early_keys_come_to_the_screens_that_they_lead_to_in_their_order() -> None:
    with unread() as (app, actions, go):
        async with app.run_test(size=(100, 30)) as pilot:
            await wait_for(pilot, lambda: "reading hosts.yaml" in text(app), "first frame")
            await app._press_keys(["colon", *"host gpu7", "enter"])  # into the line that : opens
            go.set()
            await wait_for(pilot, lambda: "fleet > gpu7" in text(app), "command")
    assert actions.planned == []
    with unread() as (app, _, go):
        async with app.run_test(size=(100, 30)) as pilot:
            await wait_for(pilot, lambda: "reading hosts.yaml" in text(app), "first frame")
            await app._press_keys(["4", "slash", *"name:eagle3-tree", "enter", "c"])
            go.set()
            await wait_for(pilot, lambda: "with a tree of drafts" in app.clipboard, "copied")
            assert isinstance(app.screen, PresetsScreen)
            assert len(app.screen.table.rows) == 1


async def test_ctrl_c_leaves_at_once() -> None:
    with unread() as (app, _, go):
        async with app.run_test(size=(80, 24)) as pilot:
            await wait_for(pilot, lambda: "reading hosts.yaml" in text(app), "first frame")
            await app._press_keys(["ctrl+c"])
            go.set()
    assert app.return_code == 0
    assert app.fleet is None


async def test_what_cannot_be_read_ends_the_console_with_its_error() -> None:
    def prepare() -> Prepared:
        raise ConfigError("no such key", place="hosts.yaml:3")

    app = SpecopsApp(prepare)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: app.failure is not None, "failure")
    assert app.return_code == 2
    assert isinstance(app.failure, ConfigError)


def test_all_mistakes_of_hosts_yaml_are_told_in_a_terminal_as_it_was(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yaml"
    text = "hosts:\n  a: {adress: x}\n  b: {prot: 5}\ntheme: lihgt\n"
    hosts.write_text(text, encoding="utf-8")
    program = ["-c", "from console.cli import main; main()"]
    with terminal([*program, "console", "--hosts", str(hosts)]) as tty:
        assert tty.wait() == 2
        assert tty.sane() == []
        after = tty.seen.rpartition(b"\x1b[?1049l")[2]
    for told in (b"hosts.yaml:2:7", b"adress", b"hosts.yaml:3:7", b"prot", b"hosts.yaml:4:1",
                 b"lihgt", b"3 mistakes"):  # fmt: skip
        assert told in after
    assert b"Traceback" not in tty.seen


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", "SIGHUP"])
def test_what_never_comes_does_not_hold_the_operator(how: str, tmp_path: Path) -> None:
    """A preset that hangs when it is read, as on a filesystem whose server is gone."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts:\n  a: {transport: local}\n", encoding="utf-8")
    folder = tmp_path / "presets" / "nccl"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "hangs.yaml")
    program = ["-c", "from console.cli import main; main()"]
    with terminal([*program, "console", "--hosts", str(hosts)]) as tty:
        tty.until(b"reading hosts.yaml", 60)
        if how == "ctrl-c":
            tty.press(b"\x03")
        else:
            tty.process.send_signal(getattr(signal, how))
        assert tty.wait(60) == 0
        assert tty.sane() == []


def test_nothing_but_textual_is_imported_for_the_first_frame() -> None:
    code = (
        "import sys, console.app\n"
        f"print(*[name for name in {NOT_BEFORE!r} if name in sys.modules])\n"
    )
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": root}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


@pytest.fixture(autouse=True)
def _from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
