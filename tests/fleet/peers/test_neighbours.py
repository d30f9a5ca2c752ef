"""Asking neighbours: a slow one keeps nobody waiting, one that fails is left alone, manners are borne."""

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import small_nodes
from fleets import frozen, wait_until
from live_peers import MakeAsking, is_hello
from small_servers import OURS, Server, Street, good, hang

from lntrust.core.errors import LNTrustError
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers import neighbours as peers
from lntrust.fleet.peers.limits import State
from lntrust.fleet.peers.neighbours import Neighbours
from lntrust.fleet.peers.traffic import TrafficCounters
from lntrust.fleet.peers.transport import Answer
from lntrust.network.codec import encode

SHAPE = (1000, 1000)  # float32: one input fits into a message, and no second
X = np.zeros((8, 4), np.float32)
LONG = 60.0  # seconds, for what comes soon even on a busy machine
SHORT = 0.5  # seconds for one that will not answer


def ask(neighbours: Neighbours, name: str, timeout: float = LONG, retries: int = 0) -> str:
    """Whether it replied, or why not."""
    replies, failed = neighbours.ask([name], X, "deploy", timeout=timeout, retries=retries)
    return "replied" if name in replies else failed[name].kind


def refuse(answers: dict[str, Answer], name: str, reason: str, after: float = 0.0) -> None:
    """From now on it refuses every question, and answers hellos."""
    handler = answers[name]

    def answer(asker: str, data: bytes) -> bytes:
        if is_hello(data):
            return handler(asker, data)
        threading.Event().wait(after)
        raise LNTrustError(reason)

    answers[name] = answer


def test_one_that_hangs_costs_the_others_nothing_however_much_is_asked(asking: MakeAsking) -> None:
    """Three messages to each: the first one of the hung neighbour takes all the time that there is."""
    kit = asking(SHAPE, good={}, hung={})
    kit.hang("hung")
    x = np.zeros((3, *SHAPE), np.float32)
    replies, failed = kit.neighbours.ask(["good", "hung"], x, "deploy", timeout=12)
    assert replies["good"].probabilities.shape == (3, 2)
    assert failed["hung"].kind == "silent"


def test_full_queues_to_many_that_are_frozen_take_no_time_from_others(asking: MakeAsking) -> None:
    """To hand over a question to one of them takes a quarter of a second: eight in turn would take two."""
    many = [f"frozen-{k}" for k in range(8)]
    kit = asking((1000, 700), limits={"failures": 1000, "pause": 0.1}, good={}, **dict.fromkeys(many))
    processes = [kit.process(name) for name in many]
    assert kit.me.wait_for([*many, "good"], LONG)
    for name in many:
        kit.neighbours.members[name].greeted = 1000  # they echo only
    x = np.zeros((1, 1000, 700), np.float32)
    assert kit.neighbours.ask(["good"], x, "deploy", timeout=LONG)[1] == {}
    with ExitStack() as ends:
        for process in processes:
            ends.enter_context(frozen(process.pid))
        kit.neighbours.ask(many, x, "deploy", timeout=1.0)  # fills the queues

        def is_asked() -> bool:  # on a busy machine not at once
            before = kit.traffic.counted("queries out")["good"]
            kit.neighbours.ask([*many, "good"], x, "deploy", timeout=1.0)
            return kit.traffic.counted("queries out")["good"] == before + 1

        wait_until(is_asked)


def test_one_that_no_time_is_left_for_is_not_blamed(asking: MakeAsking) -> None:
    kit = asking(good={})
    assert [ask(kit.neighbours, "good", 0.0) for _ in range(5)] == ["queue"] * 5
    assert ask(kit.neighbours, "good") == "replied"


