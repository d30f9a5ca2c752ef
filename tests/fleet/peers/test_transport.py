"""Doors between nodes: real sessions over TLS on loopback, some in processes that are killed or frozen."""

import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from ssl import DER_cert_to_PEM_cert
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh
from fleets import frozen, wait_until
from live_peers import Peers, echo

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers.transport import Door, NoAnswerError, QuotaError, RefusedError

LONG = 60.0  # seconds, for what comes soon even on a busy machine


def answers(door: Door, name: str, seconds: float = 2.0, question: bytes = b"x") -> bool:
    with suppress(NoAnswerError):
        return door.ask(name, question, seconds).endswith(question)
    return False


def test_they_see_and_hear_each_other(peers: Peers) -> None:
    a, b, c = (peers.door(name) for name in "abc")
    assert a.wait_for("bc", LONG)
    assert b.wait_for("ac", LONG)
    assert c.wait_for("ab", LONG)
    assert a.ask("b", b"x", LONG) == b"to a: x"
    assert b.ask("c", b"", LONG) == b""
    large = bytes(3 << 20)
    assert c.ask("a", large, LONG) == b"to c: " + large


def test_a_neighbour_that_is_there_and_mute_has_the_door_opened_anew(peers: Peers) -> None:
    """Ever more seldom; and whoever answers is heard as before."""
    a, b = peers.door("a", look_every=0.05, deaf_after=0.1), peers.raw("b")
    peers.door("c")
    b.appear()
    assert a.wait_for("bc", LONG)
    lasted = list[float]()
    for _ in range(4):
        session, begun = a.session, time.monotonic()
        wait_until(lambda session=session: not answers(a, "b", 0.02) and a.session != session)
        lasted.append(time.monotonic() - begun)
        assert a.wait_for("bc", LONG)
        assert answers(a, "c", LONG)
    assert lasted[3] > 0.8
    b.leave()
    session = a.session
    wait_until(lambda: a.session != session)  # its link carries not even a token


def test_a_door_is_not_opened_anew_for_those_who_answer_or_are_away(peers: Peers) -> None:
    """b refuses all that it is asked; c has a link, and was never there."""
    a, b, _ = peers.door("a", look_every=0.5, deaf_after=0.1), peers.raw("b"), peers.raw("c")
    b.answer("a", lambda query: query.reply_err(b"not now"))
    b.appear()
    assert a.wait_for("b", LONG)
    first = a.session
    for _ in range(100):
        with pytest.raises(RefusedError):
            a.ask("b", b"x", LONG)
        assert not answers(a, "c", 0.02)
    assert a.session == first


def test_a_door_is_not_opened_anew_for_those_whose_models_hang(peers: Peers) -> None:
    go_on = threading.Event()
    peers.ends.callback(go_on.set)
    a = peers.door("a", look_every=0.5, deaf_after=0.1)
    peers.door("b", lambda *_: b"x" if go_on.wait(LONG) else b"", workers=1, waiting=1000)
    assert a.wait_for("b", LONG)
    first, until = a.session, time.monotonic() + 3
    while time.monotonic() < until:
        assert not answers(a, "b", 0.05)
    assert a.session == first
    go_on.set()
    wait_until(lambda: answers(a, "b"))


@pytest.mark.parametrize("key", ["the old one", "of a kind that nobody knows"])
def test_a_door_is_not_opened_anew_with_files_that_would_shut_it(
    peers: Peers, tmp_path: Path, key: str
) -> None:
    """Of a new certificate only one half has come, or one that cannot be used."""
    issued = peers.authority.folder / "a"
    own = shutil.copytree(issued, tmp_path / "own")
    a, b = peers.door(peers.place("a", own), look_every=0.05, deaf_after=0.1), peers.raw("b")
    b.appear()
    assert a.wait_for("b", LONG)
    peers.authority.renew("a")
    shutil.copy(issued / "node.pem", own)
    if key != "the old one":
        der = bytes.fromhex("301c020100300d06092a864886f70d010163050004083132333435363738")
        (own / "node.key").write_text(DER_cert_to_PEM_cert(der).replace("CERTIFICATE", "PRIVATE KEY"))
    first, until = a.session, time.monotonic() + 2
    while time.monotonic() < until:
        assert not answers(a, "b", 0.05)
    assert a.session == first
    assert a.present == {"b"}


