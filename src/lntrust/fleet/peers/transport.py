"""The door between live nodes: Zenoh, peer to peer, over TLS with certificates on both sides.

A node answers questions under `lntrust/NAME/ask/ASKER`. Access control, on both ends of every link, ties
the last part to the name in the asker's certificate, and the first to the answerer's: so a node knows who
asks and who answers, and a stranger, or somebody who speaks in another's name, gets nothing. Liveliness
tokens tell who is there. A question has a deadline, whatever its neighbour does. An empty one asks whether a
door is there, and gets an empty answer at once.

What passes is bytes, the codec's business. Our refusals come with a reason. Zenoh's own limits lie
above ours, and what they stop is dropped in silence.

Nothing beside those bytes tells one question from another: Zenoh sends a question's timeout along, so all
have the same one there, and deadlines are kept here.
"""

import json
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import zenoh

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom, event, failed, why
from lntrust.fleet.operations.certificates import NodeCertificate, Renewal
from lntrust.fleet.peers.limits import EMPTY_QUOTA, DuplicateNames, Quota
from lntrust.fleet.peers.zenoh_config import LIMIT, Place, configuration

# Gets the asker's name, its question, and an attachment if there is one; raises LNTrustError to refuse.
Answer = Callable[..., bytes]
BUSY = "busy"
_LONGEST_REASON = 300  # bytes of a refusal that we read
_TIMEOUT = 600.0  # seconds, of every question as Zenoh has it: no deadline is longer
_LAST_SECOND = timedelta(seconds=1)  # of a certificate: it is good for all of it
_FLOOD = 1000  # more refusals than this within `flood_within` seconds: each of them costs time, too
_DEAF, _SELDOM = 5, 600.0  # questions without an answer; the longest silence that is borne, in seconds
_ANYBODY = b""  # the empty question
_OPEN_ANSWERED = 8  # answered questions to one neighbour that stay open: does another answer in its name?


class NoAnswerError(LNTrustError):
    """Nobody answered in time: not there, not allowed, too slow, or too large."""


class QuotaError(LNTrustError):
    """Raised by an `Answer`, to refuse because the asker sends too much."""


class RefusedError(LNTrustError):
    """An answer that says no, and why."""


@dataclass(frozen=True)
class Sent:
    """A question that is under way to a neighbour."""

    name: str
    reply: Future[Any]  # Zenoh's; none: there will be none
    token: Any
    at: float  # seconds


