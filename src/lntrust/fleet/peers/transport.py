"""The door between live nodes: Zenoh, peer to peer, over TLS with certificates on both sides.

A node answers questions under `lntrust/NAME/ask/ASKER`. Access control, on both ends of every link, ties
the last part to the name in the asker's certificate, and the first to the answerer's: so a node knows who
asks and who answers, and a stranger, or somebody who speaks in another's name, gets nothing. Liveliness
tokens tell who is there. A question has a deadline; a neighbour that hangs costs nobody else anything.

What passes is bytes, the codec's business. What is refused by us comes with a reason. Zenoh's own limits lie
above ours, and what they stop is dropped in silence.

Nothing beside those bytes tells one question from another: Zenoh sends a question's timeout along, so all
have the same one there, and deadlines are kept here.
"""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.fleet.logs import Seldom, event, failed, why
from lntrust.fleet.operations.certificates import expiry
from lntrust.fleet.operations.renewal import Renewal
from lntrust.fleet.peers.access import access
from lntrust.fleet.peers.doubles import Doubles
from lntrust.fleet.peers.limits import Flood

# Who asks, what, and perhaps what stands beside it; may raise LNTrustError to refuse, with a reason.
Answer = Callable[..., bytes]
LIMIT = 4 << 20  # bytes of a message that we take
BUSY = "busy"
LATE = 0.75  # of the time for a question: a refusal after it is no better than silence
_LONGEST_REASON = 400  # bytes of a refusal that we read
_HARD_LIMIT = LIMIT + (64 << 10)  # beyond this Zenoh drops it before we can say why
_LOOK_AGAIN = 2.0  # seconds between two looks at who seems to be away
_TIMEOUT = 600.0  # seconds, of every question as Zenoh has it: no deadline is longer
_LAST_SECOND = timedelta(seconds=1)  # of a certificate: it is good for all of it
_DEAF = 10.0  # seconds for which a neighbour that floods is not heard
_LISTENING = 8  # answered questions to one neighbour that stay open: does another answer in its name?

# How long a message waits for room on its way, in µs, before it is dropped. Zenoh's own 1 and 50 ms are too
# short for megabytes between busy machines; blocking would wait for a hung neighbour, past any deadline.
_QUEUE = {
    "size": {"data": 16},
    "congestion_control": {
        "drop": {"wait_before_drop": 20_000, "max_wait_before_drop_fragments": 250_000},
    },
}


class NoAnswerError(LNTrustError):
    """Nobody answered in time: not there, not allowed, too slow, or too large."""


class EnoughError(LNTrustError):
    """Raised by who answers, to refuse because there was too much."""


class RefusedError(LNTrustError):
    """An answer that says no, and why; and whether it took nearly all the time that there was."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


@dataclass(frozen=True)
class Peer:
    """A neighbour: the name in its certificate, and where it listens; without an address it comes to us."""

    name: str
    address: str | None = None  # host:port


@dataclass(frozen=True)
class Place:
    """Where a node stands: its name, where it listens, its certificates, its neighbours."""

    name: str
    listen: str  # host:port
    certificates: Path  # node.pem, node.key, ca.pem
    peers: tuple[Peer, ...]
    lease_ms: int = 2000  # a frozen neighbour is given up after this
    multicast: bool = False  # find neighbours without an address on the local network


def configuration(place: Place) -> dict[str, Any]:
    """Zenoh's settings: nothing but TLS, nobody but the neighbours, no discovery, no shared memory."""
    files = {name: str(place.certificates / name) for name in ("node.pem", "node.key", "ca.pem")}
    known = [peer for peer in place.peers if peer.address]
    return {
        "mode": "peer",
        "listen": {"endpoints": [f"tls/{place.listen}"]},
        "connect": {
            "endpoints": [f"tls/{peer.address}" for peer in known],
            "timeout_ms": -1, "exit_on_failure": False,
        },
        "scouting": {"multicast": {"enabled": place.multicast}, "gossip": {"enabled": False}},
        "transport": {
            "shared_memory": {"enabled": False},  # it would pass by TLS
            "link": {
                "protocols": ["tls"],
                "tx": {"lease": place.lease_ms, "keep_alive": 4, "queue": _QUEUE},
                "rx": {"max_message_size": _HARD_LIMIT + 4096},
                "tls": {
                    "root_ca_certificate": files["ca.pem"],
                    "enable_mtls": True, "verify_name_on_connect": True,
                    "close_link_on_expiration": True,  # else a certificate that runs out ends nothing
                    "listen_private_key": files["node.key"], "listen_certificate": files["node.pem"],
                    "connect_private_key": files["node.key"], "connect_certificate": files["node.pem"],
                },
            },
        },
        "low_pass_filter": [
            {"flows": ["ingress"], "messages": ["put", "delete", "query", "reply"], "key_exprs": ["**"],
             "size_limit": _HARD_LIMIT},
        ],
        "access_control": access(place.name, [peer.name for peer in place.peers]),
    }  # fmt: skip