class TestWhoIsWho:
    def test_a_stranger_gets_nothing(self, peers: Peers, tmp_path: Path) -> None:
        """b has another authority's certificate; c's is good, but a does not count c among its neighbours."""
        other = Authority.open(tmp_path / "other")
        other.issue("b", ["127.0.0.1"])
        a = peers.door(peers.place("a", peers="ab"))
        for stranger in (peers.door(peers.place("b", other.folder / "b")), peers.door("c")):
            with pytest.raises(NoAnswerError):
                stranger.ask("a", b"x", 1)
        assert a.present == set()

    def test_nobody_asks_in_anothers_name(self, peers: Peers) -> None:
        """c has a certificate, and is a neighbour; it asks as b would."""
        askers: list[str] = []
        peers.door("a", lambda asker, _: askers.append(asker) or b"secret")  # type: ignore[func-returns-value]
        liar = peers.raw("c", access_control={"enabled": False}).session

        def ask(name: str, seconds: float) -> list[bytes]:
            replies = liar.get(f"lntrust/a/ask/{name}", payload=b"x", timeout=seconds)
            return [bytes(reply.ok.payload.to_bytes()) for reply in replies if reply.ok]

        wait_until(lambda: ask("c", 5) == [b"secret"])
        assert ask("b", 1) == []
        assert set(askers) == {"c"}

    def test_nobody_answers_in_anothers_name(self, peers: Peers) -> None:
        a, c = peers.door("a"), peers.raw("c", access_control={"enabled": False})
        c.appear()
        assert a.wait_for("c", LONG)
        c.name = "b"
        c.answer("a", lambda query: query.reply(query.key_expr, b"lie"))
        c.appear()
        with pytest.raises(NoAnswerError):
            a.ask("b", b"x", 1)
        assert "b" not in a.present


class TestRefusals:
    def test_a_refusal_has_a_reason(self, peers: Peers) -> None:
        def answer(asker: str, question: bytes) -> bytes:
            if question == b"no":
                raise LNTrustError("not for you")
            raise ZeroDivisionError

        peers.door("a", answer)
        b = peers.door("b")
        assert b.wait_for("a", LONG)
        with pytest.raises(RefusedError, match=r"^not for you$"):
            b.ask("a", b"no", LONG)
        with pytest.raises(RefusedError, match=r"^internal error: ZeroDivisionError$"):
            b.ask("a", b"?", LONG)

    def test_a_full_house_says_busy_and_goes_on(self, peers: Peers) -> None:
        release, said, turned_away = threading.Event(), Counter[str](), list[str]()

        def answer(asker: str, question: bytes) -> bytes:
            assert release.wait(LONG)
            return b"done"

        peers.door("a", answer, workers=1, waiting=1, busy=turned_away.append)
        b = peers.door("b")
        assert b.wait_for("a", LONG)

        def ask() -> None:
            try:
                said[b.ask("a", b"x", LONG).decode()] += 1
            except LNTrustError as error:
                said[str(error)] += 1

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_until(lambda: said.total() == 3)
        assert said == {"busy": 3}
        assert turned_away == ["b"] * 3
        release.set()
        for thread in threads:
            thread.join(LONG)
        assert said == {"busy": 3, "done": 2}
        assert b.ask("a", b"x", LONG) == b"done"

    def test_a_flood_is_ignored_for_a_while_and_then_no_more(self, peers: Peers) -> None:
        """Even to refuse costs time. Who was refused a thousand times gets no answer any more."""

        def answer(asker: str, question: bytes) -> bytes:
            if question == b"flood":
                raise QuotaError("quota: no")
            return question

        b = peers.door("b")
        peers.door("a", answer, look_every=0.1, flood_within=60.0, ignore_floods_for=3.0)
        assert b.wait_for("a", LONG)
        errors: Counter[str] = Counter()

        def flood(_: int) -> None:
            try:
                b.ask("a", b"flood", 2.0)
            except LNTrustError as error:
                errors[type(error).__name__] += 1

        def is_ignored() -> bool:
            with ThreadPoolExecutor(16) as threads:
                list(threads.map(flood, range(64)))
            return errors["NoAnswerError"] > 32

        wait_until(is_ignored, 120)
        assert errors["RefusedError"] > 900
        wait_until(lambda: answers(b, "a"))

    def test_empty_questions_have_a_quota(self, peers: Peers) -> None:
        peers.door("a")
        b = peers.door("b")
        assert b.wait_for("a", LONG)
        for _ in range(100):
            assert b.ask("a", b"", LONG) == b""
        wait_until(lambda: not all(answers(b, "a", 2.0, b"") for _ in range(100)))

    def test_refused_questions_do_not_stay_open(self, peers: Peers) -> None:
        """One that refuses and never ends what it was asked: each would be held for minutes."""
        a, c, held = peers.door("a"), peers.raw("c"), list[Any]()

        def refuse(query: Any) -> None:
            query.reply_err(b"inputs: no")
            held.append(query)  # Zenoh ends a question when it is dropped

        c.answer("a", refuse)
        c.appear()
        assert a.wait_for("c", LONG)
        for _ in range(100):
            with pytest.raises(RefusedError, match="inputs: no"):
                a.ask("c", b"x", LONG)
        wait_until(lambda: len(a.open_questions["c"]) < 20)