class Door:
    """A node's door: it answers, asks, and knows who is there. Close it in the end."""

    def __init__(
        self, place: Place, answer: Answer, *, workers: int = 2, waiting: int = 8, flood_within: float = 2.0,
        busy: Callable[[str], None] = lambda _: None, duplicates: DuplicateNames | None = None,
        look_every: float = 2.0, ignore_floods_for: float = 10.0, deaf_after: float = 10.0,
    ) -> None:  # fmt: skip
        self.place, self._answer, self._busy = place, answer, busy
        self.duplicates = duplicates or DuplicateNames()
        self._look_every, self._within, self._ignore_floods_for = look_every, flood_within, ignore_floods_for
        self._deaf_after = self._patience = deaf_after  # seconds of silence; the latter doubles
        self._reopened = -math.inf  # when, because a neighbour was mute
        # Questions that had no answer since a neighbour was heard, and when the first of them had none.
        self._unanswered, self._silent_since = Counter[str](), dict[str, float]()
        # Questions of ours that Zenoh has not ended.
        self.open_questions: dict[str, set[Future[Any]]] = {name: set() for name in place.peers}
        self._empty_quotas = {name: Quota(*EMPTY_QUOTA) for name in place.peers}
        self._refusals = {name: deque[float](maxlen=_FLOOD + 1) for name in place.peers}  # when
        self._ignored: dict[str, float] = {}  # neighbours that flood, until when
        self._present: set[str] = set()
        self._changes: Counter[str] = Counter()  # how often each has come or gone
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._somebody_came = threading.Condition(self._lock)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._capacity = workers + waiting  # questions inside; else a flood fills the memory
        self._inside: Counter[str] = Counter()
        self._changing = threading.Lock()  # of the session
        self._renewal, self._seldom = Renewal(place.certificates, place.name), Seldom()
        self._open_session()
        threading.Thread(target=self._look_around, name="look around", daemon=True).start()

    def _open_session(self) -> None:
        place = self.place
        self._renewal.take_up()
        expires = NodeCertificate(place.certificates).expires
        try:
            self._session: Any = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(place))))
        except zenoh.ZError as error:
            reason = str(error).partition(" at /")[0]  # then come places in Zenoh's own code
            raise LNTrustError(
                f"node {place.name}: cannot listen on {place.listen}: {reason}; is it running already, is "
                "the port another's, or the address not this machine's?"
            ) from None
        self.session = str(self._session.info.zid())  # tells it from another node of the same name
        self.expires = expires  # of the certificate that is in use
        self._ran_out = datetime.now(UTC) > expires
        if self._ran_out:  # nobody will speak to it
            event("certificate has run out", level=logging.ERROR, expires=str(expires), note="renew it")
        queryables = {name: self._listen_to(name) for name in place.peers}
        with self._lock:
            self._queryables, self._ignored = queryables, dict[str, float]()
        liveliness = self._session.liveliness()
        self._declared: Sequence[Any] = [
            *(liveliness.declare_subscriber(f"lntrust/{n}/alive", self._presence_changed, history=True)
              for n in place.peers),
            liveliness.declare_token(f"lntrust/{place.name}/alive"),
        ]  # fmt: skip

    def _listen_to(self, name: str) -> Any:
        # Access control has tied the last part of the key to the asker's certificate.
        key = f"lntrust/{self.place.name}/ask/{name}"
        return self._session.declare_queryable(key, partial(self._question_arrived, name))

    def close(self) -> None:
        self._closed.set()
        with self._changing:
            self._session.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, name: str, question: bytes, timeout: float, attachment: bytes | None = None) -> bytes:
        """A neighbour's answer, within the deadline. Raises `RefusedError` or `NoAnswerError`."""
        sent = self.send(name, question, attachment)
        wait([sent.reply], timeout)
        return self.answer(sent)

    def send(self, name: str, question: bytes, attachment: bytes | None = None) -> "Sent":
        """Send a neighbour a question; wait for its reply, and then have the answer."""
        sent = Sent(name, Future(), zenoh.CancellationToken(), time.monotonic())
        with self._lock:
            self.open_questions[name].add(sent.reply)
        # Called in Zenoh's own thread: a thread for each question would take longer than its answer.
        handler = zenoh.handlers.Callback(
            partial(self._reply_arrived, sent), partial(self._ended, sent), indirect=False
        )
        try:
            self._session.get(
                f"lntrust/{name}/ask/{self.place.name}", handler, payload=question, attachment=attachment,
                timeout=_TIMEOUT, cancellation_token=sent.token,
                consolidation=zenoh.ConsolidationMode.NONE,  # else an answer waits for a second one's
                # Blocking, the default, would wait for a hung neighbour's queue, past any deadline.
                congestion_control=zenoh.CongestionControl.DROP,
            )  # fmt: skip
        except zenoh.ZError:  # the door was closed meanwhile, perhaps to be opened again
            self._ended(sent)
        return sent

    def answer(self, sent: "Sent") -> bytes:
        """What has been answered by now: what comes later counts no more. Raises as `ask` does."""
        given_up = sent.reply.cancel()
        if given_up:
            sent.token.cancel()  # else Zenoh would go on waiting
        reply = None if given_up else sent.reply.result()
        name = sent.name
        if reply is None:
            with self._lock:
                self._kept_silent(name)
            raise NoAnswerError(f"no answer within {time.monotonic() - sent.at:.2f} s")
        if len(self.open_questions[name]) > _OPEN_ANSWERED:
            sent.token.cancel()  # else a question is open until whoever answered it ends it
        if reply.ok is None:
            raise RefusedError(_reason(reply))
        return bytes(reply.ok.payload.to_bytes())

    def _reply_arrived(self, sent: "Sent", reply: Any) -> None:
        """Zenoh calls this, `_ended`, `_presence_changed` and `_question_arrived` in a thread of its own, one
        after another: none of them may take long."""
        if reply.ok is None and _reason(reply) == "Timeout":  # Zenoh says so, not the neighbour
            return
        with self._lock:
            self._heard(sent.name)
        with suppress(InvalidStateError):  # the first counts, in time; others would only fill the memory
            sent.reply.set_result(reply)
        if reply.replier_id is not None:
            self.duplicates.add(sent.name, str(reply.replier_id.zid), time.monotonic())

    def hangs(self, name: str) -> bool:
        """Whether it kept silent when it was last asked: Zenoh's queue to it may be full, and `send` wait."""
        with self._lock:
            return name in self._silent_since

    def _kept_silent(self, name: str) -> None:
        self._unanswered[name] += 1
        self._silent_since.setdefault(name, time.monotonic())

    def _heard(self, name: str) -> None:
        del self._unanswered[name]
        self._silent_since.pop(name, None)

    def _ended(self, sent: "Sent") -> None:
        with suppress(InvalidStateError):
            sent.reply.set_result(None)  # there will be no reply
        with self._lock:
            self.open_questions[sent.name].discard(sent.reply)

    # -- who is there -----------------------------------------------------------------------------

    @property
    def present(self) -> set[str]:
        """The neighbours that are there.

        One that is killed is missed within milliseconds, one that freezes after its lease; but not as long as
        megabytes to it lie in the way (Zenoh 1.10). So its silence has to count, too, not its presence alone.
        """
        with self._lock:
            return set(self._present)

    def wait_for(self, names: Collection[str], seconds: float) -> bool:
        """Whether all of these are there, at the latest after so many seconds."""
        with self._somebody_came:
            return self._somebody_came.wait_for(lambda: self._present.issuperset(names), seconds)

    def changes(self, name: str) -> int:
        """How often a neighbour has come or gone: one that was away may not be what it was."""
        with self._lock:
            return self._changes[name]

    def _presence_changed(self, sample: Any) -> None:
        name = str(sample.key_expr).split("/")[1]
        with self._lock:
            if sample.kind == zenoh.SampleKind.PUT:
                self._appeared(name)
            else:
                self._present.discard(name)
                self._changes[name] += 1
                self._heard(name)  # its silence begins anew when it comes back

    def _appeared(self, name: str) -> None:
        self._present.add(name)
        self._changes[name] += 1
        self._somebody_came.notify_all()

    def _look_around(self) -> None:
        """Until the door is closed, see to what nobody reports: new certificates, floods that are over, and
        neighbours that are mute, or came back unnoticed."""
        looks = self._renew_if_due, self._open_anew_if_mute, self._listen_again, self._find_unnoticed
        while not self._closed.wait(self._look_every):
            for look in looks:
                try:
                    look()
                except Exception as error:  # whatever goes wrong, with files, say, the others go on
                    failed("door cannot look around", error)

    def _find_unnoticed(self) -> None:
        """Ask Zenoh again for those who seem to be away.

        If a neighbour thaws in the very moment in which its lease ends, Zenoh (1.10) at times tells its
        subscribers only that it has gone: it would be away for good, though it is there and answers. One that
        was here, is linked to us, and shows no token, is as mute as one that answers nothing.
        """
        with self._lock:
            away = {name: self._changes[name] for name in self.place.peers if name not in self._present}
        for name, changes in away.items():
            with suppress(zenoh.ZError):  # the door was closed meanwhile
                tokens = self._session.liveliness().get(f"lntrust/{name}/alive", timeout=self._look_every)
                alive = any(token.ok is not None for token in tokens)
                linked = name in self._linked()
                with self._lock:
                    if changes != self._changes[name]:  # it has come or gone meanwhile
                        continue
                    if alive:
                        self._appeared(name)
                    elif linked and changes:
                        self._kept_silent(name)
                    else:
                        self._heard(name)

    def _linked(self) -> set[str]:
        """Neighbours to which Zenoh has a link, by their certificates' names; it may carry nothing."""
        return {str(link.auth_identifier) for link in self._session.info.links()}

    def _renew_if_due(self) -> None:
        """Open anew with certificates that are new: what listens goes on with those it began with.

        And once when they have run out: a link that was made in the last second would outlive them.
        """
        if self._renewal.due():
            if self._open_anew(what := "certificates renewed"):
                event(what, expires=self.expires.isoformat())
        elif not self._ran_out and datetime.now(UTC) > self.expires + _LAST_SECOND:
            self._open_anew("certificate has run out")

    def _open_anew_if_mute(self) -> None:
        """Open anew if a neighbour is there, and mute: after a freeze a link of Zenoh's (1.10) may carry its
        token and no questions, or nothing. Ever more seldom: it costs all links, and may not help."""
        now = time.monotonic()
        if now - self._reopened > 2 * _SELDOM:
            self._patience = self._deaf_after
        linked = self._linked()
        with self._lock:
            silent = [
                name for name, since in self._silent_since.items()
                if self._unanswered[name] >= _DEAF and now - since >= self._patience
                and (name in self._present or name in linked)
            ]  # fmt: skip
        mute = next((name for name in silent if not self._says_a_word(name)), None)
        if mute is None or not self._renewal.fits:  # files that do not fit would shut the door
            return
        self._patience, self._reopened = min(2 * self._patience, _SELDOM), now
        if self._open_anew(what := "door opened anew"):
            event(what, level=logging.WARNING, mute=mute)

    def _says_a_word(self, name: str) -> bool:
        try:
            self.ask(name, _ANYBODY, self._look_every)
        except RefusedError:
            return True
        except NoAnswerError:
            return False
        return True

    def _open_anew(self, what: str) -> bool:
        """Whether the door is open again; not if it was closed, or cannot be opened."""
        with self._changing:
            if self._closed.is_set():
                return False
            with self._lock:  # first: nobody is asked in vain
                self._changes.update(self._present)
                self._present.clear()
            with suppress(zenoh.ZError):  # it waits for neighbours that are frozen, and gives up in the end
                self._session.close()
            try:
                self._open_session()
            except (LNTrustError, zenoh.ZError) as error:
                self._renewal.try_again()
                self._seldom.event("door is shut", level=logging.ERROR, since=what, error=why(error))
                return False
            with self._lock:  # what nobody could answer meanwhile is no silence
                self._unanswered.clear()
                self._silent_since.clear()
            return True

    # -- answering --------------------------------------------------------------------------------

    def _question_arrived(self, asker: str, query: Any) -> None:
        if not query.payload:
            if not self._empty_quotas[asker].take(1, time.monotonic()):
                query.reply(str(query.key_expr), _ANYBODY)  # at once: a door is here, whatever its model does
            query.drop()
            self._count_refusal(asker)  # it costs as much as one
            return
        with self._lock:  # the last quarter is for those who have no question inside: no flood takes it
            reserved = self._capacity // 4 if self._inside[asker] else 0
            enters = self._inside.total() < self._capacity - reserved
            self._inside[asker] += enters
        if enters:
            self._pool.submit(self._answer_question, asker, query)
            return
        query.reply_err(BUSY.encode())
        query.drop()
        self._busy(asker)
        self._count_refusal(asker)

    def _answer_question(self, asker: str, query: Any) -> None:
        try:
            question = bytes(query.payload.to_bytes())
            if len(question) > LIMIT:
                raise LNTrustError(f"{len(question)} bytes; at most {LIMIT} are taken")
            attachment = () if query.attachment is None else (bytes(query.attachment.to_bytes()),)
            query.reply(str(query.key_expr), self._answer(asker, question, *attachment))
        except LNTrustError as error:
            query.reply_err(str(error).encode())
            if isinstance(error, QuotaError):
                self._count_refusal(asker)
        except Exception as error:  # whatever goes wrong over one question ends nothing else
            query.reply_err(f"internal error: {type(error).__name__}".encode())
        finally:
            query.drop()
            with self._lock:
                self._inside[asker] -= 1

    def _count_refusal(self, asker: str) -> None:
        """After thousands of refusals the asker is ignored for a while: Zenoh refuses it at less cost."""
        with self._lock:
            refusals, now = self._refusals[asker], time.monotonic()
            refusals.append(now)
            if asker in self._ignored or len(refusals) <= _FLOOD or now - refusals[0] > self._within:
                return
            refusals.clear()
            self._ignored[asker] = now + self._ignore_floods_for
        self._pool.submit(self._queryables[asker].undeclare)  # not here: it may wait for this very question
        event("neighbour floods", level=logging.WARNING, neighbour=asker, deaf_for=self._ignore_floods_for)

    def _listen_again(self) -> None:
        """To neighbours whose flood is long enough ago."""
        with self._lock:
            due = [name for name, until in self._ignored.items() if time.monotonic() >= until]
        for name in due:
            with suppress(zenoh.ZError):  # the door was closed meanwhile
                self._queryables[name] = self._listen_to(name)
                with self._lock:
                    del self._ignored[name]


def _reason(reply: Any) -> str:
    """A refusal's."""
    return readable(reply.err.payload.to_bytes()[:_LONGEST_REASON].decode("utf-8", "replace"))


def readable(text: str, most: int = 300) -> str:
    """What others wrote, who could send megabytes, or codes for a terminal."""
    start = "".join(letter if letter.isprintable() else " " for letter in text[:most])
    return start if len(text) <= most else f"{start}…"
