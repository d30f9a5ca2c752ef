"""The door between live nodes: Zenoh, peer to peer, over TLS with certificates on both sides.

A node answers questions under `lntrust/NAME/ask/ASKER`. Access control, on both ends of every link, ties
the last part to the name in the asker's certificate, and the first to the answerer's: so a node knows who
asks and who answers, and a stranger, or somebody who speaks in another's name, gets nothing. Liveliness
tokens tell who is there. A question has a deadline; a neighbour that hangs costs nobody else anything.

What passes is bytes, the codec's business. What is refused by us comes with a reason. Zenoh's own limits lie
above ours, and what they stop is dropped in silence.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lntrust.errors import LNTrustError

Answer = Callable[[str, bytes], bytes]  # who asks, what; may raise LNTrustError to refuse, with a reason
LIMIT = 4 << 20  # bytes of a message that we take
BUSY = "busy"
_LONGEST_REASON = 400  # bytes of a refusal that we read
_HARD_LIMIT = LIMIT + (64 << 10)  # beyond this Zenoh drops it before we can say why
_LOOK_AGAIN = 2.0  # seconds between two looks at who seems to be away

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


class RefusedError(LNTrustError):
    """An answer that says no, and why."""


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
        "access_control": _access(place),
    }  # fmt: skip


def _access(place: Place) -> dict[str, Any]:
    """What each neighbour may send us and hear from us, by its certificate's name; all else is denied."""
    me, rules, policies = place.name, [], []
    for peer in place.peers:
        you = peer.name
        mine = _messages(me, you)
        for flow, (asks, answers) in (("ingress", (you, me)), ("egress", (me, you))):
            for what, key in _messages(answers, asks):
                rules.append(_rule(f"{you} {flow} {what}", flow, what, key))
        policies.append(
            {
                "subjects": [you],
                "rules": [f"{you} {flow} {what}" for flow in ("ingress", "egress") for what, _ in mine],
            }
        )
    return {
        "enabled": True, "default_permission": "deny", "rules": rules, "policies": policies,
        "subjects": [{"id": peer.name, "cert_common_names": [peer.name]} for peer in place.peers],
    }  # fmt: skip


def _messages(answerer: str, asker: str) -> list[tuple[str, str]]:
    """What the asker sends to the answerer, as Zenoh's kinds of messages, and under which key."""
    return [
        ("query", f"lntrust/{answerer}/ask/{asker}"),
        ("reply", f"lntrust/{asker}/ask/{answerer}"),  # to what the other one asked
        ("declare_queryable", f"lntrust/{asker}/**"),
        ("liveliness_token", f"lntrust/{asker}/alive"),
        ("liveliness_query", f"lntrust/{answerer}/alive"),
        ("declare_liveliness_subscriber", f"lntrust/{answerer}/alive"),
    ]


def _rule(name: str, flow: str, message: str, key: str) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": [flow], "messages": [message], "key_exprs": [key]}


@dataclass(frozen=True)
class Pending:
    """A question under way."""

    name: str
    timeout: float
    replies: Any  # Zenoh closes it when the deadline has passed

    def result(self) -> bytes:
        """The answer, once it is there. Raises `RefusedError` or `NoAnswerError`."""
        for reply in self.replies:
            if reply.ok is not None:
                return bytes(reply.ok.payload.to_bytes())
            assert reply.err is not None
            reason = _plain(reply.err.payload.to_bytes())
            if reason != "Timeout":
                raise RefusedError(f"{self.name}: {reason}")
        raise NoAnswerError(f"{self.name}: no answer within {self.timeout:g} s")


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
    ) -> None:
        try:
            import zenoh
        except ImportError:
            raise LNTrustError("live nodes need the extra fleet: pip install 'lntrust[fleet]'") from None
        self._zenoh, self.place, self._answer, self._busy = zenoh, place, answer, busy
        self._present: set[str] = set()
        self._appearances: Counter[str] = Counter()
        self._departures: Counter[str] = Counter()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="answer")
        self._room = workers + waiting  # questions inside; else a flood fills the memory
        self._inside: Counter[str] = Counter()
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(place))))
        except zenoh.ZError as error:
            why = str(error).partition(" at /")[0]  # then come places in Zenoh's own code
            raise LNTrustError(
                f"node {place.name}: cannot listen on {place.listen}: {why}; is it running already, is the "
                "port another's, or the address not this machine's?"
            ) from None
        names = [peer.name for peer in place.peers]
        self._declared: Sequence[Any] = [
            *(self._session.declare_queryable(f"lntrust/{place.name}/ask/{n}", self._asked) for n in names),
            *(self._session.liveliness().declare_subscriber(f"lntrust/{n}/alive", self._seen, history=True)
              for n in names),
            self._session.liveliness().declare_token(f"lntrust/{place.name}/alive"),
        ]  # fmt: skip
        threading.Thread(target=self._look_around, name="look around", daemon=True).start()

    def ask(self, name: str, question: bytes, timeout: float) -> bytes:
        """A neighbour's answer, within the deadline. Raises `RefusedError` or `NoAnswerError`."""
        return self.begin(name, question, timeout).result()

    def begin(self, name: str, question: bytes, timeout: float) -> "Pending":
        """Ask, and go on: several neighbours can be asked before the first answer is waited for."""
        if len(question) > LIMIT:
            raise LNTrustError(
                f"question to {name}: {len(question)} bytes; at most {LIMIT} can be asked at once"
            )
        try:
            replies = self._asked_for(name, question, timeout)
        except self._zenoh.ZError as error:  # the door was closed meanwhile
            raise NoAnswerError(f"{name}: cannot be asked: {error}") from None
        return Pending(name, timeout, replies)

    def _asked_for(self, name: str, question: bytes, timeout: float) -> Any:
        return self._session.get(
            f"lntrust/{name}/ask/{self.place.name}", payload=question, timeout=timeout,
            # Blocking, the default, would wait for a hung neighbour's queue, past any deadline.
            congestion_control=self._zenoh.CongestionControl.DROP,
        )  # fmt: skip

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
        self._session.close()  # type: ignore[no-untyped-call]
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_around(self) -> None:
        """Ask Zenoh again for those who seem to be away, until the door is closed.

        If a neighbour thaws in the very moment in which its lease ends, Zenoh (1.10) at times tells its
        subscribers only that it has gone: it would be away for good, though it is there and answers.
        """
        while not self._closed.wait(_LOOK_AGAIN):
            for peer in self.place.peers:
                with self._lock:
                    away, departures = peer.name not in self._present, self._departures[peer.name]
                if away and self._is_there(peer.name):
                    with self._lock:
                        gone = departures != self._departures[peer.name]  # meanwhile
                        if not gone and peer.name not in self._present:
                            self._came(peer.name)

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
            answer = self._answer(asker, question)
            query.reply(str(query.key_expr), answer)
        except LNTrustError as error:
            query.reply_err(str(error).encode())
        except Exception as error:  # whatever goes wrong over one question ends nothing else
            query.reply_err(f"internal error: {type(error).__name__}".encode())
        finally:
            query.drop()
            with self._lock:
                self._inside[asker] -= 1


def _plain(reason: bytes) -> str:
    """A reason, for people to read: whoever sent it could send megabytes."""
    return printable(reason[:_LONGEST_REASON].decode("utf-8", "replace"))


def printable(text: str) -> str:
    """What others wrote may hold codes for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _asker(query: Any) -> str:
    """The last part of the key: access control has tied it to the asker's certificate."""
    return str(query.key_expr).rpartition("/")[2]
