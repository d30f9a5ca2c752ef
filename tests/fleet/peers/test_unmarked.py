"""Probes and clients' questions look alike to a neighbour: nothing about them but the inputs differs.

It cannot be right on the one and wrong on the other, so as to be trusted for nothing.
"""

from pathlib import Path
from typing import Any

import pytest
import zenoh
from fleets import SOON, Fleet, all_probed, until
from rogue import Rogue

from lntrust.fleet.node import Node

TABLES: dict[str, Any] = {
    **SOON,
    "trust": {"weighting": "uniform", "deployment_gate": "off"},
    "limits": {**SOON["limits"], "patience": 30.0, "deadline": 20.0},  # seconds: they must not show
}


class Spy:
    """A session of Zenoh's that writes down what it is asked to send beside a question's bytes."""

    def __init__(self, session: zenoh.Session, sent: list[Any]) -> None:
        self._session, self._sent = session, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, key: str, handler: Any, *, payload: bytes, cancellation_token: Any, **rest: Any) -> Any:
        self._sent.append((key, {name: str(value) for name, value in rest.items()}))
        return self._session.get(key, handler, payload=payload, cancellation_token=cancellation_token, **rest)


def test_probes_and_clients_questions_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks about the very inputs of a probe: the bytes are the same, nothing is attached.

    Beside hellos and all questions Zenoh sends the same: what it shows nobody, as a timeout, can be read.
    """
    fleet = Fleet.of(tmp_path, "ar", everybody=TABLES)  # r, a's only neighbour, knows all answers
    sent, opened = list[Any](), zenoh.open
    with Rogue(fleet.place("r"), fleet.members["r"].settings) as rogue:
        monkeypatch.setattr(zenoh, "open", lambda config: Spy(opened(config), sent))
        with Node.from_file(fleet.members["a"].folder) as node:
            until(node, all_probed)
            training = list(rogue.questions)
            (_, probe), *_ = rogue.asked
            assert len(probe) == 24, "all of the validation part"
            node.predict(probe)
            assert len(rogue.questions) == len(training) + 1
            assert rogue.questions[-1] == training[0]
            assert {len(question) for question in training} == {1}
            node.predict(probe[:1])
            assert len(sent) == len(rogue.hellos) + len(rogue.questions) > 4
            assert all(each == sent[0] for each in sent), sent
            assert sent[0][0] == "lntrust/r/ask/a"