def test_no_more_is_asked_at_once_than_a_neighbour_takes(asking: MakeAsking) -> None:
    """And one that takes a single input makes no storm of messages."""
    kit = asking(small={"burst": 10, "rate": 1000}, tiny={"burst": 1, "rate": 1e6})
    x, both = np.zeros((179, 4), np.float32), ["small", "tiny"]
    assert set(kit.neighbours.ask(both, x[:1], "deploy", timeout=LONG)[0]) == set(both)  # they meet
    replies, failed = kit.neighbours.ask(["small"], x[:25], "distil", timeout=LONG, retries=2)
    assert failed == {}
    assert replies["small"].probabilities.shape == (25, 2)
    before = kit.traffic.counted("queries out")["tiny"]
    failure = kit.neighbours.ask(["tiny"], x, "probe", timeout=LONG)[1]["tiny"]
    assert failure.kind == "few"
    assert "takes 1 inputs at once: 179 messages for 179; at most 32" in failure.text
    assert kit.traffic.counted("queries out")["tiny"] == before
    assert set(kit.neighbours.ask(both, x[:1], "deploy", timeout=LONG, retries=2)[0]) == set(both), (
        "it is well"
    )


def test_one_that_has_forgotten_us_is_greeted_and_asked_again(asking: MakeAsking) -> None:
    """As after a restart that was too quick to be noticed."""
    kit = asking(good={})
    assert ask(kit.neighbours, "good") == "replied"
    stranger = encode(wire.hello({**wire.facts(OURS, 1, 0)}))
    with pytest.raises(LNTrustError):
        kit.answers["good"]("me", stranger)
    assert ask(kit.neighbours, "good") == "replied"
    assert kit.traffic.counted("retries") == {"good": 1}


# -- retries --------------------------------------------------------------------------------------


def test_one_that_is_busy_is_asked_again(asking: MakeAsking) -> None:
    kit = asking(good={})
    assert ask(kit.neighbours, "good") == "replied"
    handler, refusals = kit.answers["good"], iter(["busy", "busy"])

    def at_first_busy(asker: str, data: bytes) -> bytes:
        for reason in refusals:
            raise LNTrustError(reason)
        return handler(asker, data)

    kit.answers["good"] = at_first_busy
    assert ask(kit.neighbours, "good") == "busy", "a client's question is asked once"
    assert ask(kit.neighbours, "good", retries=2) == "replied"
    assert kit.traffic.counted("retries") == {"good": 1}
    assert {phase for phase, _, _ in kit.traffic.ledger} == {"hello", "deploy", "retry"}


def test_one_that_had_enough_of_us_is_well(asking: MakeAsking) -> None:
    """A client's question is answered without it; it is not left alone for that."""
    kit = asking(limits={"failures": 1}, strict={"burst": 8, "rate": 0.001})
    assert ask(kit.neighbours, "strict") == "replied"
    assert ask(kit.neighbours, "strict", retries=3) == "quota"
    assert kit.traffic.counted("retries") == {}, "to wait for it would take hours"
    assert kit.state("strict") is State.CLOSED


def test_one_that_says_nothing_but_later_is_waited_for_no_more(asking: MakeAsking) -> None:
    kit = asking(limits={"failures": 2, "pause": 600}, later={})
    refuse(kit.answers, "later", "quota: 8 examples can be asked about in 0.3 s")
    kinds = [ask(kit.neighbours, "later", retries=1) for _ in range(5)]
    assert kinds == ["quota", "put off", "put off", "breaker", "breaker"]
    assert kit.state("later") is State.OPEN
    assert kit.traffic.counted("retries") == {"later": 1}, "it was waited for once"


def test_one_that_says_later_first_costs_no_more_than_the_patience_for_it(asking: MakeAsking) -> None:
    """It replies to whoever asks again, every time; that is no reason to wait at every question."""
    kit = asking(limits={"patience": 1.0}, later={})
    handler, questions = kit.answers["later"], Counter[str]()

    def later(asker: str, data: bytes) -> bytes:
        questions["all"] += not is_hello(data)
        if questions["all"] % 2:
            raise LNTrustError("quota: 8 examples can be asked about in 0.8 s")
        return handler(asker, data)

    kit.neighbours.meet(LONG)
    kit.answers["later"] = later
    assert ask(kit.neighbours, "later", retries=1) == "replied"
    assert ask(kit.neighbours, "later", retries=1) == "quota", "a second of waiting is nearly spent"
    assert kit.traffic.counted("retries") == {"later": 1}