class Pending:
    """A question under way."""

    def __init__(self, name: str, timeout: float, token: Any) -> None:
        self.name, self._timeout, self._token = name, timeout, token
        self._deadline = time.monotonic() + timeout
        self._replies: SimpleQueue[Any] = SimpleQueue()  # none: there will be no more
        self._answered = False
        self._took = 0.0  # seconds until the answer came
        self.crowded: Callable[[], bool] = lambda: True
        self.over = False  # whether Zenoh has ended it

    def put(self, reply: Any) -> None:
        """Of many replies to one question the first counts; the others would only fill the memory."""
        left = self._deadline - time.monotonic()
        if self._answered or left < 0:
            return
        if reply is not None and (reply.ok is not None or _reason(reply) != "Timeout"):
            self._answered, self._took = True, self._timeout - left
        self._replies.put(reply)

    def result(self) -> bytes:
        """The answer, once it is there. Raises `RefusedError` or `NoAnswerError`."""
        try:
            while (
                reply := self._replies.get(timeout=max(0.0, self._deadline - time.monotonic()))
            ) is not None:
                reason = None if reply.ok is not None else _reason(reply)
                if reason == "Timeout":
                    continue
                if self.crowded():
                    self._token.cancel()  # else a question is open until whoever answered it ends it
                if reason is None:
                    return bytes(reply.ok.payload.to_bytes())
                raise RefusedError(f"{self.name}: {reason}", late=self._took > LATE * self._timeout)
        except Empty:
            self._token.cancel()  # else Zenoh would go on waiting
        raise NoAnswerError(f"{self.name}: no answer within {self._timeout:g} s")


