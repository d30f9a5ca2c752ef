"""The neighbours of a live node: who is there, who fits, and asking them.

Every question has a deadline. Talks with several neighbours are led side by side, in the thread of whoever
asks: one that hangs costs the time that was granted, and nobody else anything. Servers, and nodes that kept
silent last, are asked in threads of their own: to hand over a question to them may take long. One that is
busy or silent is asked again while there is time; after some failures in a row its breaker leaves it alone
for a while.
"""

import math
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom, why
from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.inference_server import InferenceServer
from lntrust.fleet.peers.limits import Breaker, Quota
from lntrust.fleet.peers.messages import Failure, Reply
from lntrust.fleet.peers.traffic import HELLO, RETRY, TrafficCounters, size_of
from lntrust.fleet.peers.transport import Door, NoAnswerError, RefusedError
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import Message, Size, encode
from lntrust.network.encodings import ReplyEncoding

_BACKOFF = 0.05  # seconds before the first retry; doubles
_RETRIED = ("busy", "silent", "quota")  # failures after which a neighbour is asked again
# What a failure says of a neighbour's health, if it is not ill: it is well, or nobody knows.
_WELL = {"quota": True, "mismatch": True, "input": None, "few": None, "queue": None}
_LATE = 0.75  # of the time for a question: a refusal after it is no better than silence
_HELLO_PATIENCE = 2.0  # seconds
_HELLO_SHARE = 0.25  # of the time for a question
_MUTE = 30.0  # seconds for which one that ignored a hello is not greeted again
_READY = 1.0  # seconds that a server has to say that it is ready
_MINUTE = 60.0  # in which one neighbour's quota is waited for as long as `limits.patience`, and no longer
_MOST_PIECES = 32  # messages of one question because a neighbour takes few inputs at once
_THREADS = 80  # per neighbour: so many questions to it at the same time, more than clients are served at once

T = TypeVar("T")
# With one neighbour, step by step: says what it waits for and until when, and returns what became of it.
Talk = Generator[tuple[Future[Any], float], None, T]


class NotSentError(LNTrustError):
    """A question was not sent, for which the neighbour can do nothing."""


@dataclass
class Neighbour:
    """What is known of one. Plain fields: several threads read them, and the latest message writes them."""

    name: str
    breaker: Breaker
    waits: Quota  # the seconds for which it may be waited for because of its quota
    server: InferenceServer | None  # none: it is a node
    threads: ThreadPoolExecutor
    greeted: int = 0  # when it answered a hello, in comings and goings; 0: never
    mute: tuple[int, float] = (0, -math.inf)  # when it last ignored one, so and in seconds
    put_off: int = 0  # refusals for its quota in a row, without a reply between
    degree: int = 0
    at_once: int = wire.ANY  # inputs that it takes
    refused: str | None = None  # why it does not fit, until it is greeted again
    version: int | None = None  # of its model, by its last reply
    replied_at: float | None = None
    round_trip: float | None = None  # seconds a hello takes


class _Written(NamedTuple):
    """A message as it travels."""

    data: bytes
    size: Size

    @classmethod
    def of(cls, message: Message) -> "_Written":
        data = encode(message)
        return cls(data, size_of(message.tensors.values(), len(data)))


