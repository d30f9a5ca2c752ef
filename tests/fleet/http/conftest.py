"""Doors for clients, open on a port of this machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from http_service import Node, settings

from lntrust.fleet.http.app import HttpDoor
from lntrust.fleet.http.bounds import Bounds


@pytest.fixture(scope="module")
def node() -> Node:
    return Node(settings())


@pytest.fixture(scope="module")
def address(node: Node) -> Iterator[str]:
    with closing(HttpDoor(node)) as door:
        yield door.address


@pytest.fixture
def opened() -> Iterator[Callable[..., str]]:
    """Open a door for a node, with bounds of a test's own; its address."""
    with ExitStack() as stack:

        def open_(node: Node, **bounds: Any) -> str:
            return stack.enter_context(closing(HttpDoor(node, Bounds(**bounds)))).address

        yield open_
