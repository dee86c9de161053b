"""Bars, words, tables and plans as text: no terminal needed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import query
from console.cli.documents import any_zombie
from console.config import config_dir
from console.errors import ConfigError, UsageError
from console.keys import TABLE, KeyMap, document
from console.model import (
    Artefact,
    Health,
    Host,
    HostState,
    HostView,
    OpenPlan,
    Phase,
    PhaseSpan,
    Plan,
    Process,
    ProcessId,
    Server,
    ServerState,
    Snapshot,
    Step,
    StepKind,
    StepResult,
    Target,
    ZombieKind,
)
from console.notices import Notice, Notices
from console.screens.differing import flags_of
from console.screens.places import shell_argv
from console.watch.trend import Sample, Trends
from tests.functional.console import fake
from widgets import bars, fleet, process
from widgets.detail import detail_lines
from widgets.paint import fit, line, text_of, width_of, wrap
from widgets.phases import phase_lines
from widgets.plan import command_line, compact_lines, is_bulk, step_lines
from widgets.table import cell
from widgets.words import Word, host_word, safe, server_word, usual_s, why

# ---- bars and numbers


@given(st.floats(0, 1), st.integers(0, 60))
def test_a_bar_is_exactly_as_wide_as_asked(share: float, width: int) -> None:
    assert len(bars.bar(share, width)) == width


def test_unknown_is_a_question_mark_and_never_zero() -> None:
    assert bars.bar(None, 5) == "?····"
    assert bars.percent(None) == "? %"
    assert bars.mib(None) == "? MiB"
    assert bars.gib(None) == bars.number(None) == bars.age(None) == bars.duration(None) == "?"
    assert bars.sparkline([1.0, None, 0.5], 5) == "  █ ▅"


def test_percent_is_honest_at_both_ends() -> None:
    assert bars.percent(0.0) == "0 %"
    assert bars.percent(0.0001) == "<1 %"
    assert bars.percent(0.9999) == "99 %"
    assert bars.percent(1.0) == "100 %"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (61, "1m01"), (1200, "20m"), (29_520, "8h12"), (1e6, "11d")],
)
def test_ages(seconds: float, text: str) -> None:
    assert bars.age(seconds) == text
    assert len(text) <= 5


def test_durations_and_sizes() -> None:
    shown = [bars.duration(s) for s in (0.94, 48, 112, 29_340)]
    assert shown == ["0.9 s", "48 s", "1:52", "8 h 09 min"]
    assert bars.size(224_395_264) == "214 MiB"
    assert bars.mib(737_312) == "737 312 MiB"


# ---- text in cells


@given(st.text(max_size=40), st.integers(1, 30))
def test_fit_is_exact_for_any_text(text: str, width: int) -> None:
    shown = safe(text)
    assert width_of(fit(shown, width)) == width
    assert width_of(text_of(cell(line((shown, "plain")), width))) == width


@given(st.text("ab \u6f22", max_size=80), st.integers(4, 30))
def test_wrap_loses_nothing_but_spaces(text: str, width: int) -> None:
    parts = wrap(text, width)
    assert all(width_of(part) <= width for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert len(wrap(text, width, limit=2)) <= 2


# ---- the fleet


def rows() -> list[fleet.FleetRow]:
    return fleet.fleet_rows(fake.views(), fake.config().servers, fake.NOW)


def test_what_needs_the_operator_comes_first() -> None:
    assert [row.word.text for row in rows()] == [
        "NEVER READY", "FAILED", "UNREACHABLE", "ready 2.4⇥", "ok",
    ]  # fmt: skip
    assert (
        fleet.headline(fake.views(), rows()) == "5 hosts · 0/17 GPUs free · 3 need you · 1 unseen"
    )


def test_every_row_fits_every_width() -> None:
    for width in (60, 70, 79, 80, 100, 119, 120, 125, 160, 200):
        wide = width >= 120
        room = sum(column.width + 1 for column in fleet.columns(width, wide=wide)) + 1
        assert room <= width
        for row in rows():
            shown = fleet.cells(row, width, wide=wide)
            for column, spans in zip(fleet.columns(width, wide=wide), shown, strict=True):
                assert width_of(text_of(cell(spans, column.width))) == column.width


def test_a_configured_server_that_was_never_seen_is_not_called_stopped() -> None:
    views = fake.views()
    views["dflash"] = replace(views["dflash"], servers=())
    row = next(row for row in fleet.fleet_rows(views, fake.config().servers, fake.NOW)
               if row.server and row.server.name == "k26")  # fmt: skip
    assert row.word.text == "?"


def test_one_gpu_of_unknown_memory_makes_the_sum_unknown() -> None:
    assert fleet.memory_share(fake.views()["gpu7"]) is None
    assert fleet.memory_share(fake.views()["lost"]) is None
    assert fleet.utilization(fake.views()["evil"]) is None


def test_unknown_sorts_last_both_ways() -> None:
    for reverse in (False, True):
        ordered = fleet.sort_rows(rows(), "memory", reverse=reverse)
        known = [fleet.memory_share(row.view) is not None for row in ordered]
        assert known == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("health", "word"),
    [(Health.TIMEOUT, "NOT ANSWERING"), (Health.REFUSED, "PORT REFUSED"),
     (Health.UNAVAILABLE, "UNHEALTHY 503"), (Health.UNKNOWN, "ready ?"), (Health.OK, "ready 2.4⇥")],
)  # fmt: skip
def test_ready_is_what_health_says(health: Health, word: str) -> None:
    view = fake.views()["dflash"]
    assert server_word(view, replace(view.servers[0], health=health)).text == word


def test_a_start_that_takes_too_long_says_so_before_anything_else() -> None:
    view = next(v for v in fake.views().values() if v.servers and v.servers[0].name == "k30")
    late = replace(
        view.servers[0], phase=Phase.GRAPH_TARGET, stalled="graph_target takes 90 s, at most 48"
    )
    assert server_word(replace(view, servers=(late,)), late) == Word(
        "STALLED graph_target", "bad", 0
    )
    assert why(view, late, 0.0)[0] == ("STALLED", "graph_target takes 90 s, at most 48")


def test_why_gives_evidence_before_anything_else() -> None:
    view = fake.views()["ct129"]
    reasons = why(view, view.servers[0], fake.NOW)
    assert reasons[0] == ("NEVER READY", fake.ZOMBIE.evidence[0])
    assert ("log", "silent for 8 h 09 min") in reasons
    over = replace(view.servers[0], phase=Phase.STOPPED)
    assert not any(label == "log" for label, _ in why(replace(view, zombies=()), over, fake.NOW))
    for height in (2, 3, 5):
        assert len(detail_lines(rows()[0], fake.config().servers, 80, height, fake.NOW)) <= height


def test_usual_durations_come_from_runs_that_got_ready() -> None:
    view = fake.views()["dflash"]
    assert usual_s(view, "k26", "load_target") == 108.0
    assert usual_s(view, "k26", "ready") == pytest.approx(156.9)
    assert usual_s(fake.views()["gpu7"], "k30", "args") is None  # its only run failed


def test_phases_fit_and_show_progress() -> None:
    view = fake.views()["ct129"]
    for width in (60, 80, 120):
        shown = [text_of(spans) for spans in phase_lines(view, view.servers[0], width)]
        assert all(width_of(text) <= width for text in shown)
        assert "4/23" in "\n".join(shown)


# ---- processes


def test_process_rows_start_with_zombies_and_hide_secrets() -> None:
    found = process.process_rows(fake.views()["ct129"])
    assert found[0].zombie is fake.ZOMBIE
    assert found[0].identity == fake.ZOMBIE.process
    assert "SECRET" not in found[0].title
    assert "--api-key ***" in found[0].title
    assert {row.key for row in found} == {row.identity for row in found}


def test_device_memory_of_a_process_is_zero_only_when_the_driver_lists_none() -> None:
    one = Process(ProcessId(1, 1, "b"), 0, 1, 1, 0, "root", "S", "x")
    assert process.gpu_memory(one, ()) == 0.0
    assert process.gpu_memory(replace(one, gpu_memory_mib={0: None, 1: 5.0}), ()) is None
    assert process.gpu_memory(replace(one, gpu_memory_mib={0: 3.0, 1: 5.0}), ()) == 8.0


# ---- plans


def plan(targets: int, action: str = "kill") -> Plan:
    made = tuple(Target(ProcessId(n, n, "b"), 0, "root", "x") for n in range(1, targets + 1))
    left = (Artefact("shm", "/dev/shm/a", 0, "root", 5, 9.0),) if action == "clean" else ()
    step = Step(StepKind.SIGNAL, "h", "end", signal="TERM", targets=made, artefacts=left)
    return Plan("p", action, "h", (step,))


def test_bulk_is_more_than_one_thing() -> None:
    assert not is_bulk(plan(1))
    assert is_bulk(plan(2))
    assert is_bulk(plan(1, "clean"))
    assert not is_bulk(plan(9, "stop"))  # one server is one thing


def test_commands_are_quoted_and_masked() -> None:
    step = Step(StepKind.RUN, "h", "", argv=("sh", "-c", "a b", "--api-key", "hunter22"))
    assert command_line(step) == "sh -c 'a b' --api-key '***'"


def test_results_stand_under_their_steps() -> None:
    shown = step_lines(plan(6), 80, results={0: StepResult(0, "failed", 1.5, "still there")})
    text = "\n".join(text_of(spans) for spans in shown)
    assert "SIGTERM to 1, 2, 3, 4 and 2 more" in text
    assert "✖" in text
    assert "1.5 s  still there" in text


def test_one_row_a_step_and_those_that_ended_well_together_where_they_are_many() -> None:
    many = replace(plan(1), steps=plan(1).steps * 9)
    well = {at: StepResult(at, "ok", 2.0, f"fine {at}") for at in range(6)}
    bad = {**well, 6: StepResult(6, "failed", 1.5, "still there")}

    def shown(room: int, results: dict[int, StepResult], running: int | None) -> list[str]:
        lines = compact_lines(many, 60, room, results=results, running=running)
        assert all(len(text_of(spans)) <= 60 for spans in lines)
        return [text_of(spans) for spans in lines]

    assert len(shown(9, well, 6)) == 9
    cut = shown(5, well, 6)
    assert len(cut) == 5
    assert cut[0].split() == ["1-5", "✓", "10", "s"]
    assert "…" in cut[2]
    failed = shown(3, bad, None)
    assert failed[0].startswith("1-6 ✓")
    assert "✖" in failed[1]
    assert "still there" in failed[1]
    assert len(shown(3, {}, 0)) == 9


# ---- the rest


FACTS: dict[str, str | float | None] = {"host": "ct129", "memory": 96.0, "age": None}


@pytest.mark.parametrize(
    ("text", "matches"),
    [("", True), ("ct", True), ("!ct", False), ("memory>95", True), ("memory>97 ct", False),
     ("!memory>97", True), ("age<5", False), ("host:129", True), ("host=ct129", True),
     ("memory<=96", True), ("CT129", True)],
)  # fmt: skip
def test_the_filter_language(text: str, matches: bool) -> None:
    assert query.parse(text, FACTS)(FACTS) is matches


@pytest.mark.parametrize("text", ["nope>1", "memory>x", "nope:a"])
def test_a_filter_that_makes_no_sense_is_one_error(text: str) -> None:
    with pytest.raises(UsageError):
        query.parse(text, FACTS)


def test_key_map_refuses_clashes_and_unknown_ids() -> None:
    assert KeyMap.make({"relaunch": "X"}).on("fleet")
    with pytest.raises(ConfigError, match="both"):
        KeyMap.make({"relaunch": "Z"})
    with pytest.raises(ConfigError, match="no action"):
        KeyMap.make({"relunch": "X"})


def test_the_page() -> None:
    assert all(action.id in document() for action in TABLE)


def test_notices_fold_repeats_and_fade() -> None:
    notices = Notices()
    notices.add(Notice(0.0, "a", "bad"))
    notices.add(Notice(1.0, "a", "bad"))
    assert len(notices.all) == 1
    assert notices.fresh(20.0) is not None
    assert notices.fresh(60.0) is None
    ended = False
    notices.add(Notice(70.0, "not connected", "bad", lambda: ended))
    assert notices.fresh(71.0) is not None
    ended = True
    assert notices.fresh(71.0) is None, "its cause has ended, it need not be old"
    assert notices.all[-1].text == "not connected", "the history keeps it"


def test_trends_keep_one_sample_a_second() -> None:
    trends = Trends()
    for at in (0.0, 0.1, 1.0, 2.0):
        trends.add("h", Sample(at, None, None, None, None))
    assert [sample.at for sample in trends.of("h")] == [0.0, 1.0, 2.0]


def test_trends_of_a_recording_that_is_moved_back_are_whole() -> None:
    trends = Trends()
    for at in (*range(1000, 1100), *range(700, 760), 705, 730, *range(760, 1000)):
        trends.add("h", Sample(float(at), None, 1.0, None, None))
    assert [sample.at for sample in trends.of("h")] == list(range(700, 1100))
    assert trends.line("h", "utilization", 4, 1099.5, 400.0) == (1.0, 1.0, 1.0, 1.0)
    for at in range(100, 700):
        trends.add("h", Sample(float(at), None, 1.0, None, None))
    kept = [sample.at for sample in trends.of("h")]
    assert kept == sorted(kept)
    assert len(kept) == 600
    assert {698.0, 699.0} <= set(kept), "what is near stays"


def test_flags_of_a_command_line() -> None:
    argv = ("python3", "-m", "x", "--a", "1", "--b", "--c=2", "--d", "1", "2")
    assert flags_of(argv) == {"a": "1", "b": True, "c": "2", "d": "1 2"}


def test_shell_trusts_what_the_console_trusts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    host = Host("h", "h.example")
    assert "-o" not in shell_argv(host, {})
    own = config_dir() / "known_hosts"
    own.parent.mkdir(parents=True)
    own.touch()
    assert f'UserKnownHostsFile=~/.ssh/known_hosts "{own}"' in shell_argv(host, {})
    host = replace(host, known_hosts="/k/known hosts")
    assert 'UserKnownHostsFile="/k/known hosts"' in shell_argv(host, {})


def test_shell_goes_where_the_host_is() -> None:
    hosts = {"pve": Host("pve", "pve.example", port=2222)}
    host = Host("ct", "ct.example", jump="pve", identity_files=("/k",))
    assert shell_argv(host, hosts) == [
        "ssh", "-p", "22", "-l", "root", "-i", "/k", "-J", "root@pve.example:2222", "--",
        "ct.example",
    ]  # fmt: skip


def test_a_line_of_the_past_is_what_its_label_says() -> None:
    """Ten minutes are ten minutes: not as many of the newest samples as there are cells."""
    trends = Trends()
    for second in range(600):
        busy = None if 200 <= second < 320 else second / 600
        trends.add("h", Sample(1000.0 + second, None, busy, None, None))
    line = trends.line("h", "utilization", 10, 1599.0)
    assert line[0] == pytest.approx(0.08, abs=0.02)
    assert line[-1] == pytest.approx(0.97, abs=0.02)
    assert line[4] is None, "a stretch without a known value is a gap, not 0"
    assert len(line) == 10
    assert trends.line("nobody", "utilization", 3, 1599.0) == (None, None, None)
    trends.add("h", Sample(1600.0, None, 1.0, None, None))
    assert trends.line("h", "utilization", 10, 1599.5) is line, "counted once a stretch"
    assert trends.line("h", "utilization", 10, 1900.0)[-1] is None


def test_of_what_was_not_seen_nothing_is_said() -> None:
    unseen = {"a": HostView(Host("a"), HostState.CONNECTING)}
    assert fleet.headline(unseen, []) == "connecting to 1 host…"
    seen = {**unseen, "evil": fake.views()["evil"]}
    assert fleet.headline(seen, []) == "2 hosts · ? GPUs · connecting to 1…"
    assert fleet.headline({"evil": seen["evil"]}, []) == "1 host · no GPU · all well"
    assert "all well" not in fleet.headline({}, []), "of nothing, nothing is known"
    lost = {**seen, "lost": replace(fake.views()["lost"], snapshot=None, seen_at=None)}
    rows = fleet.fleet_rows(lost, {}, fake.NOW)
    told = fleet.headline(lost, rows)
    assert told == "3 hosts · ? GPUs · 1 needs you · connecting to 1… · 1 unseen"


def headline_of(view: HostView) -> str:
    views = {view.host.name: view}
    return fleet.headline(views, fleet.fleet_rows(views, {}, fake.NOW))


@pytest.mark.parametrize("kind", list(ZombieKind))
@pytest.mark.parametrize("owned", [True, False])
def test_the_fleet_calls_nothing_well_that_the_command_line_calls_a_zombie(
    kind: ZombieKind, owned: bool
) -> None:
    view = fake.views()["dflash"]
    found = replace(fake.ZOMBIE, kind=kind, run_id=view.runs[0].run_id if owned else "other",
                    process=None, pid=None)  # fmt: skip
    view = replace(view, zombies=(found,))
    rows = fleet.fleet_rows({"dflash": view}, fake.config().servers, fake.NOW)
    assert ("all well" in headline_of(view)) is not any_zombie([view])
    shown = {row.name: row.state for row in rows}
    if kind is ZombieKind.FOREIGN:
        assert shown == {"k26": "ready 2.4⇥"}
    elif owned:
        assert shown["k26"] != "ready 2.4⇥", "a sign that there is more to read below"
    else:
        assert shown["1 loose"]


@pytest.mark.parametrize(
    "unknown",
    [
        {"state": HostState.STALE},
        {"state": HostState.NO_AGENT, "error": "no python3"},
        {"seen_at": fake.NOW - 60},
        {"snapshot": Snapshot(fake.BOOT, fake.NOW, 0, (), gpu_error="NVML does not answer")},
        {"servers": (replace(fake.views()["dflash"].servers[0], health=Health.UNKNOWN),)},
        {"servers": ()},
    ],
)
def test_what_is_unknown_is_never_called_well(unknown: dict[str, Any]) -> None:
    view = fake.views()["dflash"]
    servers = {name: server for name, server in fake.config().servers.items() if name == "k26"}

    def told(one: HostView) -> str:
        views = {"dflash": one}
        return fleet.headline(views, fleet.fleet_rows(views, servers, fake.NOW))

    assert "all well" in told(view)
    assert "all well" not in told(replace(view, **unknown)), told(replace(view, **unknown))


def test_a_server_of_nobody_here_and_what_the_console_does_are_in_the_rows() -> None:
    view = replace(fake.views()["dflash"], unlisted=(5100,), servers=())
    (row,) = fleet.fleet_rows({"dflash": view}, {}, fake.NOW)
    assert (row.name, row.state) == ("pid 5100", "not listed")
    told = "\n".join(text_of(spans) for spans in detail_lines(row, {}, 80, 9, fake.NOW))
    assert ":adopt dflash 5100" in told
    view = fake.views()["dflash"]
    noted = replace(view.servers[0], note="not launched by specops: pid 5100 of bob")
    view = replace(view, servers=(noted,))
    plan = Plan("stop-1", "stop", "dflash", (), "k26")
    (row,) = fleet.fleet_rows({"dflash": view}, {}, fake.NOW, [plan])
    assert row.state == "▶ ready 2.4⇥ *"
    told = "\n".join(text_of(spans) for spans in detail_lines(row, {}, 80, 9, fake.NOW))
    assert "not launched by specops: pid 5100 of bob" in told
    assert "DOING" in told
    (row,) = fleet.fleet_rows({"dflash": view}, {}, fake.NOW, [replace(plan, server="k27")])
    assert row.state == "ready 2.4⇥ *"


@pytest.mark.parametrize("width", [60, 80, 81, 100, 125])
def test_a_start_with_its_usual_times_is_whole_in_every_width(width: int) -> None:
    view = fake.views()["dflash"]
    (state,) = view.servers
    spans = tuple(
        PhaseSpan(phase, at * 70.0, at * 70.0 + 59.4)
        for at, phase in enumerate(
            (Phase.ARGS, Phase.DIST_INIT, Phase.LOAD_TARGET, Phase.LOAD_DRAFT,
             Phase.SCHEDULER_READY, Phase.WARMUP)
        )
    )  # fmt: skip
    run = replace(view.runs[0], phases=tuple((span.phase.value, 71.0) for span in spans))
    lines = phase_lines(replace(view, runs=(run,)), replace(state, phases=spans), width)
    shown = [text_of(spans) for spans in lines]
    assert all(len(text) <= width for text in shown)
    assert sum(text.count("(usual 1:11)") for text in shown) == 6, shown
    assert "(usual 7:06)" in "\n".join(shown)


@pytest.mark.parametrize("end", [None, 9.0])
def test_the_phase_in_which_a_start_failed_neither_runs_nor_is_done(end: float | None) -> None:
    view = fake.views()["dflash"]
    spans = (PhaseSpan(Phase.ARGS, 0.0, 4.0), PhaseSpan(Phase.DIST_INIT, 4.0, end))
    failed = PhaseSpan(Phase.FAILED, end, None)
    state = replace(view.servers[0], phase=Phase.FAILED, phases=(*spans, failed))
    first, second, last = (text_of(row) for row in phase_lines(view, state, 70))
    assert "✓" in first
    assert "✖" in second
    assert "running" not in second
    assert "✓" not in second
    assert "failed" in last
    served = replace(state, phases=(*spans[:1], PhaseSpan(Phase.READY, 4.0, 9.0), failed))
    assert "✓" in text_of(phase_lines(view, served, 70)[0])


def test_no_state_is_told_by_its_colour_alone() -> None:
    """Whatever a host and a server are in: equal words mean equal colours and equal urgency."""
    seen: dict[str, Word] = {}
    base, zombie = fake.views()["dflash"], fake.ZOMBIE
    (state,) = base.servers
    kinds = (None, *ZombieKind)
    for host, phase, health, stalled, kind in itertools.product(
        HostState, Phase, Health, ("", "no line for 90 s"), kinds
    ):
        zombies = () if kind is None else (replace(zombie, kind=kind, run_id=state.run_id),)
        view = replace(base, state=host, zombies=zombies)
        one = replace(state, phase=phase, health=health, stalled=stalled)
        for word in (server_word(view, one), host_word(view)):
            assert word.text, (host, phase, health)
            assert seen.setdefault(word.text, word) == word, (host, phase, health, kind)
    assert {"NEVER READY", "FAILED", "UNREACHABLE", "PORT REFUSED", "stopped"} < set(seen)


def test_values_that_are_too_old_say_so_without_colour() -> None:
    def shown(state: HostState, seen_s: float) -> str:
        view = replace(fake.views()["dflash"], state=state, seen_at=fake.NOW - seen_s)
        (row,) = fleet.fleet_rows({"dflash": view}, {}, fake.NOW)
        return text_of(fleet.cells(row, 80, wide=False)[-1])

    assert shown(HostState.OK, 1.0) == "1s ago"
    assert shown(HostState.OK, 6.0) == "6s ago!"
    assert shown(HostState.STALE, 3.0) == "3s ago!"
    assert shown(HostState.UNREACHABLE, 900.0) == "15m ago!"
    assert shown(HostState.UNREACHABLE, 3_900.0) == "1h05 ago"
    assert shown(HostState.UNREACHABLE, 43_200.0) == "12h ago!"
    assert "SEEN" in [column.title for column in fleet.columns(80, wide=False)]


def test_a_plan_that_was_cut_off_needs_the_operator_with_its_command() -> None:
    at = "plan relaunch-1 was interrupted in step 3: specops resume relaunch-1 finishes it"
    plan = OpenPlan("relaunch-1", "relaunch", "k26", under_way=False, detail=at)
    view = fake.views()["dflash"]
    down = ServerState("k26", Phase.STOPPED, Health.NONE)
    view = replace(view, servers=(down,), zombies=(), unlisted=(), unfinished=(plan,))
    assert server_word(view, down) == Word("UNFINISHED", "bad", 0)
    assert ("UNFINISHED", at) in why(view, down, 0.0)
    known = {"k26": Server("k26", "dflash")}
    found = fleet.fleet_rows({"dflash": view}, known, fake.NOW)
    assert "1 needs you" in fleet.headline({"dflash": view}, found)
    busy = replace(view, unfinished=(replace(plan, under_way=True),))
    assert server_word(busy, down).text == "stopped", "a console is at it"
