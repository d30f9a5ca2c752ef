"""Peers for tests, closed in the end."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live_peers import Asking, MakeAsking, Peers


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    """Nodes a, b and c."""
    peers = Peers(tmp_path / "peers", "abc")
    with peers.ends:
        yield peers


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[MakeAsking]:
    """A node that asks neighbours, given by their limits; and its own limits."""
    with ExitStack() as ends:

        def make(shape: tuple[int, ...] = (4,), **more: Any) -> Asking:
            made = Asking(tmp_path / "asking", shape, more.pop("limits", {}), more)
            ends.callback(made.ends.close)
            return made

        yield make