class Door:
    """A node's door: it answers, asks, and knows who is there. Close it in the end."""

    def __init__(
        self,
        place: Place,
        answer: Answer,
        *,
        workers: int = 2,
        waiting: int = 8,
        busy: Callable[[str], None] = lambda _: None,
        doubles: Doubles | None = None,
    ) -> None:
        try:
            import zenoh
        except ImportError:
            raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'") from None
        self._zenoh, self.place, self._answer, self._busy = zenoh, place, answer, busy
        self.doubles = doubles or Doubles()
        self._open: Counter[str] = Counter()  # questions of ours that Zenoh has not ended
        self._floods = {peer.name: Flood() for peer in place.peers}
        self._deaf: dict[str, float] = {}  # whom we do not hear, until when
        self._present: set[str] = set()
        self._appearances: Counter[str] = Counter()
        self._departures: Counter[str] = Counter()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._room = workers + waiting  # questions inside; else a flood fills the memory
        self._inside: Counter[str] = Counter()
        self._changing = threading.Lock()  # of the session
        self._renewal, self._seldom = Renewal(place.certificates, place.name), Seldom()
        self._open_session()
        threading.Thread(target=self._look_around, name="look around", daemon=True).start()

    def _open_session(self) -> None:
        place, zenoh = self.place, self._zenoh
        self._renewal.take_up()
        expires = expiry(place.certificates)
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(place))))
        except zenoh.ZError as error:
            reason = str(error).partition(" at /")[0]  # then come places in Zenoh's own code
            raise LNTrustError(
                f"node {place.name}: cannot listen on {place.listen}: {reason}; is it running already, is "
                "the port another's, or the address not this machine's?"
            ) from None
        self.expires = expires  # of the certificate that is in use
        self._ran_out = datetime.now(UTC) > expires
        names = [peer.name for peer in place.peers]
        ears = {name: self._listen(name) for name in names}
        with self._lock:
            self._ears, self._deaf = ears, dict[str, float]()
        self._declared: Sequence[Any] = [
            *(self._session.liveliness().declare_subscriber(f"lntrust/{n}/alive", self._seen, history=True)
              for n in names),
            self._session.liveliness().declare_token(f"lntrust/{place.name}/alive"),
        ]  # fmt: skip

    def _listen(self, name: str) -> Any:
        return self._session.declare_queryable(f"lntrust/{self.place.name}/ask/{name}", self._asked)

    @property
    def session(self) -> str:
        """The number of this door's session; those who hear it can tell it from another's."""
        return str(self._session.info.zid())

    def ask(self, name: str, question: bytes, timeout: float) -> bytes:
        """A neighbour's answer, within the deadline. Raises `RefusedError` or `NoAnswerError`."""
        return self.begin(name, question, timeout).result()

    def begin(self, name: str, question: bytes, timeout: float, beside: bytes | None = None) -> Pending:
        """Ask, and go on: several neighbours can be asked before the first answer is waited for.

        What stands beside a question is seen by who answers. Who asks in its own time has nothing there.
        """
        if len(question) > LIMIT:
            raise LNTrustError(
                f"question to {name}: {len(question)} bytes; at most {LIMIT} can be asked at once"
            )
        zenoh, token = self._zenoh, self._zenoh.CancellationToken()
        pending = Pending(name, timeout, token)
        pending.crowded = lambda: self._open[name] > _LISTENING
        with self._lock:
            self._open[name] += 1
        # Called in Zenoh's own thread: a thread for each question would take longer than its answer.
        handler = zenoh.handlers.Callback(
            lambda reply: self._heard(pending, reply), lambda: self._ended(pending), indirect=False
        )
        try:
            self._session.get(
                f"lntrust/{name}/ask/{self.place.name}", handler, payload=question, attachment=beside,
                timeout=_TIMEOUT, cancellation_token=token,
                consolidation=zenoh.ConsolidationMode.NONE,  # else an answer waits for a second one's
                # Blocking, the default, would wait for a hung neighbour's queue, past any deadline.
                congestion_control=zenoh.CongestionControl.DROP,
            )  # fmt: skip
        except zenoh.ZError:  # the door was closed meanwhile, perhaps to be opened again
            self._ended(pending)
        return pending

    @property
    def present(self) -> set[str]:
        """The neighbours that are there.

        One that is killed is missed within milliseconds, one that freezes after its lease; but not as long as
        megabytes to it lie in the way (Zenoh 1.10). So its silence has to count, too, not its presence alone.
        """
        with self._lock:
            return set(self._present)

    def appearances(self, name: str) -> int:
        """How often a neighbour has come: one that was away may not be what it was."""
        with self._lock:
            return self._appearances[name]

    def close(self) -> None:
        self._closed.set()
        with self._changing:
            self._session.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_around(self) -> None:
        """Ask Zenoh again for those who seem to be away, until the door is closed.

        If a neighbour thaws in the very moment in which its lease ends, Zenoh (1.10) at times tells its
        subscribers only that it has gone: it would be away for good, though it is there and answers.
        """
        while not self._closed.wait(_LOOK_AGAIN):
            try:
                self._renew_if_due()
            except Exception as error:  # whatever is wrong with files: who comes back is still looked for
                failed("certificates not looked at", error)
            with self._lock:
                due = [name for name, until in self._deaf.items() if time.monotonic() >= until]
            for name in due:
                with suppress(self._zenoh.ZError):  # the door was closed meanwhile
                    self._ears[name] = self._listen(name)
                    with self._lock:
                        del self._deaf[name]
            for peer in self.place.peers:
                with self._lock:
                    away, departures = peer.name not in self._present, self._departures[peer.name]
                if away and self._is_there(peer.name):
                    with self._lock:
                        gone = departures != self._departures[peer.name]  # meanwhile
                        if not gone and peer.name not in self._present:
                            self._came(peer.name)

    def _renew_if_due(self) -> None:
        """Open anew with certificates that are new: what listens goes on with those it began with.

        And once when they have run out: a link that was made in the last second would outlive them.
        """
        due = self._renewal.due()
        over = not self._ran_out and datetime.now(UTC) > self.expires + _LAST_SECOND
        with self._changing:
            if not (due or over) or self._closed.is_set():
                return
            with self._lock:  # first: nobody is asked in vain
                self._departures.update(self._present)
                self._present.clear()
            self._session.close()
            what = "certificates renewed" if due else "certificate has run out"
            try:
                self._open_session()
                event(what, expires=self.expires.isoformat())
            except LNTrustError as error:
                self._renewal.try_again()
                self._seldom.event("door is shut", level=logging.ERROR, since=what, error=why(error))

    def _is_there(self, name: str) -> bool:
        try:
            tokens = self._session.liveliness().get(f"lntrust/{name}/alive", timeout=_LOOK_AGAIN)
            return any(token.ok is not None for token in tokens)
        except self._zenoh.ZError:  # the door was closed meanwhile
            return False

    def _came(self, name: str) -> None:
        self._present.add(name)
        self._appearances[name] += 1

    # -- called by Zenoh, in a thread of its own, one after another: so nothing here may take long --------

    def _heard(self, pending: Pending, reply: Any) -> None:
        pending.put(reply)
        who = reply.replier_id
        if who is not None and (reply.ok is not None or _reason(reply) != "Timeout"):
            self.doubles.heard(pending.name, str(who.zid))

    def _ended(self, pending: Pending) -> None:
        pending.put(None)
        with self._lock:
            self._open[pending.name] -= not pending.over  # Zenoh may say so twice
            pending.over = True

    def _seen(self, sample: Any) -> None:
        name = str(sample.key_expr).split("/")[1]
        with self._lock:
            if sample.kind == self._zenoh.SampleKind.PUT:
                self._came(name)
            else:
                self._present.discard(name)
                self._departures[name] += 1

    def _asked(self, query: Any) -> None:
        asker = _asker(query)  # a query that is dropped tells nothing any more
        if self._enters(asker):
            self._pool.submit(self._answered, query)
            return
        query.reply_err(BUSY.encode())
        query.drop()
        self._busy(asker)
        self._turned_away(asker)

    def _turned_away(self, asker: str) -> None:
        """Who is refused thousands of times is not heard for a while: then Zenoh refuses it, at less cost."""
        with self._lock:
            if asker in self._deaf or not self._floods[asker].rises(time.monotonic()):
                return
            self._deaf[asker] = time.monotonic() + _DEAF
        self._pool.submit(self._ears[asker].undeclare)  # not here: this may be the one that it waits for
        event("neighbour floods", level=logging.WARNING, neighbour=asker, deaf_for=_DEAF)

    def _enters(self, asker: str) -> bool:
        """If there is room. The last quarter is for those who have no question inside: no flood takes it."""
        with self._lock:
            kept = self._room // 4 if self._inside[asker] else 0
            if self._inside.total() >= self._room - kept:
                return False
            self._inside[asker] += 1
            return True

    def _answered(self, query: Any) -> None:
        asker = _asker(query)
        try:
            question = b"" if query.payload is None else bytes(query.payload.to_bytes())
            if len(question) > LIMIT:
                raise LNTrustError(f"{len(question)} bytes; at most {LIMIT} are taken")
            beside = query.attachment
            more = () if beside is None else (bytes(beside.to_bytes()),)
            answer = self._answer(asker, question, *more)
            query.reply(str(query.key_expr), answer)
        except LNTrustError as error:
            query.reply_err(str(error).encode())
            if isinstance(error, EnoughError):
                self._turned_away(asker)
        except Exception as error:  # whatever goes wrong over one question ends nothing else
            query.reply_err(f"internal error: {type(error).__name__}".encode())
        finally:
            query.drop()
            with self._lock:
                self._inside[asker] -= 1


def _reason(reply: Any) -> str:
    """A refusal's, for people to read: whoever sent it could send megabytes."""
    reason: bytes = reply.err.payload.to_bytes()
    return printable(reason[:_LONGEST_REASON].decode("utf-8", "replace"))


def printable(text: str) -> str:
    """What others wrote may hold codes for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _asker(query: Any) -> str:
    """The last part of the key: access control has tied it to the asker's certificate."""
    return str(query.key_expr).rpartition("/")[2]
