"""Neighbours with a good certificate and bad manners, before real nodes.

Nodes a (which trains), t (which learns whom to trust), s (which stands: its training is over, and it looks
around seldom) and o (whose owner shows nobody anything) have a neighbour r that does what a test wants.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from fleets import DEPLOYED, LEARNED, Clients, Fleet, digits, probed, without
from rogue import Rogue

from lntrust.core.errors import LNTrustError

PATIENT = 5.0  # seconds that s has for a client: on a busy machine others may take long
STANDS = {**DEPLOYED, "life": {"refresh_every": 600.0}, "limits": {"deadline": PATIENT}}
SHOWS_NOTHING = {"data": {"probe_with": "none", "shard": "none", "deployed": False}}
QUOTA = {"rate": 500.0, "burst": 1000.0, "workers": 1, "waiting": 4}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("rogues")
    own = {"a": {"limits": QUOTA}, "t": LEARNED, "s": STANDS, "o": SHOWS_NOTHING}
    with Fleet.of(root, "atsor", own) as fleet:
        fleet.start("a", "t", "s", "o")
        yield fleet


@pytest.fixture
def rogue(fleet: Fleet) -> Iterator[Rogue]:
    """Honest at first, and trusted for it."""
    with Rogue(fleet.place("r"), fleet.members["r"].settings) as rogue:
        fleet.until("a", probed("r"))
        yield rogue


@pytest.fixture
def s_anew(fleet: Fleet, rogue: Rogue) -> None:
    """s looks at one that gives cause again and again ever more seldom, and in other tests r does."""
    fleet.end("s")
    fleet.start("s")
    fleet.until("s", probed("r", "a", "t", "o"))


@pytest.mark.parametrize(
    ("mode", "counted", "refused"),
    [
        ("slow", "silent", ""), ("garbage", "malformed", ""), ("nan", "unsound", ""), ("huge", "silent", ""),
        ("just too large", "malformed", ""), ("garbage hello", "mismatch", "not safetensors"),
        ("permuted hello", "mismatch", "classes are in another order: class 0 is '0' here and '9' there"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_used_count_for_nothing(
    fleet: Fleet, rogue: Rogue, mode: str, counted: str, refused: str
) -> None:
    """And one that means something else is not asked."""
    before = fleet.status("a")["failures"].get(counted, 0)
    rogue.mode = mode
    with Clients(fleet, "a") as clients:
        status = fleet.until("a", without("r"))
        assert refused in (status["neighbours"]["r"]["refused"] or "")
        rogue.asked.clear()
        fleet.trains("a", 5 if refused else 2)
    assert fleet.status("a")["failures"][counted] > before
    assert "r" not in clients.answers[-1].weights
    assert not refused or "a" not in {asker for asker, _ in rogue.asked}
    rogue.mode = "honest"
    fleet.until("a", probed("r"))
    fleet.wait(lambda: fleet.weight("a", "r") > 0)
    assert fleet.status("a")["neighbours"]["r"]["refused"] is None


def test_one_that_always_says_the_same_is_sound_but_not_trusted(fleet: Fleet, rogue: Rogue) -> None:
    fleet.until("t", lambda status: status["trust"]["r"] > 0.3)  # as it deserves, while it is honest
    rogue.mode = "constant"
    # A busy machine may cost it a probe; what counts is the one that it answers.
    status = fleet.until("t", lambda status: probed("r")(status) and status["trust"]["r"] < 0.1)
    assert status["neighbours"]["r"]["state"] == "closed"
    assert sum(weight for name, weight in status["trust"].items() if name != "r") > 0.9
    fleet.trains("t")


@pytest.mark.usefixtures("s_anew")
def test_one_that_greets_slowly_costs_nobody_elses_answers(fleet: Fleet, rogue: Rogue) -> None:
    rogue.door.close()
    fleet.wait(lambda: fleet.weight("s", "r") == 0)
    with Rogue(fleet.place("r"), fleet.members["r"].settings, "slow hello"):
        fleet.until("s", lambda status: status["neighbours"]["r"]["present"])
        answers = [set(fleet.ask("s").weights) for _ in range(8)]
        assert answers.count({"s", "a", "t", "o"}) >= 6, answers
        assert fleet.status("s")["neighbours"]["a"]["state"] == "closed"
        fleet.wait(lambda: fleet.ask("s").took < PATIENT / 4)  # left alone, it costs time now and then only


@pytest.mark.usefixtures("s_anew")  # and has nobody left to probe while a is flooded
def test_a_flood_drowns_nobody(fleet: Fleet, rogue: Rogue) -> None:
    """r asks a without end. a's clients are served, and so is s, another neighbour of a's."""
    x = digits(0)[0]["x"][:100]
    rogue.greet("a")
    before, began = fleet.status("a")["refusals"].get("quota", 0), time.monotonic()
    with ThreadPoolExecutor(1) as thread, Clients(fleet, "a") as clients, Clients(fleet, "s") as others:
        flood = thread.submit(rogue.flood, "a", x, 4.0)
        fleet.trains("a", 3)
        answered, refusals = flood.result(90)
    assert answered <= 10 + 5 * (time.monotonic() - began)  # the burst, and what the rate allows meanwhile
    assert any("quota: 100 examples" in reason for reason in refusals), refusals
    status = fleet.status("a")
    assert status["refusals"]["quota"] > before
    assert status["refusals"]["busy"] > 0  # and was not even looked at
    assert len(clients.answers) > 2
    replied = np.mean(["a" in answer.weights for answer in others.answers])
    assert replied > 0.7, (replied, [each.silent for each in others.answers][-3:])

    def is_answered_again() -> bool:
        with suppress(LNTrustError):
            return "classes" in rogue.greet("a", 2.0)
        return False

    fleet.wait(is_answered_again)


def test_an_owner_who_says_no_is_obeyed(fleet: Fleet, rogue: Rogue) -> None:
    """Not one input of o's leaves it, neither its data nor its clients'; it still answers others."""
    alone = fleet.ask("o")
    assert alone.weights == {"o": 1.0}
    fleet.trains("o", 5)
    assert rogue.greet("o")["classes"] == [str(c) for c in range(10)]
    x = digits(0)[0]["x"][:5]
    np.testing.assert_allclose(rogue.ask("o", x).sum(1), 1, atol=1e-3)
    fleet.wait(lambda: "a" in {asker for asker, _ in rogue.asked})  # as one that may
    assert "o" not in {asker for asker, _ in rogue.asked}
    status = fleet.status("o")
    assert status["queries"]["out"] == {}
    assert status["bytes"]["out"]["query"] == 0
