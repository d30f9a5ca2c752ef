"""Doors, servers and peers for the tests of live nodes, closed in the end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from http_service import Node
from live_peers import Asking, MakeAsking, Peers
from small_servers import Street

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.http.bounds import Bounds


@pytest.fixture(scope="module")
def node() -> Node:
    return Node()


@pytest.fixture(scope="module")
def address(node: Node) -> Iterator[str]:
    """Of its door for clients."""
    with closing(HttpDoor(node)) as door:
        yield door.address


@pytest.fixture
def opened() -> Iterator[Callable[..., str]]:
    """Open a door for a node, with bounds of a test's own; its address."""
    with ExitStack() as stack:

        def open_(node: Node, **bounds: Any) -> str:
            return stack.enter_context(closing(HttpDoor(node, Bounds(**bounds)))).address

        yield open_


@pytest.fixture
def street() -> Iterator[Street]:
    with ExitStack() as ends:
        yield Street(ends)


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    """Nodes a, b and c."""
    with ExitStack() as ends:
        yield Peers(ends, tmp_path / "peers", "abc")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[MakeAsking]:
    """A node that asks neighbours, given by their limits; and its own limits."""
    with ExitStack() as ends:

        def make(shape: tuple[int, ...] = (4,), **more: Any) -> Asking:
            return Asking(ends, tmp_path / "asking", shape, more.pop("limits", {}), more)

        yield make
