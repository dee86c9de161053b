"""From a server's entry to an argument vector, a run record and a log path."""

from dataclasses import replace

import pytest

from console.config.presets import load_presets
from console.errors import UsageError
from console.model import Server
from console.runners.prepare import Ground, Node, Prepared, prepare
from console.runners.settings import Choice, merge

GROUND = Ground(state_dir="/s", python="/py", target="/w/target", draft="/w/draft", path="/src")
BUNDLED = Server(name="demo", host="h", engine="bundled", port=1234, speculative="eagle3-3step")


def made(server: Server, choice: Choice | None = None, ground: Ground = GROUND) -> Prepared:
    settings = merge(server, load_presets(), choice)
    return prepare(server, settings, ground, run_id="ab12cd34", launched_by="me@here", now=5.0)


def flag(prepared: Prepared, name: str) -> str:
    argv = prepared.run.argv
    return argv[argv.index(name) + 1]


def test_the_bundled_server_takes_the_shipped_pair() -> None:
    found = made(BUNDLED)
    assert found.run.argv[:3] == ("/py", "-m", "eagle3.launch_server")
    assert flag(found, "--model-path") == "/w/target"
    assert flag(found, "--speculative-draft-model-path") == "/w/draft"
    assert flag(found, "--port") == "1234"
    assert found.run.env["SPECOPS_RUN_ID"] == "ab12cd34"
    assert found.run.env["PYTHONPATH"] == "/src"
    assert found.run.log == "/s/logs/demo-eagle3-3step-ab12cd34.log"


def test_without_speculation_there_is_no_draft() -> None:
    found = made(BUNDLED, Choice(speculative="autoregressive"))
    assert not [word for word in found.run.argv if "speculative" in word]
    assert found.run.draft is None


def test_a_log_template_is_filled_and_kept_inside_one_folder() -> None:
    server = replace(BUNDLED, log="/logs/{server}/{preset}-{run}.log")
    assert made(server).run.log == "/logs/demo/eagle3-3step-ab12cd34.log"
    assert made(replace(BUNDLED, log="one.log")).run.log == "/s/one.log"


def test_a_secret_flag_goes_into_a_file_and_never_into_the_vector() -> None:
    server = replace(
        BUNDLED, engine="sglang", model="/m",
        args={"api-key": "secret:KEY"}, env={"HF_TOKEN": "secret:HF_TOKEN"},
    )  # fmt: skip
    found = made(server)
    assert flag(found, "--config") == "/s/secrets/ab12cd34.yaml"
    assert "--api-key" not in found.run.argv
    assert found.config == {"api-key": "secret:KEY"}
    assert set(found.secret_names) == {"HF_TOKEN", "KEY"}


def test_the_bundled_server_takes_its_key_from_a_variable() -> None:
    found = made(replace(BUNDLED, args={"api-key": "secret:KEY"}))
    assert found.run.env["EAGLE3_API_KEY"] == "secret:KEY"
    assert not [word for word in found.run.argv if "key" in word or "config" in word]
    assert found.secret_names == ("KEY",)


def test_a_secret_in_plain_text_is_refused() -> None:
    with pytest.raises(UsageError, match="plain text"):
        made(replace(BUNDLED, env={"HF_TOKEN": "hf_abcdefghijklmnop"}))


def test_vllm_is_not_launched() -> None:
    with pytest.raises(UsageError, match="not launched"):
        made(replace(BUNDLED, engine="vllm", model="/m"))


def test_several_hosts_are_ranks_of_one_server() -> None:
    server = replace(BUNDLED, engine="sglang", model="/m", hosts=("a", "b"))
    ground = replace(GROUND, node=Node(("a", "b"), 1, "x", "10.0.0.1:20000"), target="", draft="")
    found = made(server, ground=ground)
    assert flag(found, "--nnodes") == "2"
    assert flag(found, "--node-rank") == "1"
    assert flag(found, "--dist-init-addr") == "10.0.0.1:20000"
    assert (found.run.nodes, found.run.rank) == (("a", "b"), 1)
    assert found.run.log == made(server).run.log.replace(".log", "-node1.log")
