"""``specops presets``: what is saved is what is read again."""

from __future__ import annotations

import json

from tests.functional.cli.conftest import Command


def test_save_show_diff_and_list(specops: Command) -> None:
    saved = specops(
        "presets", "save", "mine", "--kind", "speculative", "--from", "eagle3-3step",
        "--set", "speculative-num-steps=5", "--set", "speculative-num-draft-tokens=6", "--json",
    )  # fmt: skip
    assert saved.code == 0, saved.err
    assert saved.json["saved"].startswith(str(specops.folder / "config"))
    shown = specops("presets", "show", "mine", "--json").json["preset"]
    assert shown["flags"]["speculative-num-steps"] == 5
    assert shown == {**saved.json["preset"], "origin": saved.json["saved"]}
    different = specops("presets", "diff", "eagle3-3step", "mine", "--json")
    assert different.code == 1
    assert {c["name"]: (c["before"], c["after"]) for c in different.json["changes"]} == {
        "speculative-num-steps": (3, 5),
        "speculative-num-draft-tokens": (4, 6),
    }
    assert specops("presets", "diff", "mine", "mine").code == 0
    names = {(p["kind"], p["name"]) for p in specops("presets", "list", "--json").json["presets"]}
    assert {("speculative", "mine"), ("nccl", "pcie-ll-ring")} <= names


def test_a_slip_is_named_and_nothing_is_saved(specops: Command) -> None:
    unknown = specops("presets", "show", "eagle3-3stp", "--json")
    assert unknown.code == 2
    assert "eagle3-3step" in unknown.json["error"]["hint"]
    for words in (("../x", "--description", "d"), ("ok",)):
        assert specops("presets", "save", *words, "--kind", "nccl").code == 2
    assert not (specops.folder / "config").exists()


def test_what_a_preset_has_done_is_shown_and_ranks_it(specops: Command) -> None:
    specops.write(
        "hosts:\n  here: {transport: local}\n  lost: {address: 127.0.0.1, port: 1}\n"
        "servers:\n  one: {host: here, engine: sglang, model: /m}\n"
    )
    runs = specops.folder / "state" / "runs"
    runs.mkdir(parents=True, mode=0o700)
    base: dict[str, object] = {
        "format": 1, "server": "one", "engine": "sglang", "host": "here", "argv": ["x"], "env": {},
        "cwd": "/", "log": "", "port": 1, "launcher": None, "session": None, "unit": None,
        "launched_by": "me", "model": "/m",
    }  # fmt: skip
    phases = [["load_target", 30.0], ["load_draft", 5.0], ["ready", 0.0]]
    ends: list[tuple[str, dict[str, object]]] = [
        ("eagle3-3step", {"outcome": "stopped", "phases": phases}),
        ("eagle3-tree", {"outcome": "failed", "failure": "ValueError: draft context"}),
    ]
    for number, (preset, more) in enumerate(ends):
        record: dict[str, object] = {
            **base,
            "run_id": f"r{number}",
            "launched_at": 9.0,
            "speculative": preset,
            **more,
        }
        (runs / f"r{number}.json").write_text(json.dumps(record))
    level = {"concurrency": 8, "tokens_per_s": 812.0, "failed": 0, "accept_length": 2.5}
    row = {"format": 1, "time": 20.0, "host": "here", "model": "/m", "tokens": 128,
           "speculative": "eagle3-3step", "levels": [level]}  # fmt: skip
    bench = specops.folder / "operator" / "specops" / "bench"
    bench.mkdir(parents=True)
    (bench / "here.jsonl").write_text(json.dumps(row) + "\n")

    shown = specops("presets", "show", "eagle3-3step", "--json").json
    (history,) = shown["history"]
    assert (history["host"], history["model"], history["verdict"]) == ("here", "/m", "works")
    assert (history["launches"], history["served"], history["start_s"]) == (1, 1, 35.0)
    assert history["phases"][0] == {"name": "load_target", "seconds": 30.0}
    assert history["tokens_per_s"] == [{"concurrency": 8, "tokens": 128, "tokens_per_s": 812.0}]
    assert [lost["host"] for lost in shown["not_asked"]] == ["lost"]
    text = specops("presets", "show", "eagle3-tree")
    assert text.code == 0
    assert "ValueError: draft context" in text.out
    assert "0 of 1 served" in text.out
    offline = specops("presets", "show", "eagle3-3step", "--offline", "--json").json
    assert offline["history"][0]["launches"] == 0  # the hosts know that, and were not asked
    assert offline["history"][0]["tokens_per_s"] == history["tokens_per_s"]

    ranked = specops("presets", "list", "--kind", "speculative", "--for", "one", "--json").json
    verdicts = [(p["name"], p["verdict"]) for p in ranked["presets"]]
    assert verdicts[0] == ("eagle3-3step", "works")
    assert verdicts[-1] == ("eagle3-tree", "fails")


def test_a_preset_that_cannot_be_read_costs_what_uses_it_and_nothing_else(specops: Command) -> None:
    server = "{{host: here, engine: bundled, port: {}{}}}"
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n"
        f"  one: {server.format(31871, '')}\n  two: {server.format(31872, ', nccl: half')}\n"
    )
    half = specops.folder / "config" / "specops" / "presets" / "nccl" / "half.yaml"
    half.parent.mkdir(parents=True)
    half.write_text("kind: nccl\n")
    warned = f"warning: preset left out: {half}:1:1: has no description"
    for words in (
        ("kill-zombies", "here", "--dry-run"), ("stop", "one", "--dry-run"),
        ("launch", "one", "--dry-run"), ("presets", "list"),
    ):  # fmt: skip
        ran = specops(*words)
        assert ran.code in (0, 1), (words, ran.err)
        assert warned in ran.err
    refused = specops("launch", "two", "--dry-run", "--json")
    assert refused.code == 2
    assert refused.json["error"]["place"] == f"{half}:1:1"
    invalid = specops("config", "validate")
    assert invalid.code == 2
    assert f"{half}:1:1: has no description" in invalid.err
    assert "servers.two.nccl: nccl preset 'half' cannot be used" in invalid.err
    half.write_bytes(b"kind: \xff\n")
    checks = specops("doctor", "--json").json["checks"]
    told = next(check for check in checks if check["id"] == "config.presets")
    assert told["state"] == "failed"
    assert f"{half}: not UTF-8 at byte 6" in told["message"]
