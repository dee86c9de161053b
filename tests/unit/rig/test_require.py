"""A host test that cannot run is skipped, or fails where host tests are compulsory."""

from __future__ import annotations

import pytest

from tests.rig.keeper import Spec
from tests.rig.plugin import require


def test_nothing_lacking_is_nothing() -> None:
    require(None)


def test_a_reason_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECOPS_REQUIRE_HOSTS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no sshd"):
        require("no sshd")


def test_compulsory_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECOPS_REQUIRE_HOSTS", "1")
    with pytest.raises(pytest.fail.Exception, match="no sshd"):
        require("no sshd")


def test_a_keepers_orders_survive_the_trip() -> None:
    spec = Spec(
        argv=("sleep", "a b"),
        cgroups=("/x",),
        log="/l",
        notify=None,
        cleanup=(("true",), ("ip", "x")),
        remove=("/y",),
    )
    assert Spec.load(spec.dump()) == spec
