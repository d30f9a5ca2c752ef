"""The neighbours of a live node: who is there, who fits, and asking them.

Every question has a deadline, and neighbours are asked side by side: one that hangs costs the time that was
granted, and nobody else anything. One that is busy or silent is asked again while there is time; after some
failures in a row its breaker leaves it alone for a while.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.inference_server import InferenceServer, ServerReply
from lntrust.fleet.peers.limits import Breaker, Quota, State
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.peers.traffic import HELLO, RETRY, TrafficCounters, size_of
from lntrust.fleet.peers.transport import Door, NoAnswerError, Pending, RefusedError
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import encode
from lntrust.network.encodings import ReplyEncoding

_BACKOFF = 0.05  # seconds before the first retry; doubles
_RETRIED = ("busy", "silent", "quota")  # failures after which a neighbour is asked again
_HELLO_PATIENCE = 2.0  # seconds
_HELLO_SHARE = 0.25  # of the time for a question
_MUTE = 30.0  # seconds for which one that ignored a hello is not greeted again
_READY = 1.0  # seconds that a server has to say that it is ready
_MINUTE = 60.0  # in which one neighbour's quota is waited for as long as `limits.patience`, and no longer
_MOST_PIECES = 32  # messages of one question because a neighbour takes few inputs at once
_THREADS = 4  # per neighbour: so many questions to it at the same time
_Pending = Pending | Future[ServerReply]  # a question to a node, or to a server


@dataclass
class Neighbour:
    """What is known of one. Plain fields: several threads read them, and the latest message writes them."""

    breaker: Breaker
    waits: Quota  # the seconds for which it may be waited for because of its quota
    server: InferenceServer | None = None  # none: it is a node
    tried: int = 0  # of its appearances, the last one that its breaker knows of
    greeted: int = 0  # at which of its appearances it answered a hello; 0: never
    mute: tuple[int, float] = (0, -math.inf)  # at which appearance, and when, it last ignored a hello
    put_off: int = 0  # refusals for its quota in a row, without a reply between
    degree: int = 0
    at_once: int = wire.ANY  # inputs that it takes
    refused: str | None = None  # why it does not fit, until it is greeted again
    version: int | None = None  # of its model, by its last reply
    replied_at: float | None = None
    round_trip: float | None = None  # seconds a hello takes

    def takes_too_few(self, m: int, at_once: int) -> Failure | None:
        """Whether a question about m inputs would be a storm of messages, though so many fit into one."""
        if self.at_once >= at_once or m <= _MOST_PIECES * self.at_once:
            return None
        text = f"takes {self.at_once} inputs at once: {-(-m // self.at_once)} messages for {m}"
        return Failure("few", f"{text}; at most {_MOST_PIECES} are sent")


@dataclass(frozen=True)
class _Question:
    x: Shaped[ndarray, "m *s"]
    phase: str
    deadline: float
    retries: int
    attachment: bytes | None  # its round, in lockstep
    encoding: ReplyEncoding  # of nodes' replies; servers know one only

    @cached_property
    def data(self) -> bytes:
        return encode(wire.question(self.x, encoding=self.encoding))


class Neighbours:
    """A node's neighbours, by name. Close them in the end."""

    def __init__(
        self, settings: NodeSettings, traffic: TrafficCounters, door: Door | None,
        facts: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        self._settings, self._traffic, self._door, self._facts = settings, traffic, door, facts
        limits = settings.limits
        self.members = {
            each.name: Neighbour(
                Breaker(limits.failures, limits.pause),
                Quota(limits.patience / _MINUTE, limits.patience),
                InferenceServer(each, settings.input) if each.url else None,
            )
            for each in settings.neighbours
        }
        self._servers = {name: each.server for name, each in self.members.items() if each.server is not None}
        self._at_once = wire.at_once(settings.input)
        self._encoding = ReplyEncoding(settings.trust.reply)
        self._lockstep = settings.network.clock == "lockstep"
        self._seldom = Seldom()
        self._server_pool = ThreadPoolExecutor(max(1, _THREADS * len(self._servers)), "server")
        self._pieces_pool = ThreadPoolExecutor(max(1, _THREADS * len(self.members)), "pieces")

    def close(self) -> None:
        self._server_pool.shutdown(wait=False, cancel_futures=True)
        self._pieces_pool.shutdown(wait=False, cancel_futures=True)
        for server in self._servers.values():
            server.close()

    # -- who is there -----------------------------------------------------------------------------

    @property
    def present(self) -> set[str]:
        """Who is there, as far as is known; of a server nothing is, and it counts as present."""
        return self._servers.keys() | (set() if self._door is None else self._door.present)

    def somebody(self) -> bool:
        """Whether a node is there, or a server is ready: unlike `present`, this asks the servers."""
        if self._door is not None and self._door.present:
            return True
        return any(list(self._server_pool.map(lambda server: server.ready(_READY), self._servers.values())))

    def wait_for_all(self, seconds: float) -> None:
        """In lockstep nobody may be missed: wait until everybody is there, or the time is over."""
        if self._door is not None:
            self._door.wait_for(self.members.keys() - self._servers.keys(), seconds)

    def appearances(self, name: str) -> int:
        return 0 if self._door is None else self._door.appearances(name)

    def instances(self, name: str) -> int:
        """How many nodes use this name; more than 1 is one too many."""
        return 0 if self._door is None else self._door.duplicates.count(name, time.monotonic())

    def states(self) -> dict[str, State]:
        now = time.monotonic()
        return {name: each.breaker.state(now) for name, each in self.members.items()}

    def chosen(self) -> list[str]:
        """Whom to ask: all, or the fastest of those that are present and fit."""
        if self._settings.network.choose == "listed":
            return list(self.members)
        fit = [n for n in self.members if n in self.present and self.members[n].refused is None]
        fit.sort(key=lambda name: self.members[name].round_trip or float("inf"))
        fastest = set(fit[: self._settings.network.fastest])
        return [name for name in self.members if name in fastest]

    # -- greeting ---------------------------------------------------------------------------------

    def meet(self, timeout: float = _HELLO_PATIENCE, only_new: bool = False) -> None:
        """Greet every node that is present, also those that did not fit: they may have changed.

        One that has just kept silent is passed over for a while; `ask` greets it, if it is new.
        """
        present, now = self.present, time.monotonic()

        def is_mute(name: str) -> bool:
            appearance, since = self.members[name].mute
            return appearance == self.appearances(name) and now - since < _MUTE

        nodes = [n for n in self.members if n in present and n not in self._servers and not is_mute(n)]
        self.greet([n for n in nodes if not only_new or self._is_new(n)], timeout)

    def greet(self, names: Sequence[str], timeout: float) -> None:
        """Say hello to these nodes, side by side: do both mean the same by an input, and by a class?"""
        if self._door is None:
            return
        mine = self._facts()
        message = wire.hello(mine)
        data = encode(message)
        begun: list[tuple[str, int, float, Pending]] = []
        for name in names:
            appearance, now = self._door.appearances(name), time.monotonic()
            self._traffic.count("queries out", name)
            self._traffic.sent(name, HELLO, "query", size_of(message.tensors.values(), len(data)))
            begun.append((name, appearance, now, self._door.begin(name, data, timeout)))
        for name, appearance, since, pending in begun:
            each = self.members[name]
            try:
                data = pending.result()
                each.greeted = max(1, appearance)
                self._read_hello(name, data, mine, since)
            except RefusedError as error:
                reason = str(error).removeprefix(f"{name}: ")
                if wire.failure_of(reason).kind == "refused":
                    each.greeted = max(1, appearance)
                    self._set_refused(name, f"{name} says: {reason}")
            except NoAnswerError:  # whoever asks it something sees that it is silent
                each.mute = (appearance, time.monotonic())

    def _read_hello(self, name: str, data: bytes, mine: dict[str, Any], since: float) -> None:
        each, now = self.members[name], time.monotonic()
        try:
            message = wire.read(data)
            theirs = wire.facts_in(message)
        except LNTrustError as error:
            self._set_refused(name, str(error))
            return
        self._traffic.received(name, HELLO, "reply", size_of(message.tensors.values(), len(data)))
        self._set_refused(name, wire.mismatch(mine, theirs))
        if each.refused is None:
            took = now - since
            each.round_trip = took if each.round_trip is None else 0.7 * each.round_trip + 0.3 * took
            each.degree, each.at_once = wire.degree_of(theirs), wire.most_of(theirs)
            each.version, each.replied_at = message.version, now

    def _set_refused(self, name: str, reason: str | None) -> None:
        """Why it does not fit, logged when it changes; none: it fits."""
        if reason is not None and reason != self.members[name].refused:
            self._seldom.event("neighbour does not fit", neighbour=name, reason=reason)
        self.members[name].refused = reason

    def _is_new(self, name: str) -> bool:
        """Whether we have not met since it came, or never."""
        return name not in self._servers and self.members[name].greeted < max(1, self.appearances(name))

    def _greet_new(self, names: Sequence[str], deadline: float) -> set[str]:
        """Greet new ones, in a part of the time: others wait for their question. Returns who is silent."""
        new = [name for name in names if self._is_new(name)]
        if new:
            self.greet(new, max(0.01, min(_HELLO_PATIENCE, _HELLO_SHARE * (deadline - time.monotonic()))))
        return {n for n in new if self.members[n].greeted < max(1, self.members[n].tried)}

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self, names: Sequence[str], x: Shaped[ndarray, "m *s"], phase: str, *,
        timeout: float, round_: int = wire.NOW, retries: int = 0,
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:  # fmt: skip
        """What these say about inputs, side by side and within the time; and why others did not."""
        deadline = time.monotonic() + timeout
        if self._lockstep:
            self.wait_for_all(timeout)
        failed: dict[str, Failure] = {}
        present = self.present
        for name in names:
            if name not in present:
                failed[name] = Failure("absent", "not there")
            elif not self._admits(name):
                failed[name] = Failure("breaker", "left alone after failures")
        admitted = [name for name in names if name not in failed]
        silent = self._greet_new(admitted, deadline)
        for name in admitted:
            each = self.members[name]
            if name in silent:
                failed[name] = Failure("silent", "no answer to a hello")
                each.breaker.failed(time.monotonic())
            elif each.refused is not None:
                failed[name] = Failure("mismatch", each.refused)
                each.breaker.succeeded()  # it is well, but another
            elif (few := each.takes_too_few(len(x), self._at_once)) is not None:
                failed[name] = few
                each.breaker.not_asked()
                self._seldom.event("neighbour takes too few", neighbour=name, reason=few.text)
        asked = [name for name in admitted if name not in failed]
        attachment = wire.attachment(round_) if self._lockstep else None
        question = _Question(x, phase, deadline, retries, attachment, self._encoding)
        results = self._ask_in_pieces(asked, question)
        for name, result in results.items():
            self._tell_breaker(name, result)
            if (count := self.instances(name)) > 1:
                note = "a second certificate, or a copied key: look who has it"
                self._seldom.event("one name, several nodes", neighbour=name, count=count, note=note)
        replies = {name: result for name, result in results.items() if isinstance(result, Reply)}
        failed |= {name: result for name, result in results.items() if isinstance(result, Failure)}
        for failure in failed.values():
            self._traffic.count("failures", failure.kind)
        return replies, failed

    def _admits(self, name: str) -> bool:
        """Whether its breaker lets it be asked. One that has come anew may be well again."""
        each, appearance, now = self.members[name], self.appearances(name), time.monotonic()
        if appearance > each.tried:
            each.tried = appearance
            each.breaker.appeared(now)
        return each.breaker.admits(now)

    def _tell_breaker(self, name: str, result: Reply | Failure) -> None:
        breaker = self.members[name].breaker
        if isinstance(result, Reply) or result.kind == "quota":
            breaker.succeeded()
        elif result.kind == "input":
            breaker.not_asked()  # nobody could have answered: that says nothing for it, or against
        else:
            breaker.failed(time.monotonic())

    def _ask_in_pieces(self, names: list[str], question: _Question) -> dict[str, Reply | Failure]:
        """In one message, if it holds all; else a thread for each: a slow one keeps nobody waiting."""
        if all(len(question.x) <= min(self._at_once, self.members[name].at_once) for name in names):
            return self._ask_with_retries(names, question)
        threads = {n: self._pieces_pool.submit(self._ask_one_in_pieces, n, question) for n in names}
        return {name: thread.result() for name, thread in threads.items()}

    def _ask_one_in_pieces(self, name: str, question: _Question) -> Reply | Failure:
        """Message after message; if one fails, the rest is not asked."""
        size, parts = min(self._at_once, self.members[name].at_once), list[Reply]()
        for start in range(0, len(question.x), size):
            piece = replace(question, x=question.x[start : start + size])
            result = self._ask_with_retries([name], piece)[name]
            if isinstance(result, Failure):
                return result
            parts.append(result)
        return Reply(np.concatenate([part.probabilities for part in parts]), parts[-1].version)

    def _ask_with_retries(self, names: list[str], question: _Question) -> dict[str, Reply | Failure]:
        """One message to each, and after a pause again to those who were busy, silent or had enough."""
        results, retries = dict[str, Reply | Failure](), question.retries
        for attempt in range(retries + 1):
            timeout = (question.deadline - time.monotonic()) / (retries + 1 - attempt)
            if timeout <= 0:
                return {name: Failure("silent", "no time left") for name in names} | results
            phase = RETRY if attempt else question.phase
            begun = [(name, self._begin(name, question, phase, timeout)) for name in names]
            results |= {name: self._collect(name, pending, question, phase) for name, pending in begun}
            if attempt == retries:
                break
            left, waits = question.deadline - time.monotonic(), dict[str, float]()
            for name in names:
                failure, quota = results[name], self.members[name].waits
                if isinstance(failure, Reply) or failure.kind not in _RETRIED or failure.wait >= left:
                    continue
                if quota.take(failure.wait, time.monotonic()) == 0:
                    waits[name] = failure.wait
            if not waits:
                break
            names = list(waits)
            pause = _BACKOFF * 2**attempt * (0.5 + random.random())  # not all at the same moment again
            time.sleep(max(0.0, min(max(pause, *waits.values()), left)))
        return results

    def _begin(self, name: str, question: _Question, phase: str, timeout: float) -> _Pending:
        self._traffic.count("queries out", name)
        if phase == RETRY:
            self._traffic.count("retries", name)
        if name in self._servers:
            return self._server_pool.submit(self._servers[name].ask, question.x, timeout)
        assert self._door is not None
        self._traffic.sent(name, phase, "query", size_of([question.x], len(question.data)))
        return self._door.begin(name, question.data, timeout, question.attachment)

    def _collect(
        self, name: str, pending: _Pending, question: _Question, phase: str, greet: bool = True
    ) -> Reply | Failure:
        """The reply, checked. A node that has forgotten us is greeted, and asked again at once."""
        each, m, C = self.members[name], len(question.x), len(self._settings.input.classes)
        try:
            if isinstance(pending, Future):
                p, version = self._server_reply(name, pending, question, phase), 0
            else:
                data = pending.result()
                message = wire.read(data)
                self._traffic.received(name, phase, "reply", size_of(message.tensors.values(), len(data)))
                p, version = wire.probabilities_in(message, m, C, self._encoding), message.version
        except RefusedError as error:
            reason = str(error).removeprefix(f"{name}: ")
            if reason == wire.HELLO_FIRST and greet:
                self.greet([name], max(0.01, min(_HELLO_PATIENCE, question.deadline - time.monotonic())))
                if each.refused is None:
                    again = self._begin(
                        name, question, RETRY, max(0.01, question.deadline - time.monotonic())
                    )
                    return self._collect(name, again, question, RETRY, greet=False)
            return self._refusal(each, reason, error.late)
        except NoAnswerError as error:
            return Failure("silent", str(error).removeprefix(f"{name}: "))
        except LNTrustError as error:
            return Failure("malformed", str(error))
        if not wire.are_probabilities(p):
            return Failure("unsound", "its answers are no probabilities")
        each.version, each.replied_at, each.put_off = version, time.monotonic(), 0
        return Reply(p, version)

    def _refusal(self, each: Neighbour, reason: str, late: bool) -> Failure:
        failure = wire.failure_of(reason)
        if failure.kind == "input" and late:
            return Failure("refused", f"after a long time: {reason}")  # that is no way to say no
        each.put_off += failure.kind == "quota"
        if failure.kind == "quota" and each.put_off > self._settings.limits.failures:
            return Failure("put off", f"nothing but refusals, {each.put_off} in a row: {reason}")
        return failure

    def _server_reply(
        self, name: str, pending: "Future[ServerReply]", question: _Question, phase: str
    ) -> Float[ndarray, "m C"]:
        try:
            reply = pending.result(max(0.0, question.deadline - time.monotonic()))
        except FutureTimeoutError:
            pending.cancel()
            raise NoAnswerError(f"{name}: no answer in time") from None
        self._traffic.sent(name, phase, "query", size_of([question.x], reply.sent))
        self._traffic.received(name, phase, "reply", size_of([reply.probabilities], reply.received))
        return reply.probabilities
