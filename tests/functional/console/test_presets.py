"""Presets are offered by what worked on this host, and checked against it while they are edited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.config import load, shipped_hosts
from console.model import Host, HostState, HostView
from console.screens.plan import PlanDialog
from console.screens.preset_form import PresetForm
from console.screens.presets import PresetsScreen
from tests.functional.console import fake
from tests.functional.console.steps import entry_of, seen, settle, text, wait_for


def fleet() -> fake.FakeFleet:
    """A host where the tree failed, one step served, and on another host three steps did."""
    shown = fake.views()
    tree = replace(
        fake.run_of("kimi-k25", "ct129", "r1", "failed"), speculative="eagle3-tree", phases=(),
        model="/shared/kimi", failure="ValueError: no room for the tree", nccl=None,
    )  # fmt: skip
    one = replace(
        fake.run_of("kimi-k25", "ct129", "r2", "ready"), speculative="eagle3-1step",
        model="/shared/kimi",
    )  # fmt: skip
    elsewhere = replace(
        fake.run_of("k26", "dflash", "r3", "ready"), speculative="eagle3-3step",
        model="/shared/kimi",
    )  # fmt: skip
    shown["ct129"] = replace(shown["ct129"], runs=(tree, one))
    shown["dflash"] = replace(shown["dflash"], runs=(elsewhere,))
    return fake.FakeFleet(shown)


def names(screen: Any, kind: str) -> list[str]:
    return [preset.name for preset in screen.table.rows if preset.kind == kind]


async def test_what_worked_here_comes_first_and_says_why() -> None:
    app, _, _ = fake.app(fleet=fleet())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("p")
        await wait_for(pilot, lambda: "works" in text(app), "the ranking")
        screen: Any = app.screen
        assert isinstance(screen, PresetsScreen)
        assert "for kimi-k25 on ct129" in text(app)
        ranked = names(screen, "speculative")
        assert ranked[0] == "eagle3-1step"
        assert ranked[-1] == "eagle3-tree"
        assert names(screen, "nccl")[0] == "pcie-ll-ring"
        shown = text(app)
        assert "fails" in shown
        assert "last failure: ValueError: no room for the tree" in shown
        row = next(part for part in shown.splitlines() if "eagle3-3step" in part)
        assert "untried" in row, "what worked on another host says nothing of this one"
        await pilot.press("slash", *"here:fails", "enter")
        await pilot.pause()
        assert names(screen, "speculative") == ["eagle3-tree"]
        await pilot.press("escape", "o", "j", "enter")
        await pilot.pause()
        by_name = [preset.name for preset in screen.table.rows]
        assert by_name == sorted(by_name)


async def test_the_choice_before_a_relaunch_says_how_each_did_in_an_order_that_stays() -> None:
    app, _, actions = fake.app(fleet=fleet())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("R")
        await seen(pilot, PlanDialog)
        await pilot.press("p")
        await wait_for(pilot, lambda: "which presets" in text(app), "the choice")
        rows = [part.split()[:8] for part in text(app).splitlines() if " eagle3-" in part]
        lines = [row for row in rows if "untried" in row or "works" in row or "fails" in row]
        names_of = [next(word for word in row if word.startswith("eagle3-")) for row in lines]
        assert names_of == sorted(names_of)
        said = {name: row[row.index(name) + 1] for name, row in zip(names_of, lines, strict=True)}
        assert said == {"eagle3-1step": "works", "eagle3-2step": "untried",
                        "eagle3-3step": "untried", "eagle3-tree": "fails"}  # fmt: skip
        assert "▸ eagle3-3step" in text(app)
        await pilot.press("enter")
        await seen(pilot, PlanDialog)
    assert actions.planned[1][3]["speculative"] == "eagle3-3step", "the configured one stays chosen"


async def form(pilot: Any, app: Any) -> PresetForm:
    await settle(pilot)
    await pilot.press("p", "slash", *"name:eagle3-2step", "enter", "e")
    await wait_for(pilot, lambda: isinstance(app.screen, PresetForm), "the form")
    assert isinstance(app.screen, PresetForm)
    return app.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_preflight_answers_while_it_is_edited(size: tuple[int, int]) -> None:
    actions = fake.FakeActions()
    actions.findings = [fake.WARNING, fake.ERROR]
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=size) as pilot:
        screen = await form(pilot, app)
        wanted = "preflight for kimi-k25 on ct129: 1 error, 1 warning"
        await wait_for(pilot, lambda: wanted in text(app), "the first answer")
        assert "✖ draft context 131072" in text(app)
        assert "F2  save" in text(app)
        actions.findings = []
        entry_of(screen, "speculative-num-steps").value = "5"
        await wait_for(pilot, lambda: "0 errors, 0 warnings" in text(app), "the second answer")
        assert actions.checked[-1][0] == "kimi-k25"
        assert actions.checked[-1][1].flags["speculative-num-steps"] == 5, "as it is typed now"
        asked = len(actions.checked)
        entry_of(screen, "speculative-num-steps").value = "[5"
        await wait_for(pilot, lambda: "once every field is valid" in text(app), "not asked")
        assert len(actions.checked) == asked
        actions.refuse = "no connection"
        entry_of(screen, "speculative-num-steps").value = ""
        await wait_for(
            pilot, lambda: "preflight: kimi-k25: no connection" in text(app), "the error"
        )


async def test_another_own_preset_is_written_over_only_when_that_was_said(tmp_path: Path) -> None:
    app, _, _ = fake.app(hosts_file=tmp_path / "hosts.yaml")
    kept = tmp_path / "presets" / "speculative" / "mine.yaml"
    kept.parent.mkdir(parents=True)
    kept.write_text("kind: speculative\ndescription: the first\n", encoding="utf-8")
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await form(pilot, app)
        name: Any = screen.query_one("#name")
        name.value = "mine"
        await pilot.pause()
        await pilot.press("f2")
        await pilot.pause()
        assert "there is an own preset 'mine' already" in text(app)
        assert "the first" in kept.read_text(encoding="utf-8")
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, PresetsScreen), "saved")
    assert "the first" not in kept.read_text(encoding="utf-8")


async def test_each_field_is_checked_by_itself_and_by_the_finding_that_names_it() -> None:
    actions = fake.FakeActions()
    actions.findings = [replace(fake.ERROR, flags=("--speculative-eagle-topk",))]
    app, _, _ = fake.app(actions=actions)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await form(pilot, app)
        await wait_for(pilot, lambda: screen.known, "the tables are read")

        def row(name: str) -> str:
            return next(part for part in text(app).splitlines() if f"--{name} " in part)

        await wait_for(pilot, lambda: "✖" in row("speculative-eagle-topk"), "preflight's answer")
        assert "draft context" in row("speculative-eagle-topk")
        assert "✖" not in row("speculative-num-steps")
        entry_of(screen, "speculative-num-steps").focus()
        entry_of(screen, "speculative-num-steps").value = "many"
        await wait_for(pilot, lambda: "'many' is not a whole number" in text(app), "its own check")
        assert "! --speculative-num-steps" in row("speculative-num-steps")
        assert "!" not in row("speculative-num-draft-tokens")
        entry_of(screen, "speculative-num-steps").value = ""
        await wait_for(pilot, lambda: "taken out" in row("speculative-num-steps"), "taken out")
        entry_of(screen, "speculative-num-draft-tokens").focus()
        await wait_for(pilot, lambda: "Tokens verified in one pass" in text(app), "what it is")
        assert "Takes a whole number." in text(app)


async def test_settings_are_added_and_a_doubtful_one_is_saved_only_when_that_was_said(
    tmp_path: Path,
) -> None:
    app, _, _ = fake.app(hosts_file=tmp_path / "hosts.yaml")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form(pilot, app)
        await wait_for(pilot, lambda: screen.known, "the tables are read")
        screen.query_one("#add").focus()
        for typed in ("--mem-fraction-static 0.8", "NCCL_ALGO=Rong", "HF_TOKEN=hunter2"):
            await pilot.press(*(key if key.isalnum() else "space" if key == " " else key
                                for key in typed), "enter")  # fmt: skip
            await pilot.pause()
        assert "hunter2" not in text(app)
        await wait_for(pilot, lambda: "did you mean" in text(app) or "Rong" in text(app), "rows")
        await pilot.press("enter")  # is never a save
        await pilot.press("f2")
        await wait_for(pilot, lambda: "F2 again saves it all the same" in text(app), "asked")
        assert not (tmp_path / "presets").exists()
        entry_of(screen, "NCCL_ALGO").value = "Ring"
        entry_of(screen, "HF_TOKEN").value = "secret:HF_TOKEN"
        await pilot.pause()
        assert "secret:HF_TOKEN" in text(app)
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, PresetsScreen), "saved")
    saved = (tmp_path / "presets" / "speculative" / "my-eagle3-2step.yaml").read_text("utf-8")
    assert "mem-fraction-static: 0.8" in saved
    assert "NCCL_ALGO: Ring" in saved
    assert "HF_TOKEN: secret:HF_TOKEN" in saved


async def test_what_was_typed_is_not_lost_to_one_esc() -> None:
    app, _, _ = fake.app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await form(pilot, app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, PresetsScreen), "nothing was typed"
        await pilot.press("e")
        await wait_for(pilot, lambda: isinstance(app.screen, PresetForm), "the form")
        screen = app.screen  # type: ignore[assignment]
        entry_of(screen, "speculative-num-steps").value = "7"
        await pilot.pause()
        await pilot.press("escape")
        await wait_for(pilot, lambda: "Esc again leaves without saving" in text(app), "asked")
        await pilot.press("escape")
        await wait_for(pilot, lambda: isinstance(app.screen, PresetsScreen), "left")


YAML = """\
hosts: {ct129: {address: ct129.example}}
servers:
  # the one that pays the bills
  kimi-k25: {host: ct129, model: /shared/kimi, port: 8000, speculative: eagle3-3step}
