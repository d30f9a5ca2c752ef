"""After its own training a node waits for a first neighbour; a server is one when it can be asked."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
from fleets import SOON, Fleet, all_probed, until
from small_servers import JSON, Request, Street

from lntrust.fleet.http.tensors import Tensor, read_request, write_message
from lntrust.fleet.node import Node
from lntrust.fleet.settings import NeighbourSettings, load_node


def uniform(request: Request) -> None:
    """Every class is as likely as any other."""
    _, headers, body = request.server.seen[-1]
    (tensor,) = read_request(body, headers.get("Inference-Header-Content-Length")).inputs
    output = Tensor("probabilities", np.full((len(tensor.array), 10), 0.1), False)
    request.answer(write_message({"model_name": "m"}, [output], "outputs")[0])


def test_a_server_counts_when_it_is_ready(tmp_path: Path) -> None:
    street, up = Street(), threading.Event()

    def unless_down(act: Any) -> Any:
        return lambda request: act(request) if up.is_set() else request.answer({"error": "starting"}, 503)

    server = street.server(unless_down(uniform), unless_down(lambda request: request.answer(JSON)))
    life = {"life": {**SOON["life"], "wait": 300.0}}
    folder = Fleet.of(tmp_path, ["a"], everybody={**SOON, **life}).members["a"].folder
    them = NeighbourSettings(name="them", url=server.url)
    settings = load_node(folder).model_copy(update={"neighbours": [them]})
    with street.ends, Node(settings).start() as node:
        knocked = until(node, lambda status: status["phase"] == "deployed" or len(server.seen) >= 3)
        assert knocked["phase"] == "stage 2"
        assert {path for path, _, _ in server.seen} == {"/v2/models/m/ready"}, "it is asked nothing else yet"
        up.set()
        status = until(node, all_probed)
        assert status["error"] is None


def test_a_server_that_is_not_there_is_not_waited_for_longer_than_said(tmp_path: Path) -> None:
    life = {"life": {**SOON["life"], "wait": 0.5}}
    folder = Fleet.of(tmp_path, ["a"], everybody={**SOON, **life}).members["a"].folder
    them = NeighbourSettings(name="them", url="http://127.0.0.1:9/v2/models/m")
    settings = load_node(folder).model_copy(update={"neighbours": [them]})
    with Node(settings).start() as node:
        status = until(node, lambda status: status["phase"] == "deployed")
        assert not status["neighbours"]["them"]["probed"]
        assert status["error"] is None