class TestComingAndGoing:
    def test_a_killed_neighbour_is_gone_at_once_and_back_when_it_is(self, peers: Peers) -> None:
        a, b = peers.door("a", look_every=0.05), peers.process("b")
        assert a.wait_for("b", LONG)
        assert a.ask("b", b"x", LONG) == b"b to a: x"
        b.kill()
        wait_until(lambda: a.present == set())
        changes = a.changes("b")  # it may have been found in the moment in which Zenoh told of it
        assert not a.wait_for("b", 1.0), "it is looked for in vain"
        assert a.changes("b") == changes
        with pytest.raises(NoAnswerError):
            a.ask("b", b"x", 1)
        peers.process("b")
        assert a.wait_for("b", LONG)
        assert a.ask("b", b"y", LONG) == b"b to a: y"

    def test_a_frozen_neighbour_holds_nobody_up_and_is_back_when_it_thaws(self, peers: Peers) -> None:
        """However much it is asked: its queue fills, questions are dropped, and the others answer."""
        a, b = peers.door("a"), peers.process("b")
        peers.door("c")
        assert a.wait_for("bc", LONG)
        with frozen(b.pid):
            for _ in range(10):
                with pytest.raises(NoAnswerError):
                    a.ask("b", bytes(1 << 20), 0.2)
                assert a.ask("c", b"x", LONG) == b"to a: x"
        wait_until(lambda: answers(a, "b"))
        with frozen(b.pid):
            wait_until(lambda: a.present == {"c"})  # after its lease
        assert a.wait_for("b", LONG)
        wait_until(lambda: answers(a, "b"))

    def test_one_that_zenoh_has_lost_sight_of_is_found_again(self, peers: Peers) -> None:
        """As happens once in some hundred times when it thaws: Zenoh says that it has gone, and no more."""
        a, _ = peers.door("a", look_every=0.1), peers.door("b")
        assert a.wait_for("b", LONG)
        a._presence_changed(SimpleNamespace(key_expr="lntrust/b/alive", kind=zenoh.SampleKind.DELETE))
        assert a.wait_for("b", LONG)
        assert a.changes("b") == 3


def test_a_port_that_is_taken(peers: Peers) -> None:
    peers.door("a")
    with pytest.raises(LNTrustError, match=r"node a: cannot listen on 127\.0\.0\.1:"):
        Door(peers.place("a"), echo)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_more_replies_than_one_are_not_kept(peers: Peers) -> None:
    """b answers every question, and then goes on answering it."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4 >> 10  # MiB, of pages of 4 KiB

    def reply(query: Any) -> None:
        query.reply(str(query.key_expr), b"first")
        for _ in range(200):
            query.reply(str(query.key_expr), bytes(1 << 20))
        query.drop()
        answered.release()

    answered = threading.Semaphore(0)
    a, b = peers.door("a"), peers.raw("b")
    b.answer("a", lambda query: threading.Thread(target=reply, args=(query,), daemon=True).start())
    b.appear()
    assert a.wait_for("b", LONG)
    before = resident()
    for _ in range(2):
        assert a.ask("b", b"x", LONG) == b"first"
        assert answered.acquire(timeout=LONG)
    wait_until(lambda: resident() - before < 150)  # what is on its way counts, too, until it has arrived


def test_a_question_to_a_closed_door_has_no_answer(peers: Peers) -> None:
    """As between two certificates: it is as if the neighbour kept silent, and nothing is stuck."""
    a = peers.door("a")
    a.close()
    begun = time.monotonic()
    with pytest.raises(NoAnswerError, match="no answer within"):
        a.ask("b", b"x", LONG)
    assert time.monotonic() - begun < LONG / 2
    assert not a.open_questions["b"]
