from __future__ import annotations

from collections.abc import Iterator

import pytest

from .live import CHAIN, Live, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A speculative server shared by a module."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, *CHAIN, "--enable-metrics", "--decode-log-interval", "5") as live:
        yield live