# -- the breaker ----------------------------------------------------------------------------------


def test_one_that_comes_and_goes_is_left_alone_all_the_same(asking: MakeAsking) -> None:
    kit = asking(limits={"failures": 3, "pause": 600}, hung=None)
    hung, kinds = kit.raw("hung"), Counter[str]()
    facts = wire.facts(kit.settings("hung").input, 1, 1)

    def greet_only(query: Any) -> None:
        if is_hello(bytes(query.payload.to_bytes())):
            query.reply(str(query.key_expr), encode(wire.hello(facts, "reply")))
        query.drop()

    hung.answer("me", greet_only)
    for _ in range(8):
        hung.appear()
        assert kit.me.wait_for(["hung"], LONG)
        kinds[ask(kit.neighbours, "hung", 4)] += 1
        hung.leave()
        wait_until(lambda: not kit.me.present)
    assert kinds == {"silent": 4, "breaker": 4}, "three failures, and one try because it came anew"


def test_one_that_comes_back_well_is_asked_at_once(asking: MakeAsking) -> None:
    kit = asking(limits={"failures": 1, "pause": 600}, hung={})
    go_on = kit.hang("hung")
    assert ask(kit.neighbours, "hung", 4) == "silent"
    go_on.set()
    assert ask(kit.neighbours, "hung") == "breaker"
    kit.reopen("hung")
    assert ask(kit.neighbours, "hung") == "replied"
    assert kit.state("hung") is State.CLOSED


def test_to_refuse_inputs_is_no_failure_unless_it_takes_long(asking: MakeAsking) -> None:
    kit = asking(limits={"failures": 1, "pause": 600}, picky={})
    kit.neighbours.meet(LONG)
    refuse(kit.answers, "picky", "inputs: this node's model fails on them")
    assert [ask(kit.neighbours, "picky") for _ in range(2)] == ["input"] * 2
    refuse(kit.answers, "picky", "inputs: this node's model fails on them", after=6.1)
    assert ask(kit.neighbours, "picky", 8.0) == "refused"
    assert kit.state("picky") is State.OPEN


def test_to_refuse_inputs_takes_no_failure_back(asking: MakeAsking) -> None:
    """One that says so now and then would never be left alone, whatever else it does."""
    kit = asking(limits={"failures": 2, "pause": 600}, sly={})
    kit.neighbours.meet(LONG)
    refuse(kit.answers, "sly", "inputs: no")
    go_on = kit.hang("sly")
    assert ask(kit.neighbours, "sly", SHORT) == "silent"
    go_on.set()
    assert ask(kit.neighbours, "sly") == "input"
    kit.hang("sly")
    assert ask(kit.neighbours, "sly", SHORT) == "silent"
    assert kit.state("sly") is State.OPEN


# -- greeting -------------------------------------------------------------------------------------


def test_one_that_ignores_hellos_is_greeted_seldom(asking: MakeAsking) -> None:
    kit, hellos, over = asking(mute={}), list[bytes](), threading.Event()
    kit.ends.callback(over.set)

    def ignore(asker: str, data: bytes) -> bytes:
        hellos.append(data)
        over.wait(LONG)
        return b""

    kit.answers["mute"] = ignore
    for _ in range(3):
        kit.neighbours.meet(timeout=SHORT, only_new=True)
        kit.neighbours.meet(timeout=SHORT)
    wait_until(lambda: len(hellos) == 1)
    kit.reopen("mute")
    kit.neighbours.meet(timeout=SHORT)
    wait_until(lambda: len(hellos) == 2)