@dataclass(frozen=True)
class _Question:
    x: Shaped[ndarray, "m *s"]
    phase: str
    deadline: float
    retries: int
    attachment: bytes | None  # its round, in lockstep
    encoding: ReplyEncoding

    @property
    def time_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    @cached_property
    def written(self) -> _Written:
        """The same for all nodes."""
        return _Written.of(wire.question(self.x, encoding=self.encoding))


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
                each.name,
                Breaker(limits.failures, limits.pause),
                Quota(limits.patience / _MINUTE, limits.patience),
                InferenceServer(each, settings.input) if each.url else None,
                ThreadPoolExecutor(_THREADS, f"ask {each.name}"),
            )
            for each in settings.neighbours
        }
        self._servers = {name: each.server for name, each in self.members.items() if each.server is not None}
        self._at_once = wire.at_once(settings.input)
        self._encoding = ReplyEncoding(settings.trust.reply)  # of nodes' replies; servers know one only
        self._lockstep = settings.network.clock == "lockstep"
        self._seldom = Seldom()

    def close(self) -> None:
        for each in self.members.values():
            each.threads.shutdown(wait=False, cancel_futures=True)
        for server in self._servers.values():
            server.close()

    # -- who is there -----------------------------------------------------------------------------

    @property
    def present(self) -> set[str]:
        """Who is there, as far as is known; of a server nothing is, and it counts as present."""
        return self._servers.keys() | (set() if self._door is None else self._door.present)

    def somebody(self) -> bool:
        """Whether a node is there, or a server is ready: unlike `present`, this asks the servers."""
        if self.present - self._servers.keys():
            return True
        asked = [self.members[n].threads.submit(each.ready, _READY) for n, each in self._servers.items()]
        return any(ready.result() for ready in wait(asked, 2 * _READY).done)

    def wait_for_all(self, seconds: float) -> None:
        """In lockstep nobody may be missed: wait until everybody is there, or the time is over."""
        if self._door is not None:
            self._door.wait_for(self.members.keys() - self._servers.keys(), seconds)

    def changes(self, name: str) -> int:
        """How often it has come or gone."""
        return 0 if self._door is None else self._door.changes(name)

    def instances(self, name: str) -> int:
        """How many nodes use this name; more than 1 is one too many."""
        return 0 if self._door is None else self._door.duplicates.count(name, time.monotonic())

    def chosen(self) -> set[str]:
        """Whom to ask: all, or the fastest of those that are present and fit."""
        if self._settings.network.choose == "listed":
            return set(self.members)
        present = self.present
        fit = [each for each in self.members.values() if each.name in present and each.refused is None]
        fit.sort(key=lambda each: each.round_trip or math.inf)
        return {each.name for each in fit[: self._settings.network.fastest]}

    # -- greeting ---------------------------------------------------------------------------------

    def meet(self, timeout: float = _HELLO_PATIENCE, only_new: bool = False) -> None:
        """Greet every node that is present, side by side; also those that did not fit: they may have changed.

        One that has just kept silent is passed over for a while; `ask` greets it, if it is new.
        """
        present, greetings = self.present - self._servers.keys(), dict[str, Talk[bool]]()
        for each in self.members.values():
            change, since = each.mute
            mute = change == self.changes(each.name) and time.monotonic() - since < _MUTE
            if each.name in present and not mute and (self._is_new(each) or not only_new):
                greetings[each.name] = self._greet(each, timeout)
        _side_by_side(greetings)

    def _is_new(self, each: Neighbour) -> bool:
        """Whether we have not met since it came, or never."""
        return each.server is None and each.greeted < max(1, self.changes(each.name))

    def _greet(self, each: Neighbour, timeout: float) -> Talk[bool]:
        """Say hello: do both mean the same by an input, and by a class? Returns whether it had an answer."""
        mine, change, since = self._facts(), self.changes(each.name), time.monotonic()
        try:
            reply = yield from self._send(each, _Written.of(wire.hello(mine)), HELLO, timeout)
            theirs = wire.facts_in(reply)
            reason = wire.mismatch(mine, theirs)
        except NoAnswerError:  # whoever asks it something sees that it is silent
            each.mute = (change, time.monotonic())
            return False
        except RefusedError as error:
            if wire.failure_of(str(error)).kind != "refused":
                return False
            reason = f"{each.name} says: {error}"
        except LNTrustError as error:
            reason = str(error)
        each.greeted = max(1, change)
        if reason is not None and reason != each.refused:
            self._seldom.event("neighbour does not fit", neighbour=each.name, reason=reason)
        each.refused = reason
        if reason is None:
            now, took = time.monotonic(), time.monotonic() - since
            each.round_trip = 0.7 * (each.round_trip or took) + 0.3 * took
            each.degree, each.at_once = theirs["degree"], theirs["most"]
            each.version, each.replied_at = reply.version, now
        return True

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self, names: Sequence[str], x: Shaped[ndarray, "m *s"], phase: str, *,
        timeout: float, round_: int = wire.NOW, retries: int = 0,
    ) -> tuple[dict[str, Reply], dict[str, Failure]]:  # fmt: skip
        """What these say about inputs, side by side and within the time; and why others did not."""
        deadline = time.monotonic() + timeout
        if self._lockstep:
            self.wait_for_all(timeout)
        attachment = str(round_).encode() if self._lockstep else None
        question = _Question(x, phase, deadline, retries, attachment, self._encoding)
        present, failed, talks = self.present, dict[str, Failure](), dict[str, Talk[Reply | Failure]]()
        for name in names:
            each = self.members[name]
            if name not in present:
                failed[name] = Failure("absent", "not there")
            elif not each.breaker.admits(time.monotonic(), self.changes(name)):
                failed[name] = Failure("breaker", "left alone after failures")
            else:
                talks[name] = self._ask_safely(each, question)
        results = _side_by_side(talks)
        for name, result in results.items():
            well = isinstance(result, Reply) or _WELL.get(result.kind, False)
            self.members[name].breaker.tell(well, time.monotonic())
            if (instances := self.instances(name)) > 1:
                note = "a second certificate, or a copied key: look who has it"
                self._seldom.event("one name, several nodes", neighbour=name, count=instances, note=note)
        failed |= {name: result for name, result in results.items() if isinstance(result, Failure)}
        for failure in failed.values():
            self._traffic.count("failures", failure.kind)
        return {name: result for name, result in results.items() if isinstance(result, Reply)}, failed

    def _ask_safely(self, each: Neighbour, question: _Question) -> Talk[Reply | Failure]:
        """An error over one neighbour loses no other's answer."""
        try:
            return (yield from self._ask(each, question))
        except NotSentError as error:
            return Failure("queue", str(error))
        except Exception as error:
            return Failure("malformed", why(error))

    def _ask(self, each: Neighbour, question: _Question) -> Talk[Reply | Failure]:
        """In as many messages as it takes; if one fails, the rest is not asked."""
        if not question.time_left:
            raise NotSentError("no time left to ask it")
        patience = min(_HELLO_PATIENCE, _HELLO_SHARE * question.time_left)
        if self._is_new(each) and not (yield from self._greet(each, patience)):
            return Failure("silent", "no answer to a hello")
        if each.refused is not None:
            return Failure("mismatch", each.refused)
        x, size = question.x, min(self._at_once, each.at_once)
        pieces = -(-len(x) // size)
        if pieces > _MOST_PIECES and each.at_once < self._at_once:  # a storm, though so many fit into one
            messages = f"{pieces} messages for {len(x)}; at most {_MOST_PIECES} are sent"
            text = f"takes {size} inputs at once: {messages}"
            self._seldom.event("neighbour takes too few", neighbour=each.name, reason=text)
            return Failure("few", text)
        parts = list[Reply]()
        for start in range(0, max(1, len(x)), size):
            piece = question if pieces <= 1 else replace(question, x=x[start : start + size])
            result = yield from self._ask_patiently(each, piece)
            if isinstance(result, Failure):
                return result
            parts.append(result)
        return Reply(np.concatenate([part.probabilities for part in parts]), parts[-1].version)

    def _ask_patiently(self, each: Neighbour, question: _Question) -> Talk[Reply | Failure]:
        """One message, and after a pause again if it was busy, silent or had enough."""
        for attempt in count():
            others = question.retries - attempt  # that may follow
            timeout = question.time_left / (1 + others)
            phase = RETRY if attempt else question.phase
            result = yield from self._ask_once(each, question, phase, timeout)
            if isinstance(result, Reply) or result.kind not in _RETRIED or not others:
                break
            left = question.time_left
            if result.wait >= left or each.waits.take(result.wait, time.monotonic()):
                break
            pause = _BACKOFF * 2**attempt * (0.5 + random.random())  # not all at the same moment again
            yield Future(), time.monotonic() + min(max(pause, result.wait), left)
        return result

    def _ask_once(
        self, each: Neighbour, question: _Question, phase: str, timeout: float, greet: bool = True
    ) -> Talk[Reply | Failure]:
        """The reply, checked. A node that has forgotten us is greeted, and asked again at once."""
        if timeout <= 0:
            return Failure("silent", "no time left")
        begun = time.monotonic()
        try:
            p, version = yield from self._hear(each, question, phase, timeout)
        except RefusedError as error:
            if str(error) == wire.HELLO_FIRST and greet:
                yield from self._greet(each, min(_HELLO_PATIENCE, question.time_left))
                if each.refused is None:
                    return (yield from self._ask_once(each, question, RETRY, question.time_left, greet=False))
            return self._refusal(each, str(error), time.monotonic() - begun > _LATE * timeout)
        except NoAnswerError as error:
            return Failure("silent", str(error))
        except NotSentError:
            raise
        except LNTrustError as error:
            return Failure("malformed", str(error))
        if not wire.are_probabilities(p):
            return Failure("unsound", "its answers are no probabilities")
        each.version, each.replied_at, each.put_off = version, time.monotonic(), 0
        return Reply(p, version)

    def _hear(
        self, each: Neighbour, question: _Question, phase: str, timeout: float
    ) -> Talk[tuple[Float[ndarray, "m C"], int]]:
        """The numbers that a node or a server says, and the version of its model."""
        if phase == RETRY:
            self._traffic.count("retries", each.name)
        if each.server is None:
            reply = yield from self._send(each, question.written, phase, timeout, question.attachment)
            C = len(self._settings.input.classes)
            return wire.probabilities_in(reply, len(question.x), C, self._encoding), reply.version
        p, sent, received = yield from self._in_thread(each, timeout, each.server.ask, question.x, timeout)
        self._traffic.sent(each.name, phase, "query", size_of([question.x], sent))
        self._traffic.received(each.name, phase, "reply", size_of([p], received))
        return p, 0

    def _send(
        self, each: Neighbour, message: _Written, phase: str, timeout: float, attachment: bytes | None = None
    ) -> Talk[Message]:
        """A node's reply to a message; both are counted."""
        assert self._door is not None
        self._traffic.sent(each.name, phase, "query", message.size)
        if self._door.hangs(each.name):
            ask = partial(self._door.ask, attachment=attachment)
            data = yield from self._in_thread(each, timeout, ask, each.name, message.data, timeout)
        else:
            self._traffic.count("queries out", each.name)
            sent = self._door.send(each.name, message.data, attachment)
            yield sent.reply, time.monotonic() + timeout
            data = self._door.answer(sent)
        reply = wire.read(data)
        self._traffic.received(each.name, phase, "reply", size_of(reply.tensors.values(), len(data)))
        return reply

    def _in_thread(self, each: Neighbour, timeout: float, ask: Callable[..., T], *question: Any) -> Talk[T]:
        """What `ask` returns in time, in one of this neighbour's threads."""
        try:
            asked = each.threads.submit(ask, *question)
        except RuntimeError:
            raise NotSentError("this node is closing") from None
        yield asked, time.monotonic() + timeout
        if asked.cancel():
            raise NotSentError("other questions to it took all the time")
        self._traffic.count("queries out", each.name)
        if not asked.done():
            raise NoAnswerError("no answer in time")
        return asked.result()

    def _refusal(self, each: Neighbour, reason: str, late: bool) -> Failure:
        failure = wire.failure_of(reason)
        if failure.kind == "input" and late:
            return Failure("refused", f"after a long time: {reason}")  # that is no way to say no
        each.put_off += failure.kind == "quota"
        if failure.kind == "quota" and each.put_off > self._settings.limits.failures:
            return Failure("put off", f"nothing but refusals, {each.put_off} in a row: {reason}")
        return failure


def _side_by_side(talks: Mapping[str, Talk[T]]) -> dict[str, T]:
    """Lead these talks in this thread: each goes on when what it waits for is there, or its time is over."""
    results, waiting, go_on = dict[str, T](), dict[str, tuple[Future[Any], float]](), list(talks)
    news = SimpleQueue[Future[Any]]()  # quicker than to wait for any of the futures
    while go_on:
        for name in go_on:
            waiting.pop(name, None)
            try:
                waiting[name] = next(talks[name])
            except StopIteration as end:
                results[name] = end.value
            else:
                waiting[name][0].add_done_callback(news.put)
        go_on = []
        while waiting and not go_on:
            soonest = min(until for _, until in waiting.values())
            with suppress(Empty):
                news.get(timeout=max(0.0, soonest - time.monotonic()))
            now = time.monotonic()
            go_on = [name for name, (future, until) in waiting.items() if future.done() or now >= until]
    return {name: results[name] for name in talks}
