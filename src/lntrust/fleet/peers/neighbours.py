"""Those whom a live node may ask: who is there, who fits, who is worth asking just now.

Every question has a deadline, and neighbours are asked side by side: one that hangs costs the time that was
granted, and nobody else anything. After some failures in a row it is left alone for a while.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.inference_server import Foreign
from lntrust.fleet.peers.limits import Breaker, Quota, State
from lntrust.fleet.peers.neighbour import Failure, Heard, Neighbour, refused
from lntrust.fleet.peers.query_handler import HELLO_FIRST
from lntrust.fleet.peers.traffic import HELLO, RETRY, TrafficCounters, size_of
from lntrust.fleet.peers.transport import Door, NoAnswerError, Pending, RefusedError
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import Message, Size, encode
from lntrust.network.encodings import ReplyEncoding

_BACKOFF = 0.05  # seconds before the first retry; doubles
_HELLO_PATIENCE = 2.0
_KNOCK = 1.0  # seconds that a server has to say that it is ready
_HELLO_SHARE = 0.25  # of the time for a question
_MINUTE = 60.0  # in which one neighbour's quota is waited for as long as `limits.patience`, and no longer
_AGAIN = ("busy", "silent", "quota")  # failures after which it is worth to ask again


class _Question(NamedTuple):
    message: Message
    data: bytes
    beside: bytes | None  # its round, in lockstep


class Neighbours:
    """A node's neighbours, by name."""

    def __init__(
        self,
        settings: NodeSettings,
        books: TrafficCounters,
        door: Door | None,
        facts: Callable[[], dict[str, Any]],
    ) -> None:
        self._settings, self._books, self._door, self._facts = settings, books, door, facts
        limits = settings.limits
        self.members = {
            each.name: Neighbour(
                each,
                Breaker(limits.failures, limits.pause),
                Quota(limits.patience / _MINUTE, limits.patience),
                Foreign(each, settings.input) if each.url else None,
            )
            for each in settings.neighbours
        }
        self._at_once = wire.at_once(settings.input)
        self._form = ReplyEncoding(settings.trust.reply)  # in which nodes shall answer; servers know one only
        self._lockstep = settings.network.clock == "lockstep"
        self._seldom = Seldom()
        foreign = sum(each.foreign is not None for each in self.members.values())
        self._pool = ThreadPoolExecutor(max(1, 4 * foreign), thread_name_prefix="foreign")
        self._lanes = ThreadPoolExecutor(max(1, 4 * len(self.members)), thread_name_prefix="lane")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._lanes.shutdown(wait=False, cancel_futures=True)
        for each in self.members.values():
            if each.foreign is not None:
                each.foreign.close()

    # -- who --------------------------------------------------------------------------------------

    @property
    def present(self) -> set[str]:
        """Who is there, as far as can be told; of a server nothing can be."""
        here = set() if self._door is None else self._door.present
        return here | {name for name, each in self.members.items() if each.foreign is not None}

    def somebody(self) -> bool:
        """Whether a node is there, or a server is ready: unlike `present`, this asks the servers."""
        if self._door is not None and self._door.present:
            return True
        servers = [each.foreign for each in self.members.values() if each.foreign is not None]
        return any(list(self._pool.map(lambda server: server.ready(_KNOCK), servers)))

    def appearances(self, name: str) -> int:
        return 0 if self._door is None else self._door.appearances(name)

    def instances(self, name: str) -> int:
        """How many nodes speak under this name; more than 1 is one too many."""
        return 0 if self._door is None else self._door.doubles.count(name)

    def chosen(self) -> list[str]:
        """Whom to ask: all, or the fastest of those that are present and fit."""
        if self._settings.network.choose == "listed":
            return list(self.members)
        fit = [n for n in self.members if n in self.present and self.members[n].refused is None]
        fit.sort(key=lambda name: self.members[name].round_trip or float("inf"))
        fastest = set(fit[: self._settings.network.fastest])
        return [name for name in self.members if name in fastest]

    def states(self) -> dict[str, State]:
        now = time.monotonic()
        return {name: each.breaker.state(now) for name, each in self.members.items()}

    def wait_for_all(self, seconds: float) -> None:
        """In lockstep nobody may be missed: wait until everybody is there, or the time is over."""
        deadline = time.monotonic() + seconds
        while len(self.present) < len(self.members) and time.monotonic() < deadline:
            time.sleep(0.01)

    # -- meeting ----------------------------------------------------------------------------------

    def greet(self, names: Sequence[str], timeout: float) -> None:
        """Say hello to these nodes, side by side: do both mean the same by an input, and by a class?"""
        assert self._door is not None or not names
        mine = self._facts()
        message = wire.hello(mine)
        data = encode(message)
        begun: list[tuple[str, int, float, Pending]] = []
        for name in names:
            assert self._door is not None
            appearance, now = self._door.appearances(name), time.monotonic()
            self._books.count("queries out", name)
            self._books.sent(name, HELLO, "query", size_of(message, data))
            begun.append((name, appearance, now, self._door.begin(name, data, timeout)))
        for name, appearance, since, pending in begun:
            try:
                self._met(name, appearance, since, pending.result(), mine)
            except RefusedError as error:
                reason = str(error).removeprefix(f"{name}: ")
                if refused(reason).kind == "refused":
                    self.members[name].greeted = max(1, appearance)
                    self._note(name, f"{name} says: {reason}")
            except NoAnswerError:  # who asks it something will tell
                self.members[name].mute = (appearance, time.monotonic())

    def _met(self, name: str, appearance: int, since: float, data: bytes, mine: dict[str, Any]) -> None:
        each = self.members[name]
        each.greeted = max(1, appearance)
        try:
            message = wire.read(data)
            theirs = wire.told(message)
        except LNTrustError as error:
            self._note(name, str(error))
            return
        self._books.received(name, HELLO, "reply", size_of(message, data))
        self._note(name, wire.mismatch(mine, theirs))
        if each.refused is not None:
            return
        took = time.monotonic() - since
        each.round_trip = took if each.round_trip is None else 0.7 * each.round_trip + 0.3 * took
        each.degree, each.most = wire.degree_of(theirs), wire.most_of(theirs)
        each.version, each.heard_at = message.version, time.monotonic()

    def _note(self, name: str, refused: str | None) -> None:
        """Whether it fits; told once."""
        each = self.members[name]
        if refused is not None and refused != each.refused:
            self._seldom.event("neighbour does not fit", neighbour=name, reason=refused)
        each.refused = refused

    def meet(self, timeout: float = _HELLO_PATIENCE, only_new: bool = False) -> None:
        """Greet every node that is present, also those that did not fit: they may have changed.

        One that has just kept silent is passed over for a while; `ask` greets it, if it is new.
        """
        here, now = self.present, time.monotonic()
        nodes = [n for n, each in self.members.items() if n in here and each.foreign is None]
        heed = [n for n in nodes if not self.members[n].is_mute(self.appearances(n), now)]
        self.greet([n for n in heed if not only_new or self._is_new(n)], timeout)

    def _is_new(self, name: str) -> bool:
        """Whether we have not met since it came, or never."""
        each = self.members[name]
        return each.foreign is None and each.greeted < max(1, self.appearances(name))

    def _admits(self, name: str) -> bool:
        """Whether it may be tried. One that has come anew may be well again."""
        each, appearance, now = self.members[name], self.appearances(name), time.monotonic()
        if appearance > each.seen:
            each.seen = appearance
            each.breaker.appeared(now)
        return each.breaker.admits(now)

    def _greet_new(self, names: Sequence[str], deadline: float) -> set[str]:
        """Greet whom we have not met since it came, or never; returns who did not answer.

        That takes a part of the time only: those whom we know are still to be asked.
        """
        new = [name for name in names if self._door is not None and self._is_new(name)]
        if not new:
            return set()
        self.greet(new, max(0.01, min(_HELLO_PATIENCE, _HELLO_SHARE * (deadline - time.monotonic()))))
        return {n for n in new if self.members[n].greeted < max(1, self.members[n].seen)}

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        names: Sequence[str],
        x: Shaped[ndarray, "m *s"],
        phase: str,
        *,
        timeout: float,
        round_: int = wire.NOW,
        retries: int = 0,
    ) -> tuple[dict[str, Heard], dict[str, Failure]]:
        """What these say about inputs, side by side and within the time; and why others did not."""
        deadline = time.monotonic() + timeout
        failed: dict[str, Failure] = {}
        here = self.present
        if self._lockstep and len(here) < len(self.members):
            self.wait_for_all(timeout)
            here = self.present
        admitted = []
        for name in names:
            if name not in here:
                failed[name] = Failure("absent", "not there")
            elif not self._admits(name):
                failed[name] = Failure("breaker", "left alone after failures")
            else:
                admitted.append(name)
        silent = self._greet_new(admitted, deadline)
        asked = []
        for name in admitted:
            each = self.members[name]
            if name in silent:
                failed[name] = Failure("silent", "no answer to a hello")
                each.breaker.failed(time.monotonic())
            elif each.refused is not None:
                failed[name] = Failure("mismatch", each.refused)
                each.breaker.succeeded()  # it is well, but another
            else:
                asked.append(name)
        for name in asked:
            if (few := self.members[name].takes_too_few(len(x), self._at_once)) is not None:
                failed[name] = few
                self.members[name].breaker.not_asked()
                self._seldom.event("neighbour takes too few", neighbour=name, reason=few.text)
        asked = [name for name in asked if name not in failed]
        heard = self._ask_in_pieces(asked, x, phase, deadline, round_, retries, failed)
        self._tell_doubles(asked)
        for failure in failed.values():
            self._books.count("failures", failure.kind)
        return heard, failed

    def _tell_doubles(self, names: Sequence[str]) -> None:
        for name in names:
            if (count := self.instances(name)) > 1:
                note = "a second certificate, or a copied key: look who has it"
                self._seldom.event("one name, several nodes", neighbour=name, count=count, note=note)

    def _ask_in_pieces(
        self,
        names: list[str],
        x: Shaped[ndarray, "m *s"],
        phase: str,
        deadline: float,
        round_: int,
        retries: int,
        failed: dict[str, Failure],
    ) -> dict[str, Heard]:
        """In one message, if it holds all; else each has a lane, and a slow one keeps nobody waiting."""
        how = (phase, deadline, round_, retries)
        if all(len(x) <= min(self._at_once, self.members[name].most) for name in names):
            heard, missed = self._ask_once(names, x, *how)
        else:
            lanes = {name: self._lanes.submit(self._lane, name, x, *how) for name in names}
            said = {name: lane.result() for name, lane in lanes.items()}
            heard = {name: reply for name, reply in said.items() if isinstance(reply, Heard)}
            missed = {name: reply for name, reply in said.items() if isinstance(reply, Failure)}
        failed |= missed
        now = time.monotonic()
        for name in names:
            breaker = self.members[name].breaker
            if name in heard or missed[name].kind == "quota":
                breaker.succeeded()
            elif missed[name].kind == "input":
                breaker.not_asked()  # nobody could have answered: that says nothing for it, or against
            else:
                breaker.failed(now)
        return heard

    def _lane(
        self, name: str, x: Shaped[ndarray, "m *s"], phase: str, deadline: float, round_: int, retries: int
    ) -> Heard | Failure:
        """One neighbour, message after message; if one fails, the rest is not asked."""
        size, parts = min(self._at_once, self.members[name].most), list[Heard]()
        for start in range(0, len(x), size):
            got, missed = self._ask_once([name], x[start : start + size], phase, deadline, round_, retries)
            if name in missed:
                return missed[name]
            parts.append(got[name])
        return Heard(np.concatenate([part.probabilities for part in parts]), parts[-1].version)

    def _ask_once(
        self, names: list[str], x: ndarray, phase: str, deadline: float, round_: int, retries: int
    ) -> tuple[dict[str, Heard], dict[str, Failure]]:
        """One message to each, and again to those who were busy, silent or had enough, after a while."""
        message = wire.question(x, wire.NO_ROUND, self._form)
        question = _Question(message, encode(message), wire.beside(round_) if self._lockstep else None)
        got: dict[str, Heard] = {}
        missed: dict[str, Failure] = {}
        waiting = names
        for attempt in range(retries + 1):
            timeout = (deadline - time.monotonic()) / (retries + 1 - attempt)
            if timeout <= 0:
                missed |= {name: Failure("silent", "no time left") for name in waiting if name not in missed}
                break
            for name in waiting if attempt else []:
                self._books.count("retries", name)
            booked = RETRY if attempt else phase
            begun = [(name, self._begin(name, question, booked, timeout)) for name in waiting]
            for name, pending in begun:
                reply = self._collect(name, pending, len(x), booked, deadline, question)
                if isinstance(reply, Heard):
                    got[name] = reply
                    missed.pop(name, None)
                else:
                    missed[name] = reply
            now, left = time.monotonic(), deadline - time.monotonic()
            waiting = [
                n for n in waiting
                if n in missed and missed[n].kind in _AGAIN and missed[n].wait < left
                and self.members[n].waits.take(missed[n].wait, now) == 0
            ]  # fmt: skip
            if not waiting or attempt == retries:
                break
            pause = _BACKOFF * 2**attempt * (0.5 + random.random())  # not all at the same moment again
            time.sleep(max(0.0, min(max(pause, *(missed[n].wait for n in waiting)), left)))
        return got, missed

    def _begin(self, name: str, question: _Question, phase: str, timeout: float) -> "Pending | Future[Any]":
        self._books.count("queries out", name)
        each = self.members[name]
        if each.foreign is not None:
            return self._pool.submit(each.foreign.ask, question.message.tensors[wire.INPUTS], timeout)
        assert self._door is not None
        self._books.sent(name, phase, "query", size_of(question.message, question.data))
        return self._door.begin(name, question.data, timeout, question.beside)

    def _collect(
        self,
        name: str,
        pending: "Pending | Future[Any]",
        m: int,
        phase: str,
        deadline: float,
        again: _Question | None,
    ) -> Heard | Failure:
        """The reply, checked. A node that has forgotten us is greeted, and asked again at once."""
        try:
            if isinstance(pending, Future):
                return self._checked(name, self._foreign(name, pending, m, phase, deadline), 0)
            data = pending.result()
            message = wire.read(data)
            self._books.received(name, phase, "reply", size_of(message, data))
            p = wire.heard(message, m, len(self._settings.input.classes), self._form)
            return self._checked(name, p, message.version)
        except RefusedError as error:
            reason = str(error).removeprefix(f"{name}: ")
            if reason == HELLO_FIRST and again is not None:
                self.greet([name], max(0.01, min(_HELLO_PATIENCE, deadline - time.monotonic())))
                if self.members[name].refused is None:
                    self._books.count("retries", name)
                    left = max(0.01, deadline - time.monotonic())
                    pending = self._begin(name, again, RETRY, left)
                    return self._collect(name, pending, m, RETRY, deadline, None)
            failure = refused(reason)
            if failure.kind == "input" and error.late:
                return Failure("refused", f"after a long time: {reason}")  # that is no way to say no
            patience = self._settings.limits.failures
            return self.members[name].put_off_again(failure, patience) if failure.kind == "quota" else failure
        except NoAnswerError as error:
            return Failure("silent", str(error).removeprefix(f"{name}: "))
        except LNTrustError as error:
            return Failure("malformed", str(error))

    def _foreign(
        self, name: str, pending: "Future[Any]", m: int, phase: str, deadline: float
    ) -> Float[ndarray, "m C"]:
        try:
            reply = pending.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeoutError:
            pending.cancel()
            raise NoAnswerError(f"{name}: no answer in time") from None
        shape, C = self._settings.input, len(self._settings.input.classes)
        inputs = m * int(np.prod(shape.shape)) * np.dtype(shape.dtype).itemsize
        self._books.sent(name, phase, "query", Size(inputs, max(0, reply.sent - inputs)))
        self._books.received(name, phase, "reply", Size(4 * m * C, max(0, reply.received - 4 * m * C)))
        p: Float[ndarray, "m C"] = reply.probabilities
        return p

    def _checked(self, name: str, p: Float[ndarray, "m C"], version: int) -> Heard | Failure:
        """A reply that is not made of probabilities is no reply."""
        if not wire.are_probabilities(p):
            return Failure("unsound", "its answers are no probabilities")
        each = self.members[name]
        each.version, each.heard_at, each.put_off = version, time.monotonic(), 0
        return Heard(p, version)