def test_a_hello_too_much_makes_no_stranger(asking: MakeAsking) -> None:
    """One whose hellos are refused for their number was met before, and is asked as ever."""
    kit = asking(good={})
    for _ in range(150):
        kit.neighbours.meet(LONG)
    assert kit.neighbours.members["good"].refused is None
    assert ask(kit.neighbours, "good") == "replied"


def test_one_that_refuses_our_hello_is_not_asked(asking: MakeAsking) -> None:
    kit = asking(other={})

    def refuse_all(asker: str, data: bytes) -> bytes:
        raise LNTrustError("classes are others there")

    kit.answers["other"] = refuse_all
    assert ask(kit.neighbours, "other") == "mismatch"
    assert kit.neighbours.members["other"].refused == "other says: classes are others there"
    assert kit.state("other") is State.CLOSED


# -- servers --------------------------------------------------------------------------------------


def asking_servers(**servers: Server) -> tuple[Neighbours, TrafficCounters]:
    traffic, known = TrafficCounters(list(servers)), [{"name": n, "url": s.url} for n, s in servers.items()]
    mine = small_nodes.settings(name="me", input=OURS.model_dump(), neighbours=known)
    return Neighbours(mine, traffic, None, dict), traffic


def test_a_server_is_asked_beside_the_nodes_and_its_bytes_count(street: Street) -> None:
    them, slow = street.server(good), street.server(hang)
    neighbours, traffic = asking_servers(them=them, slow=slow)
    x = np.ones((4, 2, 3), np.float32)
    assert neighbours.present == {"them", "slow"}
    replies, failed = neighbours.ask(["them", "slow"], x, "deploy", timeout=3)
    neighbours.close()
    assert replies["them"].probabilities.shape == (4, 3)
    assert failed["slow"].kind == "silent"
    assert traffic.bytes_by_kind()["out"]["query"] == x.nbytes
    assert sum(traffic.bytes_by_kind()["out"].values()) == len(them.seen[-1][2])


def test_what_is_never_sent_says_nothing_of_the_server(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because questions wait for each other, or the node is closing."""
    monkeypatch.setattr(peers, "_THREADS", 1)
    slow = street.server(hang)
    neighbours, traffic = asking_servers(slow=slow)
    x = np.ones((4, 2, 3), np.float32)

    def ask_slow(timeout: float) -> str:
        return neighbours.ask(["slow"], x, "deploy", timeout=timeout)[1]["slow"].kind

    with ThreadPoolExecutor(8) as many:
        first = many.submit(ask_slow, 4.0)
        wait_until(lambda: len(slow.seen) > 0)
        others = [many.submit(ask_slow, SHORT) for _ in range(7)]
        assert [other.result() for other in others] == ["queue"] * 7
        assert first.result() == "silent"
    assert traffic.counted("queries out") == {"slow": 1}
    assert neighbours.members["slow"].breaker.state(time.monotonic()) is State.CLOSED
    neighbours.close()
    assert ask_slow(LONG) == "queue"


# -- one name, two nodes --------------------------------------------------------------------------


def test_a_second_one_of_a_name_is_noticed(asking: MakeAsking, caplog: pytest.LogCaptureFixture) -> None:
    """Both have a certificate, or the same key; one that was started again is no second."""
    caplog.set_level(logging.INFO, "lntrust.fleet")
    kit = asking(b={})
    for _ in range(2):
        for _ in range(2):
            assert ask(kit.neighbours, "b") == "replied"
        kit.reopen("b")
    assert kit.neighbours.instances("b") == 1
    place = replace(kit.place("b"), listen="127.0.0.1:0")
    kit.door(place, lambda *question: kit.answers["b"](*question))

    def both_are_heard() -> bool:
        ask(kit.neighbours, "b")
        return kit.neighbours.instances("b") == 2

    wait_until(both_are_heard)
    assert "one name, several nodes" in caplog.messages
