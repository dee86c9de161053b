"""What is kept between commands counts only for the very same processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from console.model import Process, ProcessId, Snapshot
from console.watch.observed import Kept, Tokens, load, save
from console.zombies.stillness import Stillness

ONE = ProcessId(7, 70, "boot")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("console.watch.observed.state_dir", lambda: tmp_path)
    return tmp_path


def at(time: float, cpu: int = 5) -> Snapshot:
    process = Process(
        id=ONE, ppid=1, pgid=7, sid=7, uid=0, user="u", state="S", comm="c", cpu_ticks=cpu,
        read_bytes=1, write_bytes=2, gpu_memory_mib={0: 10.0},
    )  # fmt: skip
    return Snapshot("boot", time, 0, (process,))


def test_stillness_goes_on_where_the_last_command_stood() -> None:
    first = Stillness()
    first.feed(at(100.0))
    first.feed(at(103.0))
    save("h", "boot", Kept(first), {7})
    later = load("h", "boot").stillness
    later.feed(at(230.0))
    assert later.still_s([ONE], 230.0) == 130.0
    later.feed(at(240.0, cpu=5000))
    assert later.still_s([ONE], 240.0) == 0.0


def test_nothing_is_kept_over_a_reboot_and_of_other_processes() -> None:
    first = Stillness()
    first.feed(at(100.0))
    save("h", "boot", Kept(first), {8})
    assert load("h", "boot").stillness.still_s([ONE], 110.0) is None
    save("h", "boot", Kept(first), {7})
    assert load("h", "another").stillness.still_s([ONE], 110.0) is None


def test_a_count_that_was_not_watched_for_long_says_nothing() -> None:
    looked = Tokens("r1", 38.0, since=100.0)
    assert looked.still_s(127.0) is None
    assert looked.still_s(161.0) == 61.0
    assert Tokens("r1", 38.0, since=100.0, moved=True).still_s(127.0) == 27.0
    save("h", "boot", Kept(tokens={"s": looked}), ())
    assert load("h", "boot").tokens == {"s": looked}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "boot_id": "boot"}']
)
def test_a_damaged_file_is_as_good_as_none(state: Path, text: str) -> None:
    (state / "observed").mkdir()
    (state / "observed" / "h.json").write_text(text)
    assert load("h", "boot").tokens == {}


def test_the_file_is_readable_json(state: Path) -> None:
    save("h", "boot", Kept(), ())
    assert json.loads((state / "observed" / "h.json").read_text())["format"] == 2


def test_a_driver_that_does_not_answer_moves_nothing() -> None:
    still = Stillness()
    unread = replace(at(100.0), gpu_error="no answer yet")
    still.feed(replace(unread, processes=(replace(unread.processes[0], gpu_memory_mib={}),)))
    still.feed(at(105.0))
    assert still.still_s([ONE], 105.0) == 5.0
    still.feed(replace(unread, time=110.0))
    grown = at(120.0)
    still.feed(grown)
    assert still.still_s([ONE], 120.0) == 20.0
    still.feed(
        replace(
            grown, time=130.0, processes=(replace(grown.processes[0], gpu_memory_mib={0: 99.0}),)
        )
    )
    assert still.still_s([ONE], 130.0) == 0.0
