"""Probes and clients' questions look alike to a neighbour: nothing about them but the inputs differs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import SOON, Fleet, all_probed, until
from rogue import Rogue
from sklearn.datasets import load_digits

from lntrust.fleet.node import Node

_EACH_ITS_OWN = ("payload", "cancellation_token")
TABLES: dict[str, Any] = {**SOON, "trust": {"weighting": "uniform", "deployment_gate": "off"}}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Rogue, Node]]:
    """A node, and its only neighbour, who knows all answers."""
    fleet = Fleet.of(tmp_path, "ar", everybody=TABLES)
    with (
        Rogue(fleet.place("r"), fleet.members["r"].settings) as rogue,
        Node.from_file(fleet.members["a"].folder) as node,
    ):
        until(node, all_probed)
        yield rogue, node


def test_a_probe_and_a_clients_question_are_the_same_bytes(both: tuple[Rogue, Node]) -> None:
    """A client asks about the very inputs of a probe."""
    rogue, node = both
    training = list(rogue.questions)
    (_, probe), *_ = rogue.asked
    assert len(probe) == len(node._life.data.validation)
    node.predict(probe)
    assert len(rogue.questions) == len(training) + 1
    assert rogue.questions[-1] == training[0]


def test_nothing_stands_beside_a_question(both: tuple[Rogue, Node]) -> None:
    """Hellos, probes, lessons and clients' questions: the same key, and nothing else."""
    rogue, node = both
    node.predict(rogue.asked[0][1][:1])
    seen = rogue.door.beside
    assert len(seen) == len(rogue.hellos) + len(rogue.questions)
    assert len(set(seen)) == 1, set(seen)
    assert "lntrust/r/ask/a" in seen[0]


def test_zenoh_is_told_the_same_of_all_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Zenoh sends along and shows nobody, as a question's timeout, a neighbour may still read."""
    fleet = Fleet.of(tmp_path, "ar", everybody={**TABLES, "limits": {"patience": 7.0, "deadline": 3.0}})
    told = []

    class Spy:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def get(self, key: str, *handler: Any, **options: Any) -> Any:
            told.append((key, {k: str(v) for k, v in options.items() if k not in _EACH_ITS_OWN}))
            return self._session.get(key, *handler, **options)

    with (
        Rogue(fleet.place("r"), fleet.members["r"].settings) as rogue,
        Node(fleet.members["a"].settings) as node,
    ):
        assert node._door is not None
        monkeypatch.setattr(node._door, "_session", Spy(node._door._session))
        node.start()
        until(node, all_probed)
        training = len(told)
        node.predict(rogue.asked[0][1])
    assert training > 3
    assert len(told) > training
    assert all(each == told[0] for each in told), told


def test_one_that_lies_to_clients_only_cannot_tell_them(both: tuple[Rogue, Node]) -> None:
    """It lies on questions of round -1, which clients' questions had, and trust did not see it."""
    rogue, node = both
    rogue.lies = lambda message: message.round == -1
    images, labels = load_digits(return_X_y=True)
    x = images[:100].reshape(-1, 8, 8).astype(np.uint8)
    answer = node.predict(x)
    assert set(answer.weights) == {"a", "r"}
    assert np.mean(answer.probabilities.argmax(1) == labels[:100]) > 0.9