"""


async def presets_of(pilot: Any, app: Any, name: str) -> None:
    await settle(pilot)
    await pilot.press("p", "slash", *f"name:{name}", "enter")
    await wait_for(pilot, lambda: f"/name:{name}" in text(app), "the preset")


async def test_a_preset_becomes_the_servers_own_in_hosts_yaml(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(YAML, encoding="utf-8")
    app, _, actions = fake.app(config=load(path))
    async with app.run_test(size=(100, 30)) as pilot:
        await presets_of(pilot, app, "eagle3-1step")
        await pilot.press("u")
        await wait_for(pilot, lambda: "eagle3-3step → eagle3-1step" in text(app), "asked")
        await pilot.press("enter")  # is never yes
        await pilot.pause()
        assert path.read_text(encoding="utf-8") == YAML
        await pilot.press("u", "j", "enter")
        await wait_for(pilot, lambda: "what runs is as it was" in text(app), "said")
        wanted = YAML.replace("eagle3-3step", "eagle3-1step")
        assert path.read_text(encoding="utf-8") == wanted
        assert app.config.servers["kimi-k25"].speculative == "eagle3-1step", "and taken over"
        await pilot.press("u")
        await wait_for(pilot, lambda: "has eagle3-1step already" in text(app), "nothing to do")
    assert actions.planned == []


@pytest.mark.parametrize("why", ["read-only", "the shipped one", "single launch"])
async def test_where_hosts_yaml_is_not_written_it_says_why(tmp_path: Path, why: str) -> None:
    path = shipped_hosts() if why == "the shipped one" else tmp_path / "hosts.yaml"
    if why != "the shipped one":
        path.write_text(YAML, encoding="utf-8")
    own = tmp_path / "config" / "specops" / "presets" / "server" / "whole.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("kind: server\ndescription: all of it\n", encoding="utf-8")
    before = path.read_bytes()
    shown = fake.FakeFleet() if why != "the shipped one" else fake.FakeFleet(
        {"demo": HostView(Host("demo", transport="local"), HostState.OK, "", fake.NOW)}
    )  # fmt: skip
    app, _, _ = fake.app(shown, config=load(path), read_only=why == "read-only")
    async with app.run_test(size=(100, 30)) as pilot:
        await presets_of(pilot, app, "whole" if why == "single launch" else "eagle3-1step")
        await pilot.press("u")
        await wait_for(pilot, lambda: why in text(app), why)
    assert path.read_bytes() == before


async def test_an_edited_preset_is_seen_and_a_broken_one_said(tmp_path: Path) -> None:
    app, _, _ = fake.app(hosts_file=tmp_path / "hosts.yaml")
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("p")
        await wait_for(pilot, lambda: "eagle3-3step" in text(app), "the presets")
        own = tmp_path / "presets" / "nccl" / "mine.yaml"
        own.parent.mkdir(parents=True)
        own.write_text("kind: nccl\ndescription: the first words\n", encoding="utf-8")
        await wait_for(pilot, lambda: "the first words" in text(app), "added by hand")
        own.write_text("kind: nccl\ndescription: other words now\n", encoding="utf-8")
        await wait_for(pilot, lambda: "other words now" in text(app), "edited by hand")
        own.write_text("kind: nccl\ndescription: x\nflaggs: {}\n", encoding="utf-8")
        await wait_for(pilot, lambda: "mine.yaml:3" in text(app), "what is wrong with it")
        assert "1 broken" in text(app), "nothing of it is used"
        own.unlink()
        await wait_for(pilot, lambda: "other words now" not in text(app), "taken away")


async def test_a_file_that_cannot_be_read_is_told_and_marked_and_not_used(tmp_path: Path) -> None:
    half = tmp_path / "presets" / "nccl" / "half.yaml"
    half.parent.mkdir(parents=True)
    half.write_text("kind: nccl\n", encoding="utf-8")
    app, _, _ = fake.app(hosts_file=tmp_path / "hosts.yaml")
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        told = "half.yaml:1:1: has no description"
        await wait_for(pilot, lambda: any(told in one.text for one in app.notices.all), "the word")
        await pilot.press("p")
        await wait_for(pilot, lambda: "1 broken" in text(app), "the presets")
        screen: Any = app.screen
        assert "pcie-ll-ring" in names(screen, "nccl"), "the others are there"
        screen.table.select(("nccl", "half"))
        screen.views_changed()
        await pilot.pause()
        row = next(part for part in text(app).splitlines() if " half " in part)
        assert "broken" in row
        for key in ("e", "d", "u", "c"):
            app.notices.all.clear()
            await pilot.press(key)
            await pilot.pause()
            assert told in app.notices.all[-1].text, key
            assert app.screen is screen
        half.write_text("kind: nccl\ndescription: whole\n", encoding="utf-8")
        screen.reload()
        screen.views_changed()
        assert "broken" not in screen.crumbs()
