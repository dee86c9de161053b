"""Drop-ins: what a unit runs afterwards, and that systemd reads back exactly what was meant."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config.presets import load_presets
from console.errors import UsageError
from console.model import Server
from console.preflight.units import parse_unit
from console.runners.settings import Choice, merge
from console.runners.systemd import Unit, failure, launch_of, quote, show_properties, split_cat

BASE = """[Service]
Environment=EAGLE3_PROFILE=1 NCCL_DEBUG=WARN
ExecStart=/opt/venv/bin/python3 -m sglang.launch_server --model-path /m --tp 8 \\
  --speculative-algorithm EAGLE3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 3
Restart=on-failure
"""
SERVER = Server(name="k26", host="h", speculative="eagle3-1step")
PATH = "/etc/systemd/system/k26.service.d/specops.conf"


def unit(drop_in: str | None = None) -> Unit:
    return Unit("k26.service", BASE, drop_in, PATH)


def test_the_drop_in_changes_the_flags_and_nothing_else() -> None:
    made = launch_of(unit(), merge(SERVER, load_presets(), Choice(nccl="debug")), run_id="r1")
    after = parse_unit(BASE + made.text)
    assert dict(after.flags)["--speculative-num-steps"] == ("1",)
    assert dict(after.flags)["--speculative-eagle-topk"] == ("1",)
    assert dict(after.flags)["--tp"] == ("8",)
    assert after.env["EAGLE3_PROFILE"] == "1"
    assert after.env["NCCL_DEBUG"] == "INFO"
    assert after.env["SPECOPS_RUN_ID"] == "r1"
    assert made.foreign_edit is None


def test_a_drop_in_that_somebody_else_wrote_is_shown_first() -> None:
    settings = merge(SERVER, load_presets())
    own = launch_of(unit(), settings, run_id="r1").text
    assert launch_of(unit(own), settings, run_id="r2").foreign_edit is None
    edited = "[Service]\nEnvironment=MINE=1\n"
    assert launch_of(unit(edited), settings, run_id="r2").foreign_edit == edited


def test_a_secret_is_not_written_into_a_unit() -> None:
    server = replace(SERVER, env={"HF_TOKEN": "secret:HF_TOKEN"})
    with pytest.raises(UsageError, match="everybody may read"):
        launch_of(unit(), merge(server, load_presets()), run_id="r1")


def test_cat_is_split_at_our_own_file() -> None:
    text = f"# /lib/k26.service\n{BASE}\n# {PATH}\n[Service]\nX=1\n\n# /etc/other.conf\n[Service]\n"
    base, own = split_cat(text, PATH)
    assert own is not None
    assert "X=1" in own
    assert "X=1" not in base
    assert "other.conf" in base
    assert split_cat(BASE, PATH) == (BASE, None)


@given(st.text(min_size=1).filter(str.isprintable))
def test_any_word_survives_systemds_quoting(word: str) -> None:
    made = parse_unit(
        f"[Service]\nExecStart=/usr/bin/python3 -m sglang.launch_server --x {quote(word)} --end"
    )
    assert made.args == ("--x", word, "--end")


def test_control_characters_are_refused() -> None:
    with pytest.raises(UsageError):
        quote("a\nExecStart=/bin/evil")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ActiveState=active\nResult=success", None),
        ("ActiveState=failed\nResult=exit-code\nExecMainStatus=1", "code 1"),
        ("ActiveState=failed\nResult=signal\nExecMainStatus=9", "signal 9"),
        ("ActiveState=failed\nResult=oom-kill", "memory"),
        ("ActiveState=inactive\nResult=success", "ended"),
        ("", "not known"),
    ],
)
def test_a_units_end_is_said_in_words(text: str, said: str | None) -> None:
    why = failure(show_properties(text))
    assert (why is None) == (said is None)
    assert said is None or said in (why or "")
