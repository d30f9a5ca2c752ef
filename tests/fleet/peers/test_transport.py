"""Doors between nodes: real sessions over TLS on loopback, some in processes that are killed or frozen."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh
from fleets import free_port, freeze

from lntrust.core.errors import LNTrustError
from lntrust.fleet.operations.certificates import Authority
from lntrust.fleet.peers import transport
from lntrust.fleet.peers.transport import (
    LIMIT,
    Answer,
    Door,
    NoAnswerError,
    Peer,
    Place,
    RefusedError,
    configuration,
)


def echo(asker: str, question: bytes) -> bytes:
    return f"to {asker}: ".encode() + question


def until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Village:
    """Certified nodes a, b and c, who know each other, each with a port."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.open(folder)
        self.ports = {name: free_port() for name in "abc"}
        for name in self.ports:
            self.authority.issue(name, ["127.0.0.1"])
        self._open = ExitStack()

    def place(self, name: str, certificates: Path | None = None, peers: str = "abc") -> Place:
        known = tuple(Peer(n, f"127.0.0.1:{self.ports[n]}") for n in peers if n != name)
        return Place(
            name, f"127.0.0.1:{self.ports[name]}", certificates or self.authority.folder / name, known
        )

    def door(self, name: str, answer: Answer = echo, **options: int) -> Door:
        door = Door(self.place(name), answer, **options)
        self._open.callback(door.close)
        return door

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        peers = [f"{n}={port}" for n, port in self.ports.items() if n != name]
        script = str(Path(__file__).parents[1] / "live_door.py")
        folder = str(self.authority.folder / name)
        command = [sys.executable, script, name, str(self.ports[name]), folder, *peers]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._open.enter_context(child)  # closes its pipes, and waits
        self._open.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def village(tmp_path: Path) -> Iterator[Village]:
    village = Village(tmp_path / "fleet")
    yield village
    village.close()


def test_they_see_and_hear_each_other(village: Village) -> None:
    a, b, c = (village.door(name) for name in "abc")
    for door in (a, b, c):
        until(lambda door=door: len(door.present) == 2)  # type: ignore[misc]
    assert a.ask("b", b"x", 5) == b"to a: x"
    assert b.ask("c", b"", 5) == b"to b: "
    large = bytes(3 << 20)
    assert c.ask("a", large, 10) == b"to c: " + large


class TestWhoIsWho:
    def test_another_authoritys_node_gets_nothing(self, village: Village, tmp_path: Path) -> None:
        a = village.door("a")
        other = Authority.open(tmp_path / "other")
        other.issue("b", ["127.0.0.1"])
        stranger = Door(village.place("b", other.folder / "b"), echo)
        try:
            with pytest.raises(NoAnswerError):
                stranger.ask("a", b"x", 1)
            assert a.present == set()
        finally:
            stranger.close()

    def test_nobody_asks_in_anothers_name(self, village: Village) -> None:
        """c has a certificate, and is a neighbour; it asks as b would."""
        asked: list[str] = []

        def answer(asker: str, question: bytes) -> bytes:
            asked.append(asker)
            return b"secret"

        village.door("a", answer)
        liar = self._liar(village)
        try:
            assert list(liar.get("lntrust/a/ask/b", payload=b"x", timeout=1)) == []
            assert [
                bytes(r.ok.payload.to_bytes())
                for r in liar.get("lntrust/a/ask/c", payload=b"x", timeout=5)
                if r.ok
            ] == [b"secret"]
        finally:
            liar.close()
        assert asked == ["c"]

    def test_nobody_answers_in_anothers_name(self, village: Village) -> None:
        a = village.door("a")
        liar = self._liar(village)
        try:
            lies = liar.declare_queryable(
                "lntrust/b/ask/a", lambda query: query.reply(query.key_expr, b"lie")
            )
            token = liar.liveliness().declare_token("lntrust/b/alive")
            with pytest.raises(NoAnswerError):
                a.ask("b", b"x", 1)
            assert "b" not in a.present
            del lies, token
        finally:
            liar.close()

    def _liar(self, village: Village) -> zenoh.Session:
        """A session with c's certificate whose own access control allows everything."""
        open_to_all = configuration(village.place("c")) | {"access_control": {"enabled": False}}
        return zenoh.open(zenoh.Config.from_json5(json.dumps(open_to_all)))

    def test_who_is_on_no_list_gets_nothing(self, village: Village) -> None:
        """b's certificate is good, but a does not count b among its neighbours."""
        a = Door(village.place("a", peers="ac"), echo)
        b = village.door("b")
        try:
            with pytest.raises(NoAnswerError):
                b.ask("a", b"x", 1)
        finally:
            a.close()


