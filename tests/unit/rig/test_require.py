"""A host test that cannot run is skipped, or fails where host tests are compulsory."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.rig import nspawn, sshd
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


def test_what_a_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert nspawn.missing() == "test hosts need root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if "nspawn" in name else name)
    assert nspawn.missing() == "test hosts need systemd-nspawn installed"
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    assert sshd.missing() == "test needs OpenSSH's sshd installed"
