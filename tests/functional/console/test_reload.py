"""An edited hosts.yaml is taken over; a broken one is said and changes nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.config import load
from console.errors import ConfigError
from console.model import Host, HostState, HostView
from tests.functional.console import fake
from tests.functional.console.steps import settle, show, text, wait_for

GOOD = """\
hosts:
  ct129: {address: ct129.example, labels: [pcie]}
servers:
  kimi-k25: {host: ct129, model: /m, port: 8000}
"""


async def test_edits_of_hosts_yaml(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD, encoding="utf-8")
    app, fleet, _ = fake.app(config=load(path))
    begun = time.monotonic() + 100  # later than the ticks of the application itself
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)

        def edited(content: str, at: float) -> None:
            path.write_text(content, encoding="utf-8")
            app.reloading.look(begun + at)

        edited(GOOD + "  k99: {host: ct129, model: /m, port: 8001}\n", 10.0)
        await settle(pilot)
        assert "k99" in text(app)
        assert "taken over: 1 host, 2 servers" in text(app)
        assert "k99" in fleet.configured[-1].servers, "the poller has it, not only the screen"
        edited(GOOD + "  k99: {hots: ct129}\n", 20.0)
        await settle(pilot)
        assert "not taken over" in text(app)
        assert "hosts.yaml:5" in text(app)
        assert "k99" in app.config.servers
        edited(GOOD + "keys: {open: j}\n", 30.0)
        await settle(pilot)
        # Not from the screen: where its line is cut depends on how long the file's name is.
        assert "hosts.yaml:5:8: keys.open: key j is both" in app.notices.all[-1].text
        former = app.keys
        edited(GOOD + "keys: {open: x}\ntheme: lihgt\n", 35.0)
        assert "hosts.yaml:6:1: theme: no theme 'lihgt'" in app.notices.all[-1].text
        assert app.keys == former, "half of it is not taken over either"
        edited(GOOD + "keys: {frob: x}\ntheme: lihgt\nthem: dark\n", 37.0)
        await settle(pilot)
        assert "3 mistakes (n lists them)" in text(app)
        await pilot.press("n")
        await wait_for(pilot, lambda: "what happened" in text(app), "the history")
        for told in ("5:8: keys.frob", "6:1: theme: no theme", "7:1: them: unknown key"):
            assert any(told in notice.text for notice in app.notices.all)
            assert told.split()[1] in text(app)  # the line may be cut anywhere
        await pilot.press("escape")
        app.notices.all.clear()
        show(app)
        await pilot.pause()
        assert "hosts.yaml REFUSED" in text(app), "as long as it is so"
        unknown = "  k99: {host: ct129, model: /m, port: 8001, nccl: pcie}\n"
        edited(GOOD + unknown, 39.5)
        await settle(pilot)
        assert "k99" in app.config.servers, "the preset is wanted by a launch, not by the console"
        assert "REFUSED" not in text(app)
        assert "servers.k99.nccl: no nccl preset 'pcie'" in app.notices.all[-1].text
        edited(GOOD + "keys: {open: x}\ntheme: light\n", 42.0)
        await settle(pilot)
        assert app.theme == "specops-light"
        await pilot.press("4")
        await pilot.pause()
        edited(GOOD + "  k99: {host: ct129, model: /m, port: 8001}\n", 43.0)
        assert "k99" not in app.config.servers  # looked less than two seconds ago


async def test_hosts_come_and_go_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD, encoding="utf-8")
    app, fleet, actions = fake.app(config=load(path))
    begun = time.monotonic() + 100
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        more = GOOD.replace("servers:", "  new1: {address: new1.example}\nservers:")
        plan = await actions.plan("stop", "ct129", "kimi-k25")
        app.doing.running[plan.id] = plan
        path.write_text(more, encoding="utf-8")
        app.reloading.look(begun + 10)
        assert "new1" not in app.views, "a plan that runs keeps its host's connection"
        assert "taken over when stop on ct129 has ended" in app.notices.all[-1].text
        app.doing.running.clear()
        app.reloading.look(begun + 20)
        await settle(pilot)
        assert list(app.views) == ["ct129", "new1"]
        assert "new1" in text(app)
        path.write_text(GOOD, encoding="utf-8")
        app.reloading.look(begun + 30)
        fleet.publish(HostView(Host("new1", "new1.example"), HostState.UNREACHABLE, "late word"))
        await settle(pilot)
        assert "new1" not in text(app)


async def test_a_theme_that_does_not_exist_is_one_error() -> None:
    app, *_ = fake.app(config=fake.config(theme="drak"))
    async with app.run_test() as pilot:
        await wait_for(pilot, lambda: app.failure is not None, "failure")
    assert isinstance(app.failure, ConfigError)
    assert "no theme 'drak'" in str(app.failure)


@pytest.mark.parametrize(
    "content", ["", "# all out\n", "hosts:\n", "hosts: {}\nservers: {}\n", None]
)
async def test_an_emptied_or_missing_file_keeps_what_was_known(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD, encoding="utf-8")
    app, _, _ = fake.app(config=load(path))
    begun = time.monotonic() + 100
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        if content is None:
            path.unlink()
        else:
            path.write_text(content, encoding="utf-8")
        app.reloading.look(begun + 10)
        app.reloading.look(begun + 20)
        show(app)
        await settle(pilot)
        assert "ct129" in app.config.hosts
        assert "kimi-k25" in text(app)
        why = "no such file" if content is None else "names no host"
        assert f"{path}: {why}" in app.notices.all[-1].text
        app.notices.all.clear()
        show(app)
        await settle(pilot)
        assert "REFUSED" in text(app)
        app.reloading.look(begun + 30)
        assert not app.notices.all, "said once"
        path.write_text(GOOD, encoding="utf-8")
        app.reloading.look(begun + 40)
        await settle(pilot)
        assert "taken over: 1 host" in app.notices.all[-1].text
        assert "REFUSED" not in text(app)


async def test_without_hosts_no_filter_is_blamed() -> None:
    app, _, _ = fake.app(config=fake.config(hosts={}, servers={}), fleet=fake.FakeFleet({}))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "names no host" in text(app)
        assert "filter" not in text(app).splitlines()[3]
        assert "all well" not in text(app)
