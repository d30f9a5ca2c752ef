"""After its own training a node waits for a first neighbour; a server is one when it can be asked."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
from fleets import SOON, Fleet, all_probed, deployed, until
from small_servers import JSON, Request, Street, answer_with

from lntrust.fleet.node import Node
from lntrust.fleet.settings import NeighbourSettings


def node_with(tmp_path: Path, url: str, wait: float) -> Node:
    """A node whose only neighbour is a server."""
    fleet = Fleet.of(tmp_path, ["a"], everybody={**SOON, "life": {**SOON["life"], "wait": wait}})
    them = NeighbourSettings(name="them", url=url)
    return Node(fleet.members["a"].settings.model_copy(update={"neighbours": [them]}))


def test_a_server_counts_when_it_is_ready(tmp_path: Path, street: Street) -> None:
    up = threading.Event()

    def unless_down(act: Any) -> Any:
        return lambda request: act(request) if up.is_set() else request.answer({"error": "starting"}, 503)

    def uniform(request: Request) -> None:
        answer_with(request, lambda x: np.full((len(x), 10), 0.1))

    server = street.server(unless_down(uniform), unless_down(lambda request: request.answer(JSON)))
    with node_with(tmp_path, server.url, 300.0).start() as node:
        knocked = until(node, lambda status: deployed(status) or len(server.seen) >= 3)
        assert knocked["phase"] == "stage 2"
        assert {path for path, _, _ in server.seen} == {"/v2/models/m/ready"}, "it is asked nothing else yet"
        up.set()
        assert until(node, all_probed)["error"] is None


def test_a_server_that_is_not_there_is_not_waited_for_longer_than_said(tmp_path: Path) -> None:
    with node_with(tmp_path, "http://127.0.0.1:9/v2/models/m", 0.5).start() as node:
        status = until(node, deployed)
        assert not status["neighbours"]["them"]["probed"]
        assert status["error"] is None
