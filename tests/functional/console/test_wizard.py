"""The first start: hosts of ~/.ssh/config are ticked, the file shown, written once, taken over."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.app import SpecopsApp
from console.config import load
from console.screens.wizard import Wizard, typed_host
from tests.functional.console import fake
from tests.functional.console.steps import settle, text, wait_for

SSH = """\
Include more/*
Host gate
Host gpu1 gpu2
    HostName %h.example
    ProxyJump gate
Host git.example
    User git
Host [bold]
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is to be; nothing of one's own is there yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    (tmp_path / ".ssh" / "config").write_text(SSH, encoding="utf-8")
    (tmp_path / ".ssh" / "more" / "a").write_text("Host far\n  Port 2222\n", encoding="utf-8")
    return tmp_path / "config" / "specops" / "hosts.yaml"


def first_start() -> tuple[SpecopsApp, fake.FakeFleet]:
    app, fleet, _ = fake.app(fleet=fake.FakeFleet({}), config=load(), first_run=True)
    return app, fleet


async def asked(pilot: Pilot[None], app: SpecopsApp) -> None:
    await wait_for(pilot, lambda: isinstance(app.screen, Wizard), "the question")
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (200, 50)])
async def test_ticked_shown_written_and_taken_over(target: Path, size: tuple[int, int]) -> None:
    app, fleet = first_start()
    async with app.run_test(size=size) as pilot:
        await asked(pilot, app)
        shown = text(app)
        assert "[x] far" in shown
        assert ":2222" in shown
        assert "gpu2.example through gate" in shown
        assert "[ ] git.example" in shown, "a login of git is no machine to manage"
        assert " -  [bold]" in shown
        assert "Esc  later" in shown
        await pilot.press("asterisk", "asterisk")  # all, then none
        await pilot.press("enter")
        assert "no host is chosen" in text(app)
        await pilot.press("j", "j", "space")  # gpu1: what it goes through comes along
        assert "[+] gate" in text(app)
        await pilot.press("enter")
        shown = text(app)
        assert "gpu1: {address: gpu1.example" in shown
        assert "git.example" not in shown
        await pilot.press("enter")  # Enter is never yes
        assert isinstance(app.screen, Wizard)
        assert not target.exists()
        await pilot.press("enter", "y")
        await wait_for(pilot, lambda: not isinstance(app.screen, Wizard), "written")
        assert list(app.views) == ["gate", "gpu1", "demo"]
        assert "taken over: 3 hosts, 1 server" in text(app)
        assert list(fleet.configured[-1].hosts) == ["gate", "gpu1", "demo"]
    assert list(load().hosts) == ["gate", "gpu1", "demo"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["hosts.yaml"]


async def test_later_writes_nothing_and_says_how(target: Path) -> None:
    app, _ = first_start()
    async with app.run_test(size=(80, 24)) as pilot:
        await asked(pilot, app)
        await pilot.press("escape")
        await wait_for(pilot, lambda: ":hosts" in text(app), "the way back")
    assert not target.parent.exists()


async def test_a_file_that_appears_meanwhile_is_not_written_over(target: Path) -> None:
    app, _ = first_start()
    async with app.run_test(size=(100, 30)) as pilot:
        await asked(pilot, app)
        target.parent.mkdir(parents=True)
        target.write_text("hosts: {}\n", encoding="utf-8")
        await pilot.press("enter", "y")
        await pilot.pause()
        assert "File exists" in text(app)
        assert isinstance(app.screen, Wizard)
    assert target.read_text(encoding="utf-8") == "hosts: {}\n"


async def test_without_an_ssh_config_a_host_is_typed_by_hand(target: Path) -> None:
    (target.parents[2] / ".ssh" / "config").unlink()
    app, _ = first_start()
    async with app.run_test(size=(80, 24)) as pilot:
        await asked(pilot, app)
        assert "a adds a host by hand" in " ".join(text(app).split())
        await pilot.press("a", *"x@[red]", "enter")
        await pilot.pause()
        assert "'x@[red]' is no host" in text(app)
        for _ in "x@[red]":
            await pilot.press("backspace")
        await pilot.press(*"ops@gpu9.example:2222", "enter")
        await pilot.pause()
        assert "[x] gpu9" in text(app)
        await pilot.press("enter", "y")
        await wait_for(pilot, lambda: not isinstance(app.screen, Wizard), "written")
    host = load().host("gpu9")
    assert (host.address, host.user, host.port) == ("gpu9.example", "ops", 2222)


async def test_hosts_are_added_to_a_file_that_keeps_its_comments(target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_text("# mine\nhosts:\n  gate: {address: g}  # kept\n", encoding="utf-8")
    app, _, _ = fake.app(fleet=fake.FakeFleet({}), config=load())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("colon", *"hosts", "enter")
        await asked(pilot, app)
        assert "[ ] far" in text(app)
        assert "] gate" not in text(app), "it is in the file already"
        await pilot.press("space", "enter")
        assert "# kept" in text(app)
        await pilot.press("y")
        await wait_for(pilot, lambda: not isinstance(app.screen, Wizard), "written")
        assert list(app.views) == ["gate", "far"]
    written = target.read_text(encoding="utf-8")
    assert written.startswith("# mine\nhosts:\n  gate: {address: g}  # kept\n")
    assert load().host("far").port == 2222


@pytest.mark.parametrize(
    ("typed", "name", "address"),
    [("gpu1", "gpu1", "gpu1"), ("root@gpu1.example", "gpu1", "gpu1.example"),
     ("10.0.0.9:2222", "10.0.0.9", "10.0.0.9")],
)  # fmt: skip
def test_a_typed_host(typed: str, name: str, address: str) -> None:
    one = typed_host(typed)
    assert (one.name, one.values["address"]) == (name, address)
