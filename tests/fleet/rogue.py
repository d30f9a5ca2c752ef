"""A neighbour that misbehaves: a real door, with its own certificate, whose answers a test chooses.

It knows the digits by heart, so that trust in it is well founded as long as it is honest. It writes down what
it was asked.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy import ndarray
from sklearn.datasets import load_digits

from lntrust.fleet.peers import messages as wire
from lntrust.fleet.peers.transport import LIMIT, Door, Pending, Place, RefusedError
from lntrust.fleet.settings import NodeSettings
from lntrust.network.codec import Message, decode, encode


class Watching(Door):
    """Writes down all that Zenoh tells of a question beside its payload."""

    def _asked(self, query: Any) -> None:
        parts = (query.selector, query.parameters, query.encoding, query.attachment, query.accepts_replies())
        self.beside = [*getattr(self, "beside", []), tuple(map(str, parts))]
        super()._asked(query)


class Rogue:
    """`mode` may be changed at any time, to what `ANSWERS` and `GREETINGS` have. Close it in the end."""

    def __init__(self, place: Place, settings: NodeSettings, mode: str = "honest") -> None:
        x, y = load_digits(return_X_y=True)
        self._by_heart = {image.astype(np.uint8).tobytes(): int(c) for image, c in zip(x, y, strict=True)}
        self._settings = settings
        self.mode, self.version = mode, 1000
        self.hellos: list[str] = []  # who has greeted
        self.asked: list[tuple[str, ndarray]] = []  # who has shown which inputs
        self.questions: list[bytes] = []  # as they came
        self.lies: Callable[[Message], bool] = lambda message: False  # to which questions
        self._closed = threading.Event()
        self.door = Watching(place, self._answer, workers=8, waiting=64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.door.close()

    @property
    def facts(self) -> dict[str, Any]:
        return wire.facts(self._settings.input, len(self._settings.neighbours), self.version)

    def dawdle(self) -> None:
        """Until the mode is another one, or the rogue is closed."""
        mode = self.mode
        while self.mode == mode and not self._closed.wait(0.02):
            pass

    def right(self, x: ndarray) -> ndarray:
        """What it honestly thinks."""
        C = len(self._settings.input.classes)
        p = np.full((len(x), C), 0.1 / (C - 1), dtype=np.float32)
        for row, image in zip(p, x, strict=True):
            row[self._by_heart.get(image.tobytes(), 0)] = 0.9
        return p

    def _answer(self, asker: str, data: bytes, *_: bytes) -> bytes:
        message = decode(data)
        if wire.HELLO in message.tensors:
            self.hellos.append(asker)
            return GREETINGS.get(self.mode, honest_hello)(self)
        x = wire.asked(message, self._settings.input)
        self.asked.append((asker, x))
        self.questions.append(data)
        if self.lies(message):
            return _reply(self, np.roll(self.right(x), 1, axis=1))
        return ANSWERS.get(self.mode, honest)(self, x)

    # -- asking -----------------------------------------------------------------------------------

    def greet(self, name: str, timeout: float = 5.0) -> dict[str, Any]:
        return wire.told(decode(self.door.ask(name, encode(wire.hello(self.facts)), timeout)))

    def ask(self, name: str, x: ndarray, timeout: float = 5.0) -> ndarray:
        """As an honest neighbour would."""
        reply = decode(self.door.ask(name, encode(wire.question(x, 0)), timeout))
        return wire.heard(reply, len(x), len(self._settings.input.classes))

    def flood(self, name: str, x: ndarray, seconds: float, at_once: int = 64) -> tuple[int, int, list[str]]:
        """Ask as fast as it goes: how many were asked, how many answered, and why others were not."""
        question = encode(wire.question(x, 0))
        end, asked, answered, refusals = time.monotonic() + seconds, 0, 0, set()
        pending: list[Pending] = []
        while time.monotonic() < end:
            pending += [self.door.begin(name, question, 2.0) for _ in range(at_once - len(pending))]
            asked += at_once // 2
            for each in pending[: at_once // 2]:
                try:
                    each.result()
                    answered += 1
                except RefusedError as error:
                    refusals.add(str(error))
                except Exception as error:
                    refusals.add(type(error).__name__)
            pending = pending[at_once // 2 :]
        return asked, answered, sorted(refusals)


def _reply(rogue: Rogue, p: ndarray, version: int | None = None) -> bytes:
    return encode(wire.reply(p, 0, rogue.version if version is None else version))


def honest(rogue: Rogue, x: ndarray) -> bytes:
    return _reply(rogue, rogue.right(x))


def honest_hello(rogue: Rogue) -> bytes:
    return encode(wire.hello(rogue.facts, "reply"))


def _slow(rogue: Rogue, x: ndarray) -> bytes:
    rogue.dawdle()
    return honest(rogue, x)


def _constant(rogue: Rogue, x: ndarray) -> bytes:
    p = np.zeros_like(rogue.right(x))
    p[:, 7] = 1
    return _reply(rogue, p)


def _slow_hello(rogue: Rogue) -> bytes:
    rogue.dawdle()
    return honest_hello(rogue)


def _deep_hello(rogue: Rogue) -> bytes:
    """JSON within JSON, as deep as a reader may just bear."""
    text = b'{"protocol":' + b"[" * 950 + b"]" * 950 + b"}"
    return encode(Message("reply", {wire.HELLO: np.frombuffer(text, dtype=np.uint8)}))


def _said(rogue: Rogue, **changed: Any) -> bytes:
    return encode(wire.hello({**rogue.facts, **changed}, "reply"))


def _permuted(rogue: Rogue) -> bytes:
    return _said(rogue, classes=list(rogue._settings.input.classes[::-1]))


ANSWERS: dict[str, Callable[[Rogue, ndarray], bytes]] = {
    "honest": honest,
    "slow": _slow,
    "garbage": lambda rogue, x: np.random.default_rng(len(x)).bytes(1000),
    "nothing": lambda rogue, x: b"",
    "nan": lambda rogue, x: _reply(rogue, np.full_like(rogue.right(x), np.nan)),
    "not probabilities": lambda rogue, x: _reply(rogue, 5 * rogue.right(x)),
    "constant": _constant,
    "wrong shape": lambda rogue, x: _reply(rogue, rogue.right(x)[:-1]),
    "wrong classes": lambda rogue, x: _reply(rogue, np.full((len(x), 3), 1 / 3, dtype=np.float32)),
    "wrong dtype": lambda rogue, x: _reply(rogue, rogue.right(x).astype(np.float64)),
    "older": lambda rogue, x: _reply(rogue, rogue.right(x), rogue.version - 500),
    "huge": lambda rogue, x: bytes(LIMIT + (1 << 20)),
    "just too large": lambda rogue, x: _reply(rogue, np.zeros((LIMIT // 40 + 1, 10), dtype=np.float32)),
}
GREETINGS: dict[str, Callable[[Rogue], bytes]] = {
    "slow hello": _slow_hello,
    "deep hello": _deep_hello,
    "garbage hello": lambda rogue: b"\xff" * 100,
    "permuted hello": _permuted,
    "another protocol": lambda rogue: _said(rogue, protocol=2),
}
