from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from console.config.edit import edited, set_value
from console.errors import ConfigError

FILE = """\
# my hosts
hosts:
  a: {address: a.example}   # the old one

  # about b
  b:
    address: b.example
    labels: [x, y]
servers:
  one: {host: a, model: /m, port: 1, args: {tp-size: 8}}  # keep
  two:
    host: b
    model: /m   # where it is
    speculative: eagle3-1step

# the end
"""


@pytest.mark.parametrize(
    ("trail", "value", "line"),
    [
        (["servers", "two", "speculative"], "eagle3-3step", "    speculative: eagle3-3step"),
        (["servers", "two", "model"], "/n: x", "    model: '/n: x'   # where it is"),
        (
            ["servers", "one", "port"],
            2,
            "  one: {host: a, model: /m, port: 2, args: {tp-size: 8}}  # keep",
        ),
        (
            ["servers", "one", "args", "context-length"],
            99,
            "  one: {host: a, model: /m, port: 1, args: {tp-size: 8, context-length: 99}}  # keep",
        ),
        (["servers", "two", "nccl"], "default", "    nccl: default"),
        (["servers", "two", "args", "tp-size"], 8, "      tp-size: 8"),
        (["hosts", "b", "labels"], ["z"], "    labels: [z]"),
        (["hosts", "b", "port"], 23, "    port: 23"),
    ],
)
def test_only_the_span_changes(trail: list[str], value: object, line: str) -> None:
    out = edited(FILE, trail, value)
    before, after = FILE.splitlines(), out.splitlines()
    assert line in after
    lost = [text for text in before if text not in after]
    assert all(text.split(":")[0] == line.split(":", maxsplit=1)[0] for text in lost)
    for comment in ("# my hosts", "  # about b", "# the end"):
        assert comment in after
    data = yaml.safe_load(out)
    for key in trail:
        data = data[key]
    assert data == value


def test_an_empty_file_gets_its_first_entry(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("# nothing yet\n")
    set_value(path, ["servers", "x", "host"], "a")
    assert path.read_text() == "# nothing yet\nservers:\n  x:\n    host: a\n"


def test_what_cannot_be_done_in_place_changes_nothing() -> None:
    with pytest.raises(ConfigError, match="no mapping"):
        edited("servers: {one: 3}", ["servers", "one", "args", "x"], 1)


@given(
    st.sampled_from(
        [["servers", "one", "model"], ["servers", "two", "draft"], ["hosts", "c", "x"]]
    ),
    st.one_of(st.integers(), st.booleans(), st.text(st.characters(codec="ascii"), max_size=30)),
)
@example(["servers", "one", "model"], "${")
@example(["servers", "one", "model"], "a: b, c")
@example(["servers", "two", "draft"], "]}#")
def test_any_value_survives(trail: list[str], value: object) -> None:
    data = yaml.safe_load(edited(FILE, trail, value))
    for key in trail:
        data = data[key]
    assert data == value
