"""Whatever a host says instead of starting the agent, the error says what to do about it."""

from __future__ import annotations

import pytest

from console.errors import AgentError, AuthError, HostError
from console.transport.said import start_error


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        ("", AgentError, "specops doctor gpu1"),
        ("Segmentation fault (core dumped)", AgentError, "specops doctor gpu1"),
        ("Killed", AgentError, "specops doctor gpu1"),
        ("specops: python 3.6 is too old", AgentError, "python:"),
        ("sh: python3: not found", HostError, "python:"),
        ("This account is currently not available.", AgentError, "shell"),
        ("Host key verification failed.", AuthError, "compare"),
        ("ops@gpu1: Permission denied (publickey).", AuthError, "ssh-add"),
    ],
)
def test_each_has_a_hint(said: str, kind: type[HostError], hint: str) -> None:
    error = start_error("gpu1", said, said)
    assert isinstance(error, kind)
    assert hint in error.hint
    assert error.place == "gpu1"
