"""The rig's pytest fixtures. Loaded by tests/conftest.py; tests that use them are marked ``hosts``.

``host_factory(**options)``  boots a host that lives as long as the test module
``nspawn_host``              one host shared by the run, reset after each test
``python_host``              the same with the tests' Python and the source tree inside
``sshd_factory(**options)``  starts an sshd on 127.0.0.1 that lives as long as the test
``loopback_sshd``            one sshd on 127.0.0.1 shared by the run

Where the machine cannot do it the test is skipped with the reason; with SPECOPS_REQUIRE_HOSTS=1 it
fails instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.rig import nspawn, sshd
from tests.rig.nspawn import NspawnHost
from tests.rig.sshd import LoopbackSshd

HostFactory = Callable[..., NspawnHost]
SshdFactory = Callable[..., LoopbackSshd]


def require(lacking: str | None) -> None:
    """Skip the test for this reason, or fail it where host tests are compulsory."""
    if lacking is None:
        return
    if os.environ.get("SPECOPS_REQUIRE_HOSTS") == "1":
        pytest.fail(f"{lacking} (SPECOPS_REQUIRE_HOSTS=1 turns this skip into a failure)")
    pytest.skip(lacking)


@pytest.fixture(scope="module")
def host_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostFactory]:
    """Boot hosts with the options of ``tests.rig.nspawn.boot``; all stop with the module."""
    require(nspawn.missing())
    started: list[NspawnHost] = []

    def boot(**options: object) -> NspawnHost:
        folder = tmp_path_factory.mktemp("host")
        started.append(nspawn.boot(folder, **options))  # type: ignore[arg-type]
        return started[-1]

    yield boot
    for host in started:
        host.stop()


def _booted(tmp_path_factory: pytest.TempPathFactory, *, python: bool) -> Iterator[NspawnHost]:
    require(nspawn.missing())
    host = nspawn.boot(tmp_path_factory.mktemp("host"), bind_python=python)
    yield host
    host.stop()


@pytest.fixture(scope="session")
def shared_nspawn_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NspawnHost]:
    """The host behind ``nspawn_host``; take that one, which is reset."""
    yield from _booted(tmp_path_factory, python=False)


@pytest.fixture(scope="session")
def shared_python_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NspawnHost]:
    """The host behind ``python_host``; take that one, which is reset."""
    yield from _booted(tmp_path_factory, python=True)


@pytest.fixture
def nspawn_host(shared_nspawn_host: NspawnHost) -> Iterator[NspawnHost]:
    """A Debian host with its own systemd, journal and sshd, as after boot."""
    yield shared_nspawn_host
    shared_nspawn_host.reset()


@pytest.fixture
def python_host(shared_python_host: NspawnHost) -> Iterator[NspawnHost]:
    """As ``nspawn_host``; ``host.python`` runs the tests' interpreter inside."""
    yield shared_python_host
    shared_python_host.reset()


@pytest.fixture
def sshd_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdFactory]:
    """Start sshds with the options of ``LoopbackSshd``; all stop with the test."""
    require(sshd.missing())
    started: list[LoopbackSshd] = []

    def start(**options: object) -> LoopbackSshd:
        folder = tmp_path_factory.mktemp("sshd")
        started.append(LoopbackSshd(folder, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def loopback_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    """An sshd on 127.0.0.1 for whoever runs the tests; a test must leave it running."""
    require(sshd.missing())
    server = LoopbackSshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()