class TestTrouble:
    def test_a_refusal_has_a_reason(self, village: Village) -> None:
        def answer(asker: str, question: bytes) -> bytes:
            if question == b"no":
                raise LNTrustError("not for you")
            raise ZeroDivisionError

        village.door("a", answer)
        b = village.door("b")
        until(lambda: "a" in b.present)
        with pytest.raises(RefusedError, match="a: not for you"):
            b.ask("a", b"no", 5)
        with pytest.raises(RefusedError, match="a: internal error: ZeroDivisionError"):
            b.ask("a", b"?", 5)

    def test_a_full_house_says_busy_and_goes_on(self, village: Village) -> None:
        release = threading.Event()

        def answer(asker: str, question: bytes) -> bytes:
            release.wait(10)
            return b"done"

        village.door("a", answer, workers=1, waiting=1)
        b = village.door("b")
        until(lambda: "a" in b.present)
        said: list[str] = []

        def ask() -> None:
            try:
                said.append(b.ask("a", b"x", 8).decode())
            except LNTrustError as error:
                said.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: len(said) == 3)
        assert said == ["a: busy"] * 3
        release.set()
        for thread in threads:
            thread.join(10)
        assert said[3:] == ["done", "done"]
        assert b.ask("a", b"x", 5) == b"done"

    def test_too_large_is_said_before_it_is_sent(self, village: Village) -> None:
        b = village.door("b")
        with pytest.raises(LNTrustError, match="at most"):
            b.ask("a", bytes(LIMIT + 1), 1)

    def test_a_killed_neighbour_is_gone_at_once_and_back_when_it_is(self, village: Village) -> None:
        a, b = village.door("a"), village.process("b")
        until(lambda: a.present == {"b"})
        assert a.ask("b", b"x", 5) == b"b to a: x"
        b.kill()
        b.wait(10)
        until(lambda: a.present == set(), 5)
        began = time.monotonic()
        with pytest.raises(NoAnswerError):
            a.ask("b", b"x", 1)
        assert time.monotonic() - began < 3
        village.process("b")
        until(lambda: a.present == {"b"})
        assert a.ask("b", b"y", 5) == b"b to a: y"

    def test_a_frozen_neighbour_holds_nobody_up(self, village: Village) -> None:
        """However much it is asked: its queue fills, questions are dropped, and the others answer."""
        a, frozen = village.door("a"), village.process("b")
        village.door("c")
        until(lambda: a.present == {"b", "c"})
        freeze(frozen.pid)
        try:
            for _ in range(10):
                began = time.monotonic()
                with pytest.raises(NoAnswerError):
                    a.ask("b", bytes(1 << 20), 0.2)
                assert time.monotonic() - began < 2
                assert a.ask("c", b"x", 2) == b"to a: x"
        finally:
            os.kill(frozen.pid, signal.SIGCONT)

    def test_a_frozen_neighbour_is_missed_after_its_lease_and_back_when_it_thaws(
        self, village: Village
    ) -> None:
        a, frozen = village.door("a"), village.process("b")
        until(lambda: a.present == {"b"})
        freeze(frozen.pid)
        try:
            until(lambda: a.present == set())
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        until(lambda: a.present == {"b"})
        assert a.ask("b", b"x", 5) == b"b to a: x"

    def test_one_that_zenoh_has_lost_sight_of_is_found_again(self, village: Village) -> None:
        """As happens once in some hundred times when it thaws: told that it has gone, and no more."""
        a, _ = village.door("a"), village.door("b")
        until(lambda: a.present == {"b"})
        a._seen(SimpleNamespace(key_expr="lntrust/b/alive", kind=zenoh.SampleKind.DELETE))
        assert a.present == set()
        until(lambda: a.present == {"b"})
        assert a.appearances("b") == 2

    def test_one_that_has_gone_is_looked_for_in_vain(
        self, village: Village, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transport, "_LOOK_AGAIN", 0.05)
        a, gone = village.door("a"), village.process("b")
        until(lambda: a.present == {"b"})
        gone.kill()
        until(lambda: a.present == set())
        for _ in range(20):
            time.sleep(0.05)
            assert a.present == set()
        assert a.appearances("b") == 1


def test_a_port_that_is_taken(village: Village) -> None:
    village.door("a")
    with pytest.raises(LNTrustError, match=r"node a: cannot listen on 127\.0\.0\.1:"):
        Door(village.place("a"), echo)


class Generous(Door):
    """Answers every question, and then goes on answering it."""

    given = 0  # questions that it has done with

    def _asked(self, query: Any) -> None:
        def replies() -> None:
            query.reply(str(query.key_expr), b"first")
            for _ in range(200):
                query.reply(str(query.key_expr), bytes(1 << 20))
            query.drop()
            self.given += 1

        threading.Thread(target=replies, daemon=True).start()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_more_replies_than_one_are_not_kept(village: Village) -> None:
    def held() -> int:
        (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(kilobytes) >> 10

    a, generous = village.door("a"), Generous(village.place("b"), echo)
    try:
        until(lambda: a.present == {"b"})
        before, kept = held(), []
        for _ in range(2):
            kept.append(a.begin("b", b"x", 5.0))
            assert kept[-1].result() == b"first"
            until(lambda: generous.given == len(kept), 60)
        until(lambda: held() - before < 150)  # what is on its way counts, too, until it has arrived
    finally:
        generous.close()


def test_a_question_while_the_door_is_shut_has_no_answer(village: Village) -> None:
    """As between two certificates: who asks is told as of anybody who keeps silent, and nothing is stuck."""
    a = village.door("a")
    a._session.close()
    pending = a.begin("b", b"x", 0.2)
    with pytest.raises(NoAnswerError, match="no answer within"):
        pending.result()
    assert a._open["b"] == 0
