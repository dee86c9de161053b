from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.text import MASK, MAX_LINE, clean, is_secret_name, lines, mask, mask_argv, mask_env

HOSTILE = [
    b"\x1b]52;c;aGVsbG8=\x07payload",
    b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
    b"\x1bP$q\x1b\\dcs",
    b"\xc2\x9b31mred",
    b"\x1b[?1049h\x1b[6n",
    b"a\nb\rc\x00d",
    "\u202eevil\u2066 \u200bhid\U000e0041den".encode(),
    b"\xff\xfe broken \x80",
    b"[bold]not markup[/bold] [@click=app.quit]x[/]",
    b"\x1b" * 1000,
    b"\x1b]0;never ends",
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_become_inert(data: bytes) -> None:
    out = clean(data)
    assert out.isprintable() or out == ""
    assert "\x1b" not in out
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Zl", "Zp", "Cs"} for c in out)


@given(st.one_of(st.binary(max_size=400), st.text(max_size=400)))
def test_nothing_gets_through(data: bytes | str) -> None:
    out = clean(data)
    assert "\n" not in out
    assert "\x1b" not in out
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in out)
    out.encode("utf-8")
    assert clean(out) == out


def test_markup_is_left_as_text() -> None:
    assert clean("[red]x[/red]") == "[red]x[/red]"


def test_long_lines_say_what_was_cut() -> None:
    assert clean("x" * (MAX_LINE + 7)).endswith("[+7 characters]")


def test_a_redrawn_line_shows_its_last_state() -> None:
    assert lines(b"10%\r50%\r100%\nnext\r\n") == ["100%", "next", ""]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("api-key", True),
        ("OPENAI_API_KEY", True),
        ("password", True),
        ("speculative-num-draft-tokens", False),
        ("max-total-tokens", False),
        ("speculative-token-map", False),
        ("CUDA_VISIBLE_DEVICES", False),
    ],
)
def test_which_names_hold_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    "text",
    [
        "server_args=ServerArgs(model_path='m', api_key='hunter2secret', port=1)",
        "--api-key hunter2secret",
        "export HF_TOKEN=hunter2secret",
        "https://bob:hunter2secret@example.org/x",
        "Authorization: Bearer hunter2secret",
        "password: hunter2secret",
    ],
)
def test_secrets_are_masked_wherever_they_stand(text: str) -> None:
    assert "hunter2secret" not in mask(text)


def test_ordinary_words_stay() -> None:
    text = "max_total_num_tokens=4096, num_draft_tokens=4, api_key=None, token usage: 0.02"
    assert mask(text) == text


def test_counts_of_tokens_are_no_secrets() -> None:
    line = "Prefill batch, #new-seq: 1, #new-token: 14, #cached-token: 0, full token: 3"
    assert mask(line) == line
    assert mask("hf_token=123456789012") == "hf_token=***"
    assert mask("--token 1234") == "--token ***"


def test_values_in_use_are_found_in_any_form() -> None:
    assert mask("x p@ss/word p%40ss%2Fword", ["p@ss/word"]) == "x *** ***"


def test_argv_and_env() -> None:
    assert mask_argv(["x", "--api-key", "v", "--admin-api-key=w", "--port", "1"]) == [
        "x", "--api-key", "***", "--admin-api-key=***", "--port", "1",
    ]  # fmt: skip
    assert mask_env({"HF_TOKEN": "abc", "A": "secret:A", "HF_SECRET": "secret:B"}) == {
        "HF_TOKEN": "***",
        "A": "secret:A",
        "HF_SECRET": "secret:B",
    }


@pytest.mark.parametrize(
    "secret",
    ["hf_" + "a1" * 10, "sk-" + "b2" * 10, "AKIA" + "C3" * 8]
    + [f"gh{kind}_" + "d4" * 12 for kind in "pousr"],
)
def test_every_shape_of_a_secret_is_known_anywhere_in_a_line(secret: str) -> None:
    assert mask(secret) == MASK
    assert mask(f"#running-req: 8, got {secret}, #queue-req: 0") == (
        f"#running-req: 8, got {MASK}, #queue-req: 0"
    )


@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER"])
def test_what_a_bearer_carries_is_a_secret(word: str) -> None:
    assert mask(f"curl -H 'X: {word} abcdefgh12345678'") == f"curl -H 'X: {word} {MASK}'"


def test_a_url_shows_no_password() -> None:
    assert mask("cloning https://me:pass@host/x") == f"cloning https://{MASK}@host/x"
